"""Recorded trajectories on the way in: one episode at a time, from the part files beside a run's file."""

import bisect
import operator
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from ._atomic import real
from ._consistent import read_operators
from ._part_file import NO_EPISODES, Index, PartFile, parts_from
from ._reading import Reader, open_file
from ._trajectories import STEPS

_OPEN = 32  # parts that are kept open: a process may not open files without end
_BLOCK = 2**16  # steps that are read together where all episodes are wanted
ADVICE = 'record them: fit(checkpoint=…, record_trajectories="elites"), or "all"'


class Episode(NamedTuple):
    """One recorded episode: what the policy saw, did and got in each of its steps."""

    observation: np.ndarray  # [steps, obs]: before each step; the one after the last step is not recorded
    action: np.ndarray  # [steps, act]
    reward: np.ndarray  # [steps]
    terminated: bool  # it ended by itself
    truncated: bool  # it was cut off
    fitness: float
    descriptor: np.ndarray
    operator: str
    evaluation: int

    @property
    def steps(self) -> int:
        return len(self.reward)

    def __repr__(self) -> str:
        place = ", ".join(f"{value:.3g}" for value in self.descriptor)
        end = "terminated" if self.terminated else "cut off"
        return (
            f"Episode(evaluation {self.evaluation:,}, {self.steps} steps, {end}, fitness {self.fitness:,.1f}, "
            f"descriptor ({place}), by {self.operator})"
        )


