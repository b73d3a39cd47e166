"""The driver of `Optimizer.fit`: budgets, interrupts, callbacks and checkpoints round the one loop."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._loop import CHUNK
from ._metrics import History
from ._spread import agreed
from ._view import ArchiveView

if TYPE_CHECKING:
    from ._optimizer import Optimizer

CHUNK_SECONDS = 2.0  # a device call lasts about this long, so that interrupts and checkpoints are not kept waiting
CHECKPOINT_SECONDS = 60.0

StoppedBy = Literal["evaluations", "seconds", "callback", "interrupt"]
STOPS = ("evaluations", "seconds", "interrupt", "abort")  # what a process finds out by itself
Callback = Callable[["Optimizer", dict[str, Any]], Any]


class Result(NamedTuple):
    """What `fit` returns."""

    archive: ArchiveView
    history: History
    stopped_by: StoppedBy

    def __repr__(self) -> str:
        return f"Result(stopped_by={self.stopped_by!r},\n  archive={self.archive},\n  history={self.history})"


class Budget(NamedTuple):
    """When to stop: totals over the life of the run, whichever is reached first."""

    evaluations: int | None
    seconds: float | None

    def spent(self, evaluations: int, seconds: float) -> StoppedBy | None:
        if self.evaluations is not None and evaluations >= self.evaluations:
            return "evaluations"
        if self.seconds is not None and seconds >= self.seconds:
            return "seconds"
        return None


def check_budget(evaluations: int | None, seconds: float | None) -> Budget:
    if evaluations is None and seconds is None:
        raise ValueError("fit needs a budget: evaluations=…, seconds=…, or both (the first reached stops)")
    if evaluations is not None and (evaluations != int(evaluations) or not 0 < evaluations < 2**31):
        raise ValueError(f"evaluations must be a whole number from 1 to {2**31 - 1:,}; got {evaluations}")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ValueError(f"seconds must be above 0; got {seconds}")
    return Budget(None if evaluations is None else int(evaluations), seconds)


class Pace:
    """How many generations make a chunk of about `CHUNK_SECONDS`."""

    def __init__(self, one_by_one: bool):
        self._one_by_one, self._seconds_each = one_by_one, None

    def measured(self, generations: int, seconds: float):
        self._seconds_each = max(seconds / max(generations, 1), 1e-6)

    def next(self, seconds_left: float | None) -> int:
        if self._one_by_one or self._seconds_each is None:
            return 1
        wish = CHUNK_SECONDS if seconds_left is None else min(CHUNK_SECONDS, seconds_left)
        return max(1, min(CHUNK, int(wish / self._seconds_each)))


class Checkpoints:
    """Saves now and then, and at the end."""

    def __init__(self, save: Callable[[], None] | None, every: int | None):
        if every is not None and every < 1:
            raise ValueError(f"checkpoint_every counts generations and must be at least 1; got {every}")
        self._save, self._every = save, every
        self._generation, self._time = None, time.monotonic()

    def next_in(self, generation: int) -> int:
        """Generations that may pass before a checkpoint is due."""
        return CHUNK if self._every is None else self._every - generation % self._every

    def after(self, generation: int):
        due = time.monotonic() - self._time >= CHECKPOINT_SECONDS
        if self._every is not None:
            due = generation % self._every == 0
        if due:
            self.now(generation)

    def now(self, generation: int):
        if self._save is not None and generation > 0 and self._generation != generation:
            self._save()
        self._generation, self._time = generation, time.monotonic()


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Within it Ctrl-C and SIGTERM are counted, and what is yielded tells how many there were; the third raises."""
    received = []

    def receive(number, frame):
        received.append(number)
        if len(received) > 2:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: len(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drive(
    optimizer: "Optimizer",
    budget: Budget,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints,
    display: Any,
) -> StoppedBy:
    """Runs chunks of generations until a budget is spent, a callback returns False or the user interrupts."""
    pace = Pace(one_by_one=bool(callbacks))

    def finish(stopped: Any) -> Any:
        checkpoints.now(optimizer.generation)
        agreed(0)  # no process goes on before the file is there
        return stopped

    with interruptible() as interrupted, display:
        display.compiling()
        optimizer._advance(0, budget.evaluations)  # no generation: compiles
        while True:
            stopped = budget.spent(optimizer.evaluations, optimizer.seconds)
            stopped = stopped or ("interrupt" if interrupted() else None)
            left = None if budget.seconds is None else budget.seconds - optimizer.seconds
            count = min(pace.next(left), checkpoints.next_in(optimizer.generation))
            # All processes do what the first one says: so many generations, or one of the reasons to stop.
            plan = agreed(-1 - STOPS.index("abort" if interrupted() > 1 else stopped) if stopped else count)
            if plan < 0 and STOPS[-1 - plan] == "abort":  # not in a device call, which would lose the run
                raise KeyboardInterrupt
            if plan < 0:
                return finish(STOPS[-1 - plan])
            begin = time.perf_counter()
            generations = optimizer._advance(plan, budget.evaluations)
            pace.measured(generations, time.perf_counter() - begin)
            row = optimizer.history.last()
            display.show(row)
            answers = [callback(optimizer, row) for callback in callbacks]
            if agreed(any(answer is False for answer in answers)) and interrupted() < 2:
                return finish("callback")
            checkpoints.after(optimizer.generation)
