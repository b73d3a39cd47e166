"""What a user hands to `tell`, checked and cast before anything changes."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .tasks._task import AbstractProblem, Evaluation, Trajectory

_FIELDS = ("observation", "action", "reward", "alive", "terminated")


def evaluation_of(
    problem: AbstractProblem, batch: int, fitness: Any, descriptor: Any, trajectory: Any, steps: Any
) -> Evaluation:
    """The evaluation that was told, or a `ValueError` that says what was expected and what came."""
    time = problem.episode_length
    fitness = _real("fitness", fitness, (batch,))
    descriptor = _real("descriptor", descriptor, (batch, problem.descriptor_size))
    told = None if trajectory is None else _trajectory(problem, batch, trajectory)
    if steps is not None:
        steps = _array("steps", steps, (batch,))
        if steps.dtype.kind not in "iu" or (steps < 0).any() or (steps > np.iinfo(np.int32).max // batch).any():
            raise ValueError("tell: steps must be whole numbers of at least 0 that count each row's environment steps")
    elif told is not None:
        steps = np.asarray(told.alive).sum(axis=1)
    else:
        steps = np.full(batch, time)
    count = jnp.asarray(np.asarray(steps).astype(np.int32))
    return Evaluation(jnp.asarray(fitness), jnp.asarray(descriptor), told, count)


def _trajectory(problem: AbstractProblem, batch: int, given: Any) -> Trajectory:
    parts = given if isinstance(given, Mapping) else {n: getattr(given, n, None) for n in _FIELDS}
    missing = [name for name in _FIELDS[:4] if parts.get(name) is None]
    if missing:
        raise ValueError(
            f"tell: a trajectory needs {', '.join(_FIELDS[:4])} (and terminated, where episodes can end early), as an "
            f"asciime_gym.Trajectory or a mapping; missing: {', '.join(missing)}"
        )
    rows = (batch, problem.episode_length)
    alive = _flags("trajectory alive", parts["alive"], rows)
    if not alive[:, 0].all() or (alive[:, 1:] & ~alive[:, :-1]).any():
        raise ValueError(
            "tell: trajectory alive must be True from the first step to the one that ends the episode, and False after"
        )
    if parts.get("terminated") is None:
        early = alive & ~np.pad(alive[:, 1:], ((0, 0), (0, 1)), constant_values=True)
        terminated = early  # an episode that stops before the last step was ended, not cut off
    else:
        terminated = _flags("trajectory terminated", parts["terminated"], rows) & alive
    observation = _real("trajectory observation", parts["observation"], (*rows, problem.policy.obs_size))
    action = _real("trajectory action", parts["action"], (*rows, problem.policy.act_size))
    reward = _real("trajectory reward", parts["reward"], rows)
    # What stands after an episode's end is not part of it, whatever the evaluator left there.
    return Trajectory(
        observation=jnp.asarray(np.where(alive[..., None], observation, 0)),
        action=jnp.asarray(np.where(alive[..., None], action, 0)),
        reward=jnp.asarray(np.where(alive, reward, 0)),
        alive=jnp.asarray(alive),
        terminated=jnp.asarray(terminated),
    )


def _real(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = _array(name, value, shape)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise ValueError(f"tell: {name} must hold real numbers; got {array.dtype}")
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused as such
        return array.astype(np.float32)


def _flags(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = _array(name, value, shape)
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise ValueError(f"tell: {name} must hold booleans (or zeros and ones); got {array.dtype}")
    return array.astype(bool)


def _array(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise ValueError(f"tell: {name} must be an array of shape {shape}; got {type(value).__name__}") from error
    if array.shape != shape:
        raise ValueError(f"tell: expected {name} of shape {shape}; got {array.shape}")
    return array
