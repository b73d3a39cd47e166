"""Gymnasium's spaces as our policies see them: flat observations in, flat actions out, scaled to their bounds."""

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float

_OBSERVATION = "gymnasium.wrappers.FlattenObservation makes one of a Dict or a Tuple of boxes"
_ACTION = "an ActionWrapper of your own can turn a Box into the actions that the environment takes"


@dataclasses.dataclass(frozen=True, eq=False)
class Scaling:
    """What becomes of a policy's output on its way into the environment.

    A dimension with two finite bounds gets `[-1, 1]` scaled to them, and what is beyond clipped; one with a single
    finite bound is clipped there; one with none is passed on.
    """

    space: spaces.Box

    def __call__(self, action: Float[np.ndarray, "rows act"]) -> np.ndarray:
        low, high = (np.asarray(bound, np.float64).ravel() for bound in (self.space.low, self.space.high))
        bounded = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):  # infinite bounds, which are not used
            middle, half = np.where(bounded, (low + high) / 2, 0.0), np.where(bounded, (high - low) / 2, 1.0)
        unit = np.where(bounded, np.clip(action, -1.0, 1.0), action)
        scaled = np.clip(middle + half * unit, low, high)
        return scaled.astype(self.space.dtype).reshape(-1, *self.space.shape)


def observation_size(space: Any, name: str) -> int:
    """Numbers in an observation, or a `ValueError` that says why it cannot be one of a policy's."""
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"{name}: a policy needs observations that are arrays of numbers, a Box; got {space}. {_OBSERVATION}"
        )
    return _size(space, name, "observation")


def action_size(space: Any, name: str) -> int:
    """Numbers in an action, or a `ValueError` that says why a policy cannot give one."""
    if not isinstance(space, spaces.Box):
        raise ValueError(f"{name}: a policy's actions are continuous, a Box of floats; got {space}. {_ACTION}")
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"{name}: a policy's actions are continuous; got a Box of {space.dtype}. {_ACTION}")
    return _size(space, name, "action")


def _size(space: spaces.Box, name: str, what: str) -> int:
    size = int(np.prod(space.shape))
    if not size:
        raise ValueError(f"{name}: an {what} of shape {space.shape} holds no number")
    return size
