"""Recorded trajectories on the way out: numbered part files beside a run's file, each written once."""

import os
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from ._atomic import real
from ._part_file import Part as Part
from ._part_file import Rows, part_name, starts
from ._part_file import parts_from as parts_from
from ._part_file import parts_to_arrays as parts_to_arrays
from ._storage import write_file
from .tasks._task import AbstractProblem

Record = Literal["elites", "all"]
MOST_BYTES = 2**30  # of memory that wait for a disk that takes none
PART_BYTES = 2**28  # of memory: more than this is worth a file, and no file holds much more
ELITES_SHARE = 0.25  # of evaluations that enter the archive: hopper_uni's first 10,000; later ones are fewer
STEPS = ("observation", "action", "reward")  # what is kept of each step


class Recorder:
    """Keeps the trajectories of chosen rows in memory until `flush` writes them as the run's next part.

    One thread may add while another flushes.

    **Arguments:**

    - `path`: the run's own file; the parts go beside it.
    - `record`: `"elites"`, the rows that entered the archive, or `"all"`.
    - `parts`: what the run's file lists already.
    """

    def __init__(self, path: str | os.PathLike, record: str, parts: Sequence[Part] = ()):
        if record not in get_args(Record):
            raise ValueError(f'record_trajectories must be "elites", "all" or None; got {record!r}')
        self._path = real(path)
        self.record = cast(Record, record)
        self._parts = list(parts)
        self._held: list[Rows] = []  # one a generation
        self.given_up = False
        self._changing, self._flushing = threading.Lock(), threading.Lock()

    @property
    def next_part(self) -> Path:
        """The file that the next flush writes."""
        return self._path.with_name(part_name(self._path, len(self._parts) + 1))

    @property
    def parts(self) -> list[Part]:
        """The parts that there are, for the run's file to list."""
        return list(self._parts)

    @property
    def pending_bytes(self) -> int:
        """Memory that is held until the next flush, which is due beyond `PART_BYTES`."""
        with self._changing:
            return sum(_bytes(rows) for rows in self._held)

    def add(
        self, evaluations_before: int, operator: Any, fitness: Any, descriptor: Any, trajectory: Any, keep: Any
    ) -> None:
        """Takes the rows of one generation that `keep` marks; rows that are not finite throughout stay out.

        **Arguments:**

        - `evaluations_before`: evaluations spent before this generation; row i is evaluation number that + i.
        - `operator`, `fitness`, `descriptor`, `trajectory`: of all rows, on the host or a device.
        - `keep`: `[batch]`; what the archive added, or for `"all"` what it found valid.
        """
        rows = _chosen(int(evaluations_before), operator, fitness, descriptor, trajectory, np.asarray(keep, bool))
        if rows is None:
            return
        first = int(rows["episodes/evaluation"][0])
        if self.pending_bytes > MOST_BYTES:
            self._give_up()
        if self.given_up:
            return
        with self._changing:
            last = self._parts[-1].last if self._parts else -1
            last = int(self._held[-1]["episodes/evaluation"][-1]) if self._held else last
            if first <= last:
                raise ValueError(
                    f"trajectories are recorded in the order of their evaluations, each once: got {first} after {last}"
                )
            self._held.append(rows)

    def _give_up(self):
        """Lets go of what could not be written for long: memory is for the run."""
        with self._changing:
            lost, self._held = sum(len(rows["episodes/length"]) for rows in self._held), []
            self.given_up = True
        warnings.warn(
            f"{self._path}: no trajectories are recorded any more, and {lost:,} episodes are lost: they could not be "
            f"written, and take over {size_text(MOST_BYTES)} of memory. The run goes on, and what was written stays",
            RuntimeWarning,
            stacklevel=3,
        )

    def flush(self, before: int | None = None) -> list[Part]:
        """Writes what is held as the next part, or parts where it is much; after an `OSError` it is still held.

        A part of that number that a killed run left, and that no file lists, is written over.

        **Arguments:**

        - `before`: leave out evaluations from this number on, for a checkpoint of the run as it stood then.

        **Returns:** the parts that such a checkpoint lists.
        """
        with self._flushing:
            while batch := self._batch(before):
                self._write(batch)
            return [part for part in self._parts if before is None or part.last < before]

    def _batch(self, before: int | None) -> list[Rows]:
        """The oldest generations held, as many as make one part."""
        batch, size = [], 0
        with self._changing:
            for rows in self._held:
                size += _bytes(rows)
                too_late = before is not None and rows["episodes/evaluation"][-1] >= before
                if too_late or (batch and size > PART_BYTES):
                    break
                batch.append(rows)
        return batch

    def _write(self, batch: list[Rows]):
        arrays = {name: np.concatenate([rows[name] for rows in batch]) for name in batch[0]}
        evaluation, length = arrays["episodes/evaluation"], arrays["episodes/length"]
        arrays["episodes/start"] = starts(length)
        name = part_name(self._path, len(self._parts) + 1)
        target = self._path.with_name(name)
        try:
            digest = write_file(target, "trajectories", {"record": self.record}, arrays, resizable=True)
        except RuntimeError as error:  # what h5py makes of a disk that is full when it closes a file
            raise OSError(f"{target} could not be written ({error})") from error
        steps = int(length.sum(dtype=np.int64))
        with self._changing:
            self._parts.append(Part(name, digest, len(length), steps, int(evaluation[0]), int(evaluation[-1])))
            del self._held[: len(batch)]

    def __repr__(self) -> str:
        return f"Recorder({self.record}, {len(self._parts)} parts, {size_text(self.pending_bytes)} held)"


