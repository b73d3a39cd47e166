"""Optimizer: the NumPy front end, a thin mutable shell round a `Run`."""

import dataclasses
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import _loop
from ._archive import cvt_centroids
from ._atomic import Lock, real
from ._checkpoint import Checkpoints
from ._compile import compiled
from ._describe import describe_problem
from ._files import Saved, load_run, save_run, trimmed
from ._fit import Callback, Result, check_budget, drive
from ._intake import evaluation_of
from ._loop import AbstractAlgorithm, Feedback, Offspring
from ._metrics import History
from ._policy import AbstractPolicy
from ._progress import progress_display
from ._spread import first_process, replicate
from ._trajectories import Record, Recorder, estimate, make_recorder
from ._view import ArchiveView, view
from ._watch import listening
from .tasks._task import AbstractProblem, AbstractTask, program_view

# One program per algorithm and task, shared by every optimizer of the process.
_start = compiled(_loop.start)
_ask = compiled(_loop.ask)
_tell = compiled(_loop.tell)
_MOST = np.iinfo(np.int32).max
ROOM = 4  # times what is needed that there is room for, where nobody says how much will be
_NOT_RECORDED = (
    "{}: trajectories were recorded so far, and are not from here on: the elites to come will have no episode. To go "
    "on: record_trajectories=… or `--record-trajectories`"
)


def _like_generations(fixed: tuple, run: _loop.Run) -> Any:
    return jax.eval_shape(lambda: (run, _loop.no_records(fixed[0]), run.generation))


@partial(compiled, donate="all-except-first", like=_like_generations)
def _generations(fixed: tuple, run: _loop.Run):
    algorithm, task, count, budget = fixed
    return _loop.generations(algorithm, task, count, budget, run)