class Trajectories:
    """The recorded episodes of a run, in the order of their evaluations.

    A part file is opened when an episode of it is first asked for; its digest is checked then, and from then on only
    the chunks that hold the episodes asked for are read. `with load_trajectories(path) as trajectories:` closes them.
    Besides: `parts`, what the run's file lists, and `task`, `policy` and `algorithm`, what it says of them.
    """

    def __init__(self, reader: Reader):
        self.path, self.parts, self._operators = reader.path, parts_from(reader), read_operators(reader)
        self.task, self.policy, self.algorithm = (reader.record(name) for name in ("task", "policy", "algorithm"))
        self._main = real(self.path)  # parts are opened later, perhaps from another working folder
        low = self.task.get("descriptor_low")
        self._dims = len(low) if isinstance(low, list) else None
        self._widths = {"observation": self._width("obs_size"), "action": self._width("act_size")}
        self._files: OrderedDict[int, PartFile] = OrderedDict()
        self._indices: dict[int, Index] = {}

    def _width(self, name: str) -> int | None:
        size = self.policy.get(name)  # of an MLP; a policy of the user's own is known to the parts alone
        return size if isinstance(size, int) else None

    @property
    def steps(self) -> int:
        """Steps of all episodes."""
        return sum(part.steps for part in self.parts)

    @property
    def evaluations(self) -> np.ndarray:
        """The numbers of the evaluations whose episodes are recorded, in order."""
        return self.table()["evaluation"]

    def table(self) -> dict[str, np.ndarray]:
        """What is known of every episode but its steps: columns of the same length, in the order of iteration."""
        indices = [NO_EPISODES, *(self._index(place) for place in range(len(self.parts)))]
        names = ("evaluation", "length", "terminated", "fitness", "operator")
        columns = {name: np.concatenate([getattr(index, name) for index in indices]) for name in names}
        columns["operator"] = np.array(self._operators, str)[columns["operator"]]
        descriptors = [index.descriptor for index in indices[1:]] or [np.zeros((0, self._dims or 0), np.float32)]
        return columns | {"descriptor": np.concatenate(descriptors)}

    def episode(self, evaluation: SupportsIndex) -> Episode:
        """The episode of one evaluation, by its number: what `archive.evaluation` and `elite.evaluation` hold."""
        found = self._find(operator.index(evaluation))
        if found is not None:
            place, row = found
            return next(self._read(place, row, row + 1))
        if not self.parts:
            raise LookupError(f"{self.path}: no trajectories were recorded; {ADVICE}")
        raise LookupError(
            f"{self.path}: the episode of evaluation {evaluation} was not recorded. Recorded are {len(self):,} of the "
            f'evaluations {self.parts[0].first:,} to {self.parts[-1].last:,}; record_trajectories="elites" keeps only '
            "those that entered the archive. trajectories.evaluations lists them"
        )

    def of(self, elite: Any) -> Episode:
        """The episode with which an elite of this run came into the archive."""
        if not hasattr(elite, "evaluation"):
            raise TypeError(f"expected an elite, archive.best() say; got {type(elite).__name__}")
        episode = self.episode(int(elite.evaluation))
        if getattr(elite, "fitness", episode.fitness) != episode.fitness:
            raise ValueError(
                f"{self.path}: evaluation {episode.evaluation} had the fitness {episode.fitness}, the elite has "
                f"{elite.fitness}: it is another run's, or was evaluated again (then: episode(elite.evaluation))"
            )
        return episode

    def close(self):
        """Closes the part files; they are opened again when they are needed."""
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, place: int) -> PartFile:
        if place not in self._files:
            if len(self._files) >= _OPEN:
                self._files.popitem(last=False)[1].close()
            self._files[place] = PartFile(self._main, self.parts[place])
        self._files.move_to_end(place)
        return self._files[place]

    def _index(self, place: int) -> Index:
        if place not in self._indices:
            self._indices[place] = self._file(place).index(self._dims, len(self._operators))
        return self._indices[place]

    def _find(self, evaluation: int) -> tuple[int, int] | None:
        """The part that holds an evaluation's episode, and the row of its index."""
        place = bisect.bisect_right(self.parts, evaluation, key=lambda part: part.first) - 1
        if place < 0 or evaluation > self.parts[place].last:
            return None
        numbers = self._index(place).evaluation
        row = int(np.searchsorted(numbers, evaluation))
        return (place, row) if numbers[row] == evaluation else None

    def _read(self, place: int, begin: int, end: int) -> Iterator[Episode]:
        """Episodes of a part, from row `begin` of its index to before row `end`, in one reading."""
        index = self._index(place)
        ends = index.start + index.length
        origin, stop = int(index.start[begin]), int(ends[end - 1])
        steps = [self._file(place).rows(name, origin, stop, self._widths.get(name)) for name in STEPS]
        for row in range(begin, end):
            part = slice(int(index.start[row]) - origin, int(ends[row]) - origin)
            yield Episode(
                *(array[part].copy() for array in steps),  # a view would keep its neighbours in memory
                terminated=bool(index.terminated[row]),
                truncated=not index.terminated[row],
                fitness=float(index.fitness[row]),
                descriptor=index.descriptor[row].copy(),
                operator=self._operators[index.operator[row]],
                evaluation=int(index.evaluation[row]),
            )

    def __len__(self) -> int:
        return sum(part.episodes for part in self.parts)

    def __iter__(self) -> Iterator[Episode]:
        for place in range(len(self.parts)):
            start = self._index(place).start
            begin = 0
            while begin < len(start):
                end = max(begin + 1, int(np.searchsorted(start, start[begin] + _BLOCK)))
                yield from self._read(place, begin, end)
                begin = end

    def __contains__(self, evaluation: SupportsIndex) -> bool:
        return self._find(operator.index(evaluation)) is not None

    def __enter__(self) -> "Trajectories":
        return self

    def __exit__(self, *_: Any):
        self.close()

    def __repr__(self) -> str:
        if not self.parts:
            return f"Trajectories(none recorded in {self.path.name})"
        return (
            f"Trajectories({len(self):,} episodes of {self.steps:,} steps in {len(self.parts):,} parts, evaluations "
            f"{self.parts[0].first:,} to {self.parts[-1].last:,} of {self.path.name})"
        )


def load_trajectories(path: str | os.PathLike) -> Trajectories:
    """The episodes that `fit(checkpoint=path, record_trajectories=…)` recorded; `path` is the run's own file.

    The part files have to be in the same folder; they are opened when they are needed.
    """
    with open_file(path, "run") as reader:
        return Trajectories(reader)
