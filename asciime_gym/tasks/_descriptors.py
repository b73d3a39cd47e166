"""What an episode was like, as a few numbers: descriptors for environments that bring none."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


class Info(Mapping):
    """The infos of an episode's steps: each entry as one array with a leading axis of time, made when asked for."""

    def __init__(self, steps: Sequence[dict[str, Any]]):
        self._steps = steps

    def __getitem__(self, name: str) -> np.ndarray:
        missing = [t for t, step in enumerate(self._steps) if name not in step]
        if missing:
            raise KeyError(
                f"{name!r} is not in the info of {len(missing)} of {len(self._steps)} steps (the first: {missing[0]}), "
                f"which has {sorted(self._steps[missing[0]])}; a wrapper round the environment can put it there"
            )
        return np.stack([np.asarray(step[name]) for step in self._steps])

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps[0])

    def __len__(self) -> int:
        return len(self._steps[0])


@dataclasses.dataclass(frozen=True, eq=False)
class Played:
    """One episode as it was played, alive steps only: what a descriptor is made of."""

    observation: Float[np.ndarray, "time obs"]  # before each step: what the policy saw
    next_observation: Float[np.ndarray, "time obs"]  # after each step
    action: Float[np.ndarray, "time act"]  # as the policy gave it, before it was scaled
    reward: Float[np.ndarray, " time"]
    terminated: bool  # it ended by itself; else it was cut off
    info: Mapping[str, np.ndarray]  # each entry `[time, …]`

    @property
    def steps(self) -> int:
        return len(self.reward)


Descriptor = Callable[[Played], Any]


@dataclasses.dataclass(frozen=True)
class FinalObservation:
    """The values that chosen entries of the observation have after the last step."""

    entries: tuple[int, ...]
    info_names = ()  # of the info entries that it looks at

    def __init__(self, *entries: int):
        object.__setattr__(self, "entries", entries)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"final observation[{i}]" for i in self.entries)

    def __call__(self, played: Played) -> np.ndarray:
        return played.next_observation[-1, list(self.entries)]


@dataclasses.dataclass(frozen=True)
class MeanPredicate:
    """The share of steps on which something holds.

    **Arguments:**

    - `predicate`: a function of a whole episode (`Played`) that says of every step whether it holds: `[time]`, or
      `[time, dims]` for several at once.
    - `names`: what each dimension is called.
    """

    predicate: Callable[[Played], Any]
    names: tuple[str, ...] | None = None

    def __call__(self, played: Played) -> np.ndarray:
        holds = np.asarray(self.predicate(played))
        if holds.ndim not in (1, 2) or len(holds) != played.steps:
            raise ValueError(
                f"MeanPredicate: for an episode of {played.steps} steps the predicate must return an array "
                f"[{played.steps}] or [{played.steps}, dims]; got shape {holds.shape}"
            )
        return np.atleast_1d(holds.mean(axis=0, dtype=np.float64))


@dataclasses.dataclass(frozen=True)
class MeanInfo:
    """Entries of the info, numbers or arrays, averaged over the steps."""

    entries: tuple[str, ...]

    def __init__(self, *entries: str):
        object.__setattr__(self, "entries", entries)

    @property
    def info_names(self) -> tuple[str, ...]:
        return self.entries

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"mean {name}" for name in self.entries)

    def __call__(self, played: Played) -> np.ndarray:
        means = [played.info[name].mean(axis=0, dtype=np.float64) for name in self.entries]
        return np.concatenate([np.ravel(mean) for mean in means])