class Optimizer:
    """Fills an archive with many good and different policies.

    **Arguments:**

    - `algorithm`: for example `asciime_gym.AsciiME()`.
    - `task`: a task, which can be fitted; or a `Problem`, for ask and tell.
    - `seed`: a whole number from 0 to 2³² − 1; the same seed gives the same archive.
    - `centroids`: the number of cells, or the cells' centres themselves as an array `[cells, dims]`.
    """

    def __init__(
        self,
        algorithm: AbstractAlgorithm,
        task: AbstractProblem,
        *,
        seed: int = 0,
        centroids: int | Any = 1024,
    ):
        _check(algorithm, task, seed)
        cells = _centroids(centroids, task)
        run = replicate(_start(algorithm, program_view(task), cells, np.uint32(seed)))
        self._settle(Saved(algorithm, task, int(seed), run, History(_loop.operators(algorithm))))

    def _settle(self, saved: Saved):
        self.algorithm, self.task, self.seed, self._run, self.history, self._parts = saved
        self._asked: tuple[Offspring, Any] | None = None
        self._asked_at = 0.0
        self._room_for = 0  # evaluations that the algorithm's state has room for
        self._ours: set[Path] = set()  # files that hold this run, and may be written over
        self._checkpoints: Checkpoints | None = None  # of the fit that is going on
        self._recorder: Recorder | None = None  # of its trajectories
        self._unsaved: Recorder | None = None  # of an earlier fit, whose last files could not be written

    # What there is -------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Generations told so far."""
        return int(self._run.generation)

    @property
    def evaluations(self) -> int:
        """Evaluations spent so far."""
        return int(self._run.evaluations)

    @property
    def seconds(self) -> float:
        """Time spent so far, compilation aside."""
        return float(self.history.last().get("seconds", 0.0))

    @property
    def archive(self) -> ArchiveView:
        """The elites so far, copied to the host."""
        names = getattr(self.task, "descriptor_names", None)
        problem = json.loads(describe_problem(self.task))
        return view(self._run.archive, _loop.operators(self.algorithm), self.task.policy, names, problem=problem)

    @property
    def evaluation_key(self) -> jax.Array:
        """The key that `fit` would hand to `task.evaluate` in this generation."""
        return _loop.keys(self._run)[1]

    @property
    def life(self) -> jax.Array:
        """The steps each asked row is expected to live, as `fit` would hand them to `task.evaluate`."""
        return self._pending("life")[0].life

    # Ask and tell --------------------------------------------------------------------------------------------

    def ask(self) -> np.ndarray:
        """Genotypes to evaluate, float32 `[batch_size, params]`; the same ones until they are told."""
        if self._asked is None:
            self._asked_at = time.perf_counter()
            self._asked = _ask(self.algorithm, program_view(self.task), self._run)
        return np.asarray(self._pending("ask")[0].genotype)

    def tell(self, fitness: Any, descriptor: Any, trajectory: Any = None, steps: Any = None) -> Feedback:
        """Takes in the evaluation of the rows that `ask` returned.

        Rows that are not finite throughout are no error: they are kept out of archive and buffer, and counted in
        the history.

        **Arguments:**

        - `fitness`: `[batch_size]`; higher is better.
        - `descriptor`: `[batch_size, dims]`.
        - `trajectory`: a `Trajectory` or a mapping with its fields, `[batch_size, episode_length, …]`; needed by
          algorithms that learn from them.
        - `steps`: environment steps of each row, for the history; by default its alive steps, or whole episodes.

        **Returns:** per row, whether it was `added` and its `gain` in QD score.
        """
        offspring, state = self._pending("tell")
        if trajectory is None and self.algorithm.needs_trajectory:
            raise ValueError(
                f"tell: {type(self.algorithm).__name__} learns from trajectories: "
                "tell(fitness, descriptor, trajectory) needs all three"
            )
        told = evaluation_of(self.task, self.algorithm.batch_size, fitness, descriptor, trajectory, steps)
        evaluation = replicate(told)
        state = self._roomy(state, self.evaluations + self.algorithm.batch_size)
        self._asked = offspring, state
        problem = program_view(self.task)
        run, feedback, record = _tell(self.algorithm, problem, self._run, offspring, state, evaluation)
        feedback = jax.tree.map(np.asarray, feedback)
        self.history.append(record, self.seconds + time.perf_counter() - self._asked_at)
        self._run, self._asked = run, None
        return feedback

    def _roomy(self, state: Any, needed: int, budget: int | None = None) -> Any:
        """The algorithm's state with room for what so many evaluations in all can bring; where a budget says how many
        there will be, for all of them, else for many more, because a program has to be compiled for every size."""
        if (needed if budget is None else budget) <= self._room_for:
            return state
        self._room_for = ROOM * needed if budget is None else budget
        roomy = self.algorithm.room(program_view(self.task), state, self._room_for)
        return state if roomy is state else replicate(roomy)

    def _pending(self, what: str) -> tuple[Offspring, Any]:
        if self._asked is None:
            raise RuntimeError(f"{what}: nothing was asked, or it was told already; call ask() first")
        return self._asked

    # Fit -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        evaluations: int | None = None,
        seconds: float | None = None,
        *,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool | None = None,
        checkpoint: str | os.PathLike | None = None,
        checkpoint_every: int | None = None,
        overwrite: bool = False,
        record_trajectories: Record | None = None,
    ) -> Result:
        """Runs the algorithm on the task until a budget is spent.

        The first Ctrl-C finishes the generations under way, saves where there is a checkpoint and returns what there
        is; the second raises once the device has answered, the third at once.

        **Arguments:**

        - `evaluations`: stop after the first generation at which this many were spent in all, those of earlier calls
          included.
        - `seconds`: stop when this much time was spent in all, compilation aside.
        - `callbacks`: called after every generation with the optimizer and its newest row of history; returning
          `False` stops.
        - `progress`: show progress; by default on a terminal only.
        - `checkpoint`: a file to save to now and then, while the run goes on, and at the end, whatever ends it. A save
          that fails is warned of, and tried again when the next is due; a file that another run writes is refused.
        - `checkpoint_every`: generations between saves; by default about a minute's worth. Where they come faster than
          the file can be written, only the newest waits.
        - `overwrite`: whether the checkpoint may replace a file that holds another run.
        - `record_trajectories`: `"elites"` keeps the episode of every row that enters the archive, `"all"` those of all
          rows, in files beside the checkpoint (`load_trajectories`). Generations then run one at a time.
        """
        budget = check_budget(evaluations, seconds)
        if not isinstance(self.task, AbstractTask):
            raise TypeError(
                f"fit needs a task that can evaluate policies; a {type(self.task).__name__} has no evaluator: "
                "use ask() and tell(), or make_task(…)"
            )
        title = f"{self.algorithm.name} on {self.task.name}"
        display = progress_display(progress if first_process() else False, title, budget.evaluations, budget.seconds)
        listeners = [callbacks] if callable(callbacks) else list(callbacks)
        recorder = make_recorder(checkpoint, record_trajectories, self._parts)
        checkpoints = Checkpoints(
            checkpoint, checkpoint_every, self._saved, ours=self._ours, overwrite=overwrite, recorder=recorder
        )
        self._asked = None  # an unanswered ask is asked again: the same rows
        before, self._checkpoints = self._checkpoints, checkpoints
        self._recorder = recorder
        try:
            if recorder and first_process() and progress is not False:
                print(estimate(self.task, recorder.record, budget.evaluations).text, file=sys.stderr)
            elif self._parts and checkpoint is not None and recorder is None:
                warnings.warn(_NOT_RECORDED.format(checkpoint), UserWarning, stacklevel=2)
            with listening(partial(self._show_episodes, display)):
                stopped_by = drive(self, budget, listeners, checkpoints, display)
        finally:
            self._checkpoints, self._recorder = before, None
            self._parts = tuple(recorder.parts) if recorder else self._parts
            self._unsaved = recorder if recorder and recorder.pending_bytes else self._unsaved
            checkpoints.close()
            if checkpoint is not None and checkpoints.written:
                self._ours.add(real(checkpoint))
        return Result(self.archive, self.history.copy(), stopped_by)

    def _advance(self, count: int, budget: int | None) -> int:
        """At most `count` generations in one device call; returns how many there were."""
        assert isinstance(self.task, AbstractTask)
        needed = self.evaluations + max(count, 1) * self.algorithm.batch_size
        roomy = self._roomy(self._run.state, needed, budget)
        grown = roomy is not self._run.state
        self._run = dataclasses.replace(self._run, state=roomy)
        if self.task.on_host or self._recorder is not None:
            return self._advance_by_hand(count)
        limit = np.int32(_MOST if budget is None else budget)
        if grown and count:  # compiles, which is no time of the run's
            self._run, *_ = _generations((self.algorithm, self.task, np.int32(0), limit), self._run)
        begin, before = time.perf_counter(), self.seconds
        fixed = (self.algorithm, self.task, np.int32(count), limit)
        self._run, records, done = _generations(fixed, self._run)
        done = int(done)
        rows = jax.tree.map(np.asarray, records)
        each = (time.perf_counter() - begin) / max(done, 1)
        for i in range(done):
            self.history.append(jax.tree.map(lambda leaf, i=i: leaf[i], rows), before + (i + 1) * each)
        return done

    def _advance_by_hand(self, count: int) -> int:
        """One generation, or none (which compiles), through the doors that are there to be driven by hand."""
        task, problem, recorder = self.task, program_view(self.task), self._recorder
        assert isinstance(task, AbstractTask)
        self._asked_at = time.perf_counter()
        offspring, state = _ask(self.algorithm, problem, self._run)
        if task.on_host and not count:
            seen = _loop._blank_evaluation(self.algorithm, problem)
        else:
            wanted = self.algorithm.needs_trajectory or recorder is not None
            seen = task.evaluate(offspring.genotype, self.evaluation_key, life=offspring.life, trajectory=wanted)
        seen = replicate(seen) if task.on_host else seen
        told = seen if self.algorithm.needs_trajectory else dataclasses.replace(seen, trajectory=None)
        run, feedback, record = _tell(self.algorithm, problem, self._run, offspring, state, told)
        if count:
            if recorder is not None and first_process():  # which writes
                keep = np.asarray(feedback.added if recorder.record == "elites" else feedback.valid)
                first = int(record.evaluations) - self.algorithm.batch_size  # after what `ask` has spent
                recorder.add(first, offspring.operator, seen.fitness, seen.descriptor, seen.trajectory, keep)
            self._run = run
            self.history.append(record, self.seconds + time.perf_counter() - self._asked_at)
        return min(count, 1)

    def _show_episodes(self, display: Any, done: int):
        """Shows a generation that is evaluated on the host while it goes on: so many of its episodes are done."""
        row = {"qd_score": 0.0, "coverage": 0.0, "max_fitness": -np.inf} | self.history.last()
        seconds = self.seconds + time.perf_counter() - self._asked_at
        display.show(row | {"evaluations": self.evaluations + done, "seconds": seconds})

    # Files ---------------------------------------------------------------------------------------------------

    def _saved(self) -> Saved:
        return Saved(self.algorithm, self.task, self.seed, self._run, self.history, self._parts)

    def save(self, path: str | os.PathLike):
        """Stores the run in one HDF5 file, which takes an old one's place only when it is complete."""
        if first_process() and not (self._checkpoints and self._checkpoints.save(path)):  # of several processes
            with Lock(path):
                recorder = self._recorder or self._unsaved
                if recorder:
                    self._parts = tuple(recorder.flush(self.evaluations))
                    self._unsaved = None
                save_run(path, trimmed(self._saved()))
        self._ours.add(real(path))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        algorithm: AbstractAlgorithm | None = None,
        task: AbstractProblem | None = None,
        policy: AbstractPolicy | None = None,
        allow_changes: bool = False,
        untrusted: bool | None = None,
    ) -> "Optimizer":
        """An optimizer that goes on exactly where the saved one stood.

        **Arguments:**

        - `path`: the file.
        - `algorithm`, `task`, `policy`: only where the run used one of the user's own, which a file cannot hold.
        - `allow_changes`: whether an algorithm or a task that is given may differ from the one in the file.
        - `untrusted`: whether the file is parsed by another process, with limits on memory and time; by default any
          file is that this process did not write.
        """
        optimizer = cls.__new__(cls)
        saved = load_run(path, algorithm, task, policy, allow_changes, untrusted)
        optimizer._settle(saved._replace(run=replicate(saved.run)))
        optimizer._ours.add(real(path))
        return optimizer

    def __repr__(self) -> str:
        return f"Optimizer({self.algorithm.name} on {self.task}, seed={self.seed}, {self.history})"


def _check(algorithm: Any, task: Any, seed: Any):
    if not isinstance(algorithm, AbstractAlgorithm):
        raise TypeError(f"expected an algorithm such as asciime_gym.AsciiME(); got {algorithm!r}")
    for name in _loop.operators(algorithm):
        if not re.fullmatch(_loop.OPERATOR_NAME, name):
            raise ValueError(f"operators are named with small letters, digits and _, 64 at most; got {name!r}")
    if not isinstance(task, AbstractProblem):
        raise TypeError(f"expected a task, make_task(…), or a Problem; got {task!r}")
    if int(seed) != seed or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1:,}; got {seed}")


def _centroids(given: Any, task: AbstractProblem) -> np.ndarray:
    if isinstance(given, (int, np.integer)):
        return cvt_centroids(int(given), task.descriptor_low, task.descriptor_high)
    centroids = np.asarray(given, np.float32)
    dims = task.descriptor_size
    if centroids.ndim != 2 or centroids.shape[1] != dims or not len(centroids):
        raise ValueError(f"expected centroids of shape [cells, {dims}] or their number; got shape {centroids.shape}")
    if not np.isfinite(centroids).all():
        raise ValueError("centroids must be finite")
    return centroids
