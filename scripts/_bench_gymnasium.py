"""One side of the benchmark of our Gymnasium environments: a process that steps when it is told to.

    python scripts/_bench_gymnasium.py WAY DEVICES CORES

WAY is `ours`, or `theirs` for Gymnasium's own MuJoCo robots in processes (`AsyncVectorEnv`); JAX is not imported for
those. A request is a line of JSON on standard input, the answer a line that begins with `@`, as of `_bench_worker.py`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ACTIONS = 64  # different ones, over and over
THEIRS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "ant": "Ant-v5"}
OPEN: list[Any] = []
OURS = {"hopper": "hopper_uni", "walker2d": "walker2d_uni", "ant": "ant_uni"}


def random_actions(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (ACTIONS, count, size)).astype(np.float32)


def theirs(robot: str, num_envs: int, steps: int) -> Callable[[], Any]:
    """Gymnasium's own, one process for each."""
    import gymnasium

    venv = gymnasium.make_vec(THEIRS[robot], num_envs=num_envs, vectorization_mode="async")
    OPEN.append(venv)
    return stepping(venv, random_actions(num_envs, venv.single_action_space.shape[0]), steps)  # type: ignore[index]


def environment(robot: str, num_envs: int, steps: int, array_type: str = "numpy") -> Callable[[], Any]:
    """Our vector environment, as users step it."""
    import gymnasium
    import jax

    from asciime_gym.tasks._registration import IDS

    venv = gymnasium.make_vec(IDS[OURS[robot]], num_envs=num_envs, array_type=array_type)
    actions: Any = random_actions(num_envs, venv.unwrapped.task.policy.act_size)  # type: ignore[attr-defined]
    if array_type == "jax":
        actions = [jax.device_put(action) for action in actions]
    return stepping(venv, actions, steps)


def end() -> Callable[[], Any]:
    """Ends the processes, which complain if they are left."""
    return lambda: [OPEN.pop().close() for _ in range(len(OPEN))]


def stepping(venv: Any, actions: Any, steps: int) -> Callable[[], Any]:
    venv.reset(seed=0)

    def run() -> Any:
        outcome = None
        for t in range(steps):
            outcome = venv.step(actions[t % ACTIONS])
        return outcome

    return run


def bare(robot: str, num_envs: int, steps: int) -> Callable[[], Any]:
    """The physics alone: a jitted step of as many tiles on the same devices, with states as roll-outs have them.

    It begins nothing anew and tells nothing; actions are on the device already.
    """
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    import asciime_gym as ag
    from asciime_gym._compile import OPTIONS
    from asciime_gym.tasks._env_programs import AXIS, programs
    from asciime_gym.tasks._env_tiles import KEY_WORDS
    from asciime_gym.tasks.lanes import lanes
    from asciime_gym.tasks.rollout import TILE

    task, every = ag.make_task(OURS[robot]), PartitionSpec(AXIS)
    made = programs(task, num_envs, tuple(jax.local_devices()))
    words = np.random.default_rng(0).integers(2**32, size=(num_envs, KEY_WORDS), dtype=np.uint32)
    tiles, _ = made.reset(made.empty(), words, np.ones(num_envs, bool), np.ones(num_envs, bool))
    mesh, wide = made.everywhere.mesh, lanes(task.step)
    on_device = lambda state, actions: jax.lax.map(lambda tile: wide(*tile), (state, actions))
    if mesh.size > 1:
        on_device = jax.shard_map(on_device, mesh=mesh, in_specs=every, out_specs=every, check_vma=False)
    program = jax.jit(on_device, donate_argnums=0, compiler_options=OPTIONS.get(jax.default_backend()))
    there = NamedSharding(mesh, every)
    place = lambda array: jax.device_put(jnp.moveaxis(array.reshape(-1, TILE, array.shape[-1]), 1, -1), there)
    actions = [place(array) for array in random_actions(tiles.used.size, task.policy.act_size)]
    state = jax.jit(jax.vmap(made.unflat), out_shardings=there)(tiles.state)

    def run() -> Any:
        nonlocal state
        for t in range(steps):
            state = jax.block_until_ready(program(state, actions[t % ACTIONS]))
        return state

    return run


CASES: dict[str, Any] = {"environment": environment, "bare": bare, "theirs": theirs, "end": end}


def main(way: str, devices: int, cores: int):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    wait: Callable[[Any], Any] = lambda result: result
    if way == "ours":
        import jax

        from asciime_gym._process import keep_programs

        jax.config.update("jax_num_cpu_devices", devices)
        keep_programs()
        wait = jax.block_until_ready
    ready: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        begin = time.perf_counter()
        is_new = line not in ready
        if is_new:
            ready[line] = CASES[request.pop("case")](**request)
        begin = begin if is_new else time.perf_counter()
        wait(ready[line]())
        answer = {"first" if is_new else "seconds": time.perf_counter() - begin}
        print("@" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
