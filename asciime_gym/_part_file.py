"""Part files of recorded trajectories: how a run's file lists them, and how one is read."""

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ._consistent import check_finite
from ._reading import Reader, open_file
from ._storage import FileError

Rows = dict[str, np.ndarray]  # datasets of a part, by name
_NAME = re.compile(r"[^/\\\x00]*\.trajectories-([0-9]{6,12})(\.[^/\\.\x00]*)?")
_DIGEST = re.compile("[0-9a-f]{64}")
_COUNTS = ("episodes", "steps", "first", "last")


class Part(NamedTuple):
    """One part file, as the run's file lists it."""

    name: str  # of the file, in the same folder
    digest: str
    episodes: int
    steps: int
    first: int  # evaluation in it
    last: int


def part_name(path: str | os.PathLike, number: int) -> str:
    """The file name of a run's part: `hopper.h5` has `hopper.trajectories-000001.h5`."""
    path = Path(path)
    return f"{path.stem}.trajectories-{number:06d}{path.suffix}"


def parts_to_arrays(parts: Sequence[Part]) -> Rows:
    """The list of parts as a run's file holds it; of no parts, nothing."""
    if not parts:
        return {}
    arrays: Rows = {}
    for name in ("name", "digest"):
        arrays[f"trajectories/{name}"] = np.array([os.fsencode(getattr(part, name)) for part in parts], np.bytes_)
    for name in _COUNTS:
        arrays[f"trajectories/{name}"] = np.array([getattr(part, name) for part in parts], np.int64)
    return arrays


def parts_from(reader: Reader) -> list[Part]:
    """The list of parts in a run's file, refused unless it is one that a `Recorder` could have made."""
    if not reader.has("trajectories"):
        return []
    names = reader.array("trajectories/name", (None,), np.bytes_)
    digests = reader.array("trajectories/digest", names.shape, np.bytes_)
    texts = [[os.fsdecode(item) for item in column.tolist()] for column in (names, digests)]
    counts = [reader.array(f"trajectories/{name}", names.shape, np.int64).tolist() for name in _COUNTS]
    parts = [Part(*row) for row in zip(*texts, *counts, strict=True)]
    last = -1
    for number, part in enumerate(parts, start=1):
        if fault := _fault(part, number, last):
            raise reader.wrong(f"row {number - 1} of trajectories {fault}; use an earlier copy of the file")
        last = part.last
    return parts


def _fault(part: Part, number: int, last: int) -> str | None:
    """What is wrong with the part of this number, given the last evaluation of the one before."""
    name = _NAME.fullmatch(part.name)
    if not name or int(name[1]) != number:
        return f"names {part.name[:80]!r}: not a plain file name with .trajectories-{number:06d} in it"
    if not _DIGEST.fullmatch(part.digest):
        return f"has the digest {part.digest[:80]!r}: not 64 hexadecimal digits"
    if not (1 <= part.episodes <= part.steps and last < part.first and part.episodes <= part.last - part.first + 1):
        return f"has counts that fit neither each other nor the row before: {part._asdict()}"
    return None


def starts(length: np.ndarray) -> np.ndarray:
    """Where each of several episodes of these lengths begins, one after the other."""
    ends = np.cumsum(length, dtype=np.int64)
    return ends - length


class Index(NamedTuple):
    """What a part says of its episodes, a row each."""

    evaluation: np.ndarray
    start: np.ndarray
    length: np.ndarray
    terminated: np.ndarray
    fitness: np.ndarray
    descriptor: np.ndarray
    operator: np.ndarray


NO_EPISODES = Index(*(np.zeros(0, kind) for kind in ("i8", "i8", "i4", "?", "f4", "f4", "i4")))


class PartFile:
    """One part, open: its digest was checked, and it is the one that the run's file lists."""

    def __init__(self, main: Path, part: Part):
        self._main, self._part = main, part
        self._stack = contextlib.ExitStack()
        self._reader = self._opened()

    def _opened(self) -> Reader:
        path = self._main.with_name(self._part.name)
        if not path.exists():
            raise FileError(
                f"{path}: there is no such file, and {self._main.name} has trajectories in it; move and copy a run's "
                "part files together with it"
            )
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(open_file(path, "trajectories"))
            if reader.digest != self._part.digest:
                raise reader.wrong(
                    f"not the part that {self._main.name} lists, which has another digest: it was written over by "
                    "another run, or comes from one; use the copy that belongs to this run"
                )
            self._stack = stack.pop_all()
        return reader

    def close(self):
        self._stack.close()

    def rows(self, name: str, start: int, stop: int, width: int | None) -> np.ndarray:
        """Steps from `start` to before `stop`."""
        shape = (self._part.steps,) if name == "reward" else (self._part.steps, width)
        array = self._reader.rows(f"steps/{name}", start, stop, shape, np.float32)
        check_finite(self._reader, f"steps/{name}", array)
        return array

    def index(self, dims: int | None, operators: int) -> Index:
        """The index, checked."""
        part, reader = self._part, self._reader
        kinds = zip(Index._fields, NO_EPISODES, strict=True)
        shapes = {"descriptor": (part.episodes, dims)}
        index = Index(
            *(reader.array(f"episodes/{name}", shapes.get(name, (part.episodes,)), kind.dtype) for name, kind in kinds)
        )
        for name in ("fitness", "descriptor"):
            check_finite(reader, f"episodes/{name}", getattr(index, name))
        evaluation, length, made_by = index.evaluation, index.length, index.operator
        if (evaluation[0], evaluation[-1]) != (part.first, part.last) or (evaluation[1:] <= evaluation[:-1]).any():
            raise reader.wrong(f"episodes/evaluation should go up from {part.first} to {part.last}")
        if (length < 1).any() or length.sum(dtype=np.int64) != part.steps or (index.start != starts(length)).any():
            raise reader.wrong(f"episodes/start and length do not share out the {part.steps} steps")
        if (made_by < 0).any() or (made_by >= operators).any():
            raise reader.wrong(f"episodes/operator should be below {operators}, the number of operators")
        return index
