"""An evaluator made of a Python function of one genotype."""

import collections
import time
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any, NamedTuple

import numpy as np

from ._counting import counting
from ._crews import BorrowedCrew, CannotStart, Crew, OwnCrew, broken
from ._episode_rows import Rows
from ._process import cores
from ._workers import WorkerError

POLL = 0.05  # seconds until one is looked at again that has not begun yet


class Refused(NamedTuple):
    """An individual that could not be evaluated."""

    row: int
    error: BaseException  # of its last attempt


def map_evaluator(
    function: Callable[[np.ndarray], Any],
    executor: Executor | None = None,
    *,
    retries: int = 1,
    timeout: float | None = None,
    episode_length: int | None = None,
    progress: bool | None = None,
) -> "MapEvaluator":
    """An evaluator for ask and tell: `optimizer.tell(*evaluate(optimizer.ask()))`.

    **Arguments:**

    - `function`: of one genotype, float32 `[params]`; returns `(fitness, descriptor)`, or with a trajectory
      `(fitness, descriptor, trajectory)`, a mapping of the alive steps' `observation`, `action` and `reward`, and
      `terminated`: whether it ended by itself.
    - `executor`: any `concurrent.futures.Executor`; a Dask cluster's is `Client(…).get_executor()`. By default
      worker processes of our own, one per CPU core, to which the function is sent by value.
    - `retries`: how often an individual is tried again that raised, ran out of time or killed its process. Then it is
      told as refused: its row is not finite, so that the optimizer counts it and goes on.
    - `timeout`: seconds that an individual may take. A process of our own is then killed; on an executor of yours the
      call is abandoned, but goes on, and keeps its worker until it ends.
    - `episode_length`: to which trajectories are filled up; needed where they differ in length.
    - `progress`: show progress; by default on a terminal only.
    """
    if not callable(function):
        raise TypeError(f"expected a function of one genotype; got {function!r}")
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            f"expected a concurrent.futures.Executor; got {executor!r} (of a Dask client: client.get_executor())"
        )
    if int(retries) != retries or retries < 0:
        raise ValueError(f"retries must be a whole number, at least 0; got {retries}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be above 0 seconds; got {timeout}")
    return MapEvaluator(function, executor, int(retries), timeout, episode_length, progress)


class MapEvaluator:
    """Evaluates genotypes one by one, several at a time; make one with `map_evaluator`.

    `refused` lists the individuals of the last call that were given up. `close()`, or the end of a `with` block, ends
    the processes; they also end with this object or the interpreter.
    """

    def __init__(
        self,
        function: Callable,
        executor: Executor | None,
        retries: int,
        timeout: float | None,
        episode_length: int | None,
        progress: bool | None,
    ):
        own = self._own = executor is None
        self._crew: Crew = OwnCrew(function, cores()) if executor is None else BorrowedCrew(function, executor)
        # Where it matters when an individual begins, no more are handed over than can begin at once.
        self._limit = self._crew.at_once if own or timeout is not None else None
        self._retries, self._timeout, self._progress = retries, timeout, progress
        self._rows = Rows(episode_length)
        self._stuck: set[Future] = set()  # given up, but not ended
        self.refused: tuple[Refused, ...] = ()

    def __call__(self, genotypes: Any) -> tuple[Any, ...]:
        """Fitness `[batch]`, descriptor `[batch, dims]` and, where there are any, trajectories, row by row."""
        genotypes = np.asarray(genotypes)
        batch = _Batch(len(genotypes), self._retries)
        try:
            with counting(self._progress, "evaluating", len(genotypes)) as show:
                while batch.unfinished:
                    self._hand_over(batch, genotypes)
                    self._collect(batch)
                    show(batch.done)
        except BaseException:
            for future in batch.flying:
                self._crew.drop(future)
            self._crew.close(at_once=True)
            raise
        self.refused = tuple(Refused(row, batch.errors[row]) for row in sorted(batch.errors))
        told = self._rows.put_together(batch.results, len(genotypes), self.refused)
        if self.refused:
            first = self.refused[0]
            warnings.warn(
                f"{len(self.refused)} of {len(genotypes)} individuals are told as refused, after {self._retries + 1} "
                f"attempts each; row {first.row}: {_text(first.error)}",
                UserWarning,
                stacklevel=2,
            )
        return told

    def _hand_over(self, batch: "_Batch", genotypes: np.ndarray):
        self._stuck = {future for future in self._stuck if not future.done()}
        room = len(batch.waiting) if self._limit is None else self._limit - len(batch.flying) - len(self._stuck)
        if room <= 0 and not batch.flying:
            raise RuntimeError(
                f"every worker of the executor is busy with an individual that took longer than {self._timeout} s and "
                "cannot be stopped. Without executor=… map_evaluator has processes of its own, which can"
            )
        for _ in range(min(room, len(batch.waiting))):
            row = batch.waiting.popleft()
            batch.flying[self._crew.submit(genotypes[row])] = row, time.monotonic()

    def _collect(self, batch: "_Batch"):
        """Waits until something has ended, or ran out of time."""
        finished, _ = wait(batch.flying, self._patience(batch), FIRST_COMPLETED)
        for future in finished:
            row, _ = batch.flying.pop(future)
            error = CancelledError("it was cancelled") if future.cancelled() else future.exception()
            if isinstance(error, BrokenExecutor):
                raise broken("the executor") from error
            if isinstance(error, CannotStart):
                raise error
            if error is None:
                batch.results[row] = future.result()
            else:
                batch.failed(row, error)
        for future in self._overdue(batch):
            row, _ = batch.flying.pop(future)
            if not self._crew.drop(future):
                self._stuck.add(future)
            batch.failed(row, TimeoutError(f"it took longer than {self._timeout} s"))

    def _begun(self, batch: "_Batch", future: Future) -> float | None:
        """When an individual's time began; of an executor of the user's, when it was handed over."""
        return self._crew.begun(future) if self._own else batch.flying[future][1]

    def _patience(self, batch: "_Batch") -> float | None:
        if self._timeout is None:
            return None
        begun = [self._begun(batch, future) for future in batch.flying]
        ends = [POLL if since is None else since + self._timeout - time.monotonic() for since in begun]
        return max(0.0, min(ends))

    def _overdue(self, batch: "_Batch") -> list[Future]:
        if self._timeout is None:
            return []
        begun = {future: self._begun(batch, future) for future in batch.flying}
        now = time.monotonic()
        return [future for future, since in begun.items() if since is not None and now - since >= self._timeout]

    def close(self):
        """Ends the processes; another call would start them again."""
        self._crew.close()

    def __enter__(self) -> "MapEvaluator":
        return self

    def __exit__(self, *exception):
        self.close()


class _Batch:
    """The individuals of one call."""

    def __init__(self, count: int, retries: int):
        self._retries = retries
        self.waiting = collections.deque(range(count))
        self.flying: dict[Future, tuple[int, float]] = {}  # row, and when it was handed over
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self._failures: collections.Counter[int] = collections.Counter()

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting or self.flying)

    @property
    def done(self) -> int:
        return len(self.results) + len(self.errors)

    def failed(self, row: int, error: BaseException):
        self._failures[row] += 1
        if self._failures[row] > self._retries:
            self.errors[row] = error
        else:
            self.waiting.append(row)


def _text(error: BaseException) -> str:
    """An error in a line; `refused` has it whole."""
    if isinstance(error, WorkerError):
        return str(error).strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}"
