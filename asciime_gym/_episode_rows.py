"""Evaluations of single individuals, put together to those of a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

STEPS = ("observation", "action", "reward")
EXPECTED = (
    "the function must return (fitness, descriptor), or (fitness, descriptor, trajectory) with a mapping of "
    "observation [steps, obs], action [steps, act], reward [steps] and, if it ended by itself, terminated: True"
)


class Rows:
    """Remembers what an evaluation looks like, so that one which failed can be told as a row that is not finite."""

    def __init__(self, episode_length: int | None):
        self._length = episode_length
        self._like: tuple[int, dict[str, tuple[int, ...]] | None] | None = None  # dims; shapes of a step

    def put_together(self, results: dict[int, Any], count: int, refused: Sequence[Any]) -> tuple[Any, ...]:
        """Fitness, descriptor and perhaps trajectory, as `tell` takes them; rows without a result are not finite."""
        checked = {row: _checked(result) for row, result in results.items()}
        if checked:
            fitness, descriptor, steps = next(iter(checked.values()))
            shapes = None if steps is None else {name: steps[name].shape[1:] for name in STEPS}
            self._like = len(descriptor), shapes
        if self._like is None:
            first = refused[0] if refused else None
            raise RuntimeError(
                f"none of the {count} individuals could be evaluated: there is nothing to tell. Row "
                f"{first and first.row}: {first and first.error!r}"
            ) from (first and first.error)
        dims, shapes = self._like
        fitness, descriptor = np.full(count, np.nan, np.float32), np.full((count, dims), np.nan, np.float32)
        for row, (value, place, steps) in checked.items():
            if len(place) != dims or (steps is None) != (shapes is None):
                raise ValueError(f"row {row} does not look like the others: {EXPECTED}, the same for all")
            with np.errstate(over="ignore"):
                fitness[row], descriptor[row] = value, place
        if shapes is None:
            return fitness, descriptor
        return fitness, descriptor, self._trajectory(checked, count, shapes)

    def _trajectory(self, checked: dict[int, Any], count: int, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
        lengths = {len(steps["reward"]) for _, _, steps in checked.values()}
        length = self._length or max(lengths, default=1)
        if (self._length is None and len(lengths) > 1) or max(lengths, default=1) > length:
            raise ValueError(
                f"episodes of {min(lengths)} to {max(lengths)} steps: say how long they may be, "
                "map_evaluator(…, episode_length=…), as the problem does"
            )
        told = {name: np.zeros((count, length, *shape), np.float32) for name, shape in shapes.items()}
        told |= {name: np.zeros((count, length), bool) for name in ("alive", "terminated")}
        told["alive"][:, 0] = True  # also of a row that is refused: an episode has a first step
        for row, (_, _, steps) in checked.items():
            end = len(steps["reward"])
            for name in STEPS:
                if steps[name].shape != (end, *shapes[name]):
                    raise ValueError(f"row {row}: {name} has shape {steps[name].shape}; {EXPECTED}")
                told[name][row, :end] = steps[name]
            told["alive"][row, :end] = True
            told["terminated"][row, end - 1] = steps["terminated"]
        return told


def _checked(result: Any) -> tuple[float, np.ndarray, dict[str, Any] | None]:
    """A single evaluation as numbers, or a `ValueError` that says what was expected."""
    if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
        raise ValueError(f"{EXPECTED}; got {result!r}")
    fitness, descriptor = np.asarray(result[0]), np.atleast_1d(np.asarray(result[1]))
    if fitness.size != 1 or descriptor.ndim != 1 or not all(x.dtype.kind in "fiub" for x in (fitness, descriptor)):
        raise ValueError(f"{EXPECTED}; got fitness {result[0]!r}, descriptor {result[1]!r}")
    steps = result[2] if len(result) == 3 else None
    if steps is None:
        return fitness.item(), descriptor, None
    missing = [name for name in STEPS if not isinstance(steps, Mapping) or name not in steps]
    if missing:
        raise ValueError(f"{EXPECTED}; in the trajectory there is no {', '.join(missing)}")
    alive = np.asarray(steps.get("alive", np.ones(len(steps["reward"])))).astype(bool)
    path = {name: np.asarray(steps[name])[: alive.sum()] for name in STEPS}
    if path["reward"].ndim != 1 or not len(path["reward"]):
        raise ValueError(f"{EXPECTED}; got rewards of shape {path['reward'].shape}")
    return fitness.item(), descriptor, path | {"terminated": bool(np.any(steps.get("terminated", False)))}
