"""Where a Gymnasium task gets its environments from: an id, a function, or a vector environment."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from .._process import cores
from ._pools import Borrowed, Local, Plan, Pool, Workers
from ._scaling import Scaling

ENVS_PER_CORE = 8  # so that a worker's message carries several steps
# Their `reset` keeps something of the episode before: the same seed does not give the same episode.
KEEP_SOMETHING = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3")
POOLS = {"async": Workers, "sync": Local}


class Source(NamedTuple):
    """What is known of the environments before any of them plays."""

    name: str
    vectorization: str
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    limit: int | None  # steps after which they cut an episode off by themselves
    num_envs: int
    open: Callable[[tuple[str, ...] | None], Pool]  # a function of the info entries that are wanted; `None`: all


def source(env: Any, vectorization: Any, num_envs: int | None, reuse: bool | None) -> Source:
    """The environments that a user has named, or an error that says what would be one."""
    if not isinstance(env, str) and not callable(env):
        raise TypeError(
            f'expected the id of an environment, "Hopper-v5" say, or a function that makes one; got {env!r}'
        )
    if isinstance(vectorization, VectorEnv):
        return _borrowed(env, vectorization, num_envs, reuse)
    if vectorization not in POOLS:
        raise ValueError(
            f'vectorization must be "async", "sync" or a gymnasium.vector.VectorEnv; got {vectorization!r}'
        )
    made = gymnasium.make(env, disable_env_checker=True) if isinstance(env, str) else env()
    if not isinstance(made, gymnasium.Env):
        raise TypeError(f"the function given must return a gymnasium.Env; it returned {made!r}")
    spec = made.spec
    # The specification, rather than its name, for workers in which nobody has registered it.
    make: Any = (lambda: gymnasium.make(spec, disable_env_checker=True)) if isinstance(env, str) and spec else env
    if num_envs is None:
        num_envs = ENVS_PER_CORE * (cores() if vectorization == "async" else 1)
    if int(num_envs) != num_envs or num_envs < 1:
        raise ValueError(f"num_envs must be a whole number, at least 1; got {num_envs}")
    name = spec.id if spec else getattr(env, "__name__", type(env).__name__)
    again = name not in KEEP_SOMETHING if reuse is None else reuse
    made.close()
    return Source(
        name=name,
        vectorization=vectorization,
        observation_space=made.observation_space,
        action_space=made.action_space,
        limit=spec and spec.max_episode_steps,
        num_envs=int(num_envs),
        open=lambda info_names: POOLS[vectorization](Plan(name, make, int(num_envs), again, info_names)),
    )


def _borrowed(env: Any, venv: VectorEnv, num_envs: int | None, reuse: bool | None) -> Source:
    if venv.metadata.get("autoreset_mode") != AutoresetMode.DISABLED:
        raise ValueError(
            f"{venv} resets by itself, with seeds of its own choice: make it with "
            'gymnasium.make_vec(…, vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED})'
        )
    if num_envs is not None and num_envs != venv.num_envs:
        raise ValueError(f"{venv} has {venv.num_envs} environments; num_envs={num_envs} cannot change that")
    if reuse is False:
        raise ValueError(f'{venv} keeps its environments: reuse=False needs vectorization="async" or "sync"')
    action_space: Any = venv.single_action_space
    idle = lambda: Scaling(action_space)(np.zeros((1, int(np.prod(action_space.shape))), np.float32))[0]
    return Source(
        name=env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__),
        vectorization=type(venv).__name__,
        observation_space=venv.single_observation_space,
        action_space=action_space,
        limit=venv.spec and venv.spec.max_episode_steps,
        num_envs=venv.num_envs,
        open=lambda info_names: Borrowed(venv, idle()),
    )