def make_recorder(path: str | os.PathLike | None, record: Record | None, parts: Sequence[Part]) -> Recorder | None:
    """A recorder, if trajectories are to be recorded."""
    if record is None:
        return None
    if path is None:
        raise ValueError("record_trajectories needs a checkpoint: its files are written beside that one; checkpoint=…")
    return Recorder(path, record, parts)


class Estimate(NamedTuple):
    """How much recording will take at most, before compression."""

    bytes: int
    text: str


def estimate(
    problem: AbstractProblem, record: str, evaluations: int | None, elites_share: float = ELITES_SHARE
) -> Estimate:
    """What recording that many evaluations takes on the disk, if every episode lasts as long as it may.

    Without a number of evaluations, what one episode takes.
    """
    policy = problem.policy
    step = 4 * (policy.obs_size + policy.act_size + 1)
    each = step * problem.episode_length + 29 + 4 * problem.descriptor_size  # its row of the index
    text = f"trajectories of {record}: up to {size_text(each)} an episode"
    if evaluations is None:
        return Estimate(each, f"{text}, less where it ends early")
    share = elites_share if record == "elites" else 1.0
    total = round(each * evaluations * share)
    assumed = f" if {100 * share:.0f} % of them enter the archive" if record == "elites" else ""
    text += f", {size_text(total)} for {evaluations:,} evaluations{assumed}; less where episodes end early"
    return Estimate(total, text)


def size_text(size: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB" if size < 1000 else f"{size:,.0f} GB"


def _bytes(rows: Rows) -> int:
    return sum(array.nbytes for array in rows.values())


def _chosen(
    before: int, operator: Any, fitness: Any, descriptor: Any, trajectory: Any, keep: np.ndarray
) -> Rows | None:
    """The alive steps and the index of the rows to keep, copied to the host; None where there are none."""
    alive = np.asarray(trajectory.alive, bool)
    fitness, descriptor = np.asarray(fitness, np.float32), np.asarray(descriptor, np.float32)
    keep = keep & alive.any(axis=1) & np.isfinite(fitness) & np.isfinite(descriptor).all(axis=1)
    fields = {name: np.asarray(getattr(trajectory, name), np.float32) for name in STEPS}
    rows = np.flatnonzero(keep)
    for array in fields.values():
        rows = rows[[np.isfinite(array[row][alive[row]]).all() for row in rows]] if len(rows) else rows
    if not len(rows):
        return None
    keep = np.zeros_like(keep)
    keep[rows] = True
    taken = alive & keep[:, None]  # a mask copies the steps that count, by row and time, and nothing else
    terminated = np.any(np.asarray(trajectory.terminated, bool) & taken, axis=1)
    return {
        **{f"steps/{name}": array[taken] for name, array in fields.items()},
        "episodes/evaluation": before + rows.astype(np.int64),
        "episodes/length": taken[rows].sum(axis=1, dtype=np.int32),
        "episodes/terminated": terminated[rows].astype(np.uint8),
        "episodes/fitness": fitness[rows],
        "episodes/descriptor": descriptor[rows],
        "episodes/operator": np.asarray(operator)[rows].astype(np.int32),
    }
