"""What our environments share: their spaces, their options, and what they refuse."""

from typing import Any

import jax
import numpy as np
from gymnasium import error
from gymnasium.spaces import Box
from jax.sharding import NamedSharding
from jaxtyping import Float, UInt32

from ._env_tiles import KEY_WORDS
from .locomotion import Locomotion

VELOCITY = 10.0  # Brax clips the planar robots' velocities to this in their observations
QUATERNION = 1.1  # a quaternion is no longer than 1, but Brax observes the first with its noise of 0.1 still on it
RENDER_MODES = ("rgb_array",)


def observation_space(task: Locomotion) -> Box:
    """Brax's observation, bounded where the task bounds it, with the share of time that is left at its end."""
    size, robot = task.policy.obs_size, task.robot
    high = np.full(size, np.inf, np.float32)
    if robot.brax_name == "ant":
        begin = 1 if robot.feet else 3  # after the height, and after the place where that is observed
        high[begin : begin + 4] = QUATERNION
    else:
        high[robot.observation_size // 2 : robot.observation_size] = VELOCITY
    low = -high
    low[-1], high[-1] = 0.0, 1.0
    return Box(low, high, dtype=np.float32)


def action_space(task: Locomotion) -> Box:
    """The range of the actuators."""
    return Box(-1.0, 1.0, (task.policy.act_size,), np.float32)


def host_actions(actions: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "*shape"]:
    """Actions as float32 of this shape; anything else is refused."""
    made = actions if isinstance(actions, np.ndarray) and actions.dtype == np.float32 else _numbers(actions, shape)
    if made.shape != shape:
        raise ValueError(f"actions must have the shape {shape}; got {made.shape}")
    if not np.isfinite(made).all():
        where = np.argwhere(~np.isfinite(made))[0].tolist()
        raise ValueError(f"actions must be finite numbers; got {made[tuple(where)]} at index {where}")
    return made


def _numbers(actions: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused for that
            return np.asarray(actions, np.float32)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"actions must be numbers of shape {shape}; got {actions!r:.100}") from problem


def device_actions(actions: jax.Array, shape: tuple[int, ...], place: NamedSharding) -> jax.Array:
    """The same for an array on a device, which is not looked into: that would mean to wait for it."""
    if actions.shape != shape:
        raise ValueError(f"actions must have the shape {shape}; got {actions.shape}")
    if actions.dtype != np.float32 or actions.weak_type:
        actions = jax.lax.convert_element_type(actions, np.float32)
    there = actions.sharding.is_equivalent_to(place, actions.ndim)
    return actions if there else jax.device_put(actions, place)


def draw_words(generator: np.random.Generator) -> UInt32[np.ndarray, "2"]:
    """What an environment's key is made from."""
    return generator.integers(2**32, size=KEY_WORDS, dtype=np.uint32)


def check_render_mode(render_mode: str | None):
    if render_mode not in (None, *RENDER_MODES):
        raise ValueError(f"render_mode must be None or one of {list(RENDER_MODES)}; got {render_mode!r}")


def check_rendering(render_mode: str | None):
    if render_mode is None:
        raise error.Error('nothing to render: make the environment with render_mode="rgb_array"')


def check_open(closed: bool):
    if closed:
        raise error.ClosedEnvironmentError("the environment is closed: make a new one")


def check_begun(begun: bool):
    if not begun:
        raise error.ResetNeeded("the first call must be reset()")
