"""One side of the benchmark: a process that runs cases when it is told to, and says how long each took.

    python scripts/_bench_worker.py WAY DEVICES CORES [FIRST]

WAY is `ours`, or `plain` for the straightforward way: one device, `jax.vmap` over the individuals and over
`env.step`, always to the end of the episode. A request is a line of JSON on standard input; the answer is a line
that begins with `@`. FIRST is the number of the first of its cores, if not 0.
"""

import dataclasses
import json
import os
import resource
import sys
import time
from functools import cache
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from _suited import SUITED

import asciime_gym as ag
from asciime_gym import _dense, _loop
from asciime_gym._compile import compiled
from asciime_gym._optimizer import _generations
from asciime_gym._process import keep_memory, keep_programs
from asciime_gym._spread import replicate, spread
from asciime_gym.tasks.lanes import lanes
from asciime_gym.tasks.locomotion import Locomotion
from asciime_gym.tasks.rollout import TILE

LEARNED = 20  # generations before one is timed
FEW = {"pga_me": 3, "dcrl_me": 3, "ppga": 3}  # of those that take long, most of it for training networks
MATRIX = 1024
# Seconds: what takes less is done twice at each turn, and timed the second time. A core that had nothing to do while
# others were timed is slow at first, on a virtual machine most of all, and caches are cold; in a run that soon passes.
SHORT = 1.0
ROBOTS = {"hopper": "hopper_uni", "walker2d": "walker2d_uni", "ant": "ant_uni"}


class Plain(Locomotion):
    """A task whose episodes are evaluated the straightforward way."""

    def episodes(self, genotypes, keys, *, life=None, trajectory=True):
        def episode(genotype, key):
            network = self.policy.prepare(genotype)

            def step(carry, _):
                state, alive = carry
                action = self.policy.apply(network, state.observation)
                after = self.step(state, action)
                row = (state.observation, action, after.reward, alive, after.terminated)
                row = jax.tree.map(lambda x: jnp.where(alive, x, jnp.zeros_like(x)), row)
                return (after, alive & ~after.terminated), (row, jnp.where(alive, after.descriptor, 0.0))

            begin = (self.reset(key), jnp.array(True))
            _, (path, descriptors) = jax.lax.scan(step, begin, None, self.episode_length)
            path = ag.Trajectory(*path)
            steps = path.alive.sum(dtype=jnp.int32)
            mean = descriptors.sum(0) / steps
            descriptor = mean if self.episode_descriptor == "mean" else descriptors[steps - 1]
            return ag.Evaluation(path.reward.sum(), descriptor, path if trajectory else None, steps)

        return jax.vmap(episode)(genotypes, keys)


@cache
def task_of(way: str, name: str, policy) -> Locomotion:
    task = ag.make_task(name, policy=policy)
    if way == "plain":
        fields: dict[str, Any] = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
        return Plain(**{**fields, "lanes": False})
    return task


def compiler(way: str) -> Any:
    """The straightforward way compiles with JAX's own defaults."""
    return eqx.filter_jit if way == "plain" else compiled


@eqx.filter_jit(donate="all-except-first")
def plain_generations(fixed: tuple, run: Any) -> Any:
    algorithm, task, count, budget = fixed
    return _loop.generations(algorithm, task, count, budget, run)


# The cases: functions of the way and a request that return a program to be timed, what it does, and what it uses up


def physics(way: str, robot: str, batch: int, steps: int):
    """Steps of the environment, nobody dies."""
    task = task_of(way, ROBOTS[robot], ag.MLP)
    keys = jax.random.split(jax.random.key(0), batch)
    actions = jax.random.uniform(jax.random.key(1), (steps, task.policy.act_size), minval=-1.0)

    def play(step, state):
        return jax.lax.scan(lambda state, action: (step(state, action), None), state, actions)[0].reward

    def plain(keys):
        one = lambda state, action: jax.vmap(task.step, (0, None))(state, action)
        return play(one, jax.vmap(task.reset)(keys))

    def tile(keys):
        state = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), jax.lax.map(task.reset, keys))
        wide = lanes(task.step)
        return play(lambda state, action: wide(state, jnp.tile(action[:, None], TILE)), state)

    def ours(keys):
        tiles = lambda keys, _: jax.lax.map(tile, keys)
        return spread(tiles, keys.reshape(-1, TILE), None)

    program = compiler(way)(plain if way == "plain" else ours)
    return lambda: program(keys), {"count": batch * steps}


def matmul(way: str):
    """A plain product of matrices, on each core."""
    matrix = jnp.ones((MATRIX, MATRIX))
    ones = jnp.ones(jax.device_count())
    program = compiler(way)(
        lambda matrix: spread(lambda rows, m: jax.lax.map(lambda row: (row * m) @ m, rows), ones, matrix)
    )
    return lambda: program(matrix), {"flops": 2 * MATRIX**3 * jax.device_count()}


def learned(way: str, request: dict):
    """An algorithm and a task, and where a run of them stands after some generations of learning."""
    algorithm: Any = SUITED[request["algorithm"]](request["task"], batch_size=request["batch"])
    task = task_of(way, request["task"], algorithm.default_policy)
    template = ag.Optimizer.load(request["file"])._run
    state = template.state
    if request["algorithm"] == "ascii_me":  # the same trajectories over and over, or some of each operator
        batch, there = algorithm.batch_size, state.capacity
        chosen = jnp.arange(batch) * max(there // batch, 1) % there
        items, count = jax.tree.map(lambda leaf: leaf[chosen], state.items), jnp.full_like(state.count, batch)
        state = dataclasses.replace(state, items=items, cursor=jnp.zeros_like(state.cursor), count=count)
    return algorithm, task, replicate(dataclasses.replace(template, state=state))


def variation(way: str, **request):
    """The ASCII operator alone; its work counts the steps at which targets are alive."""
    algorithm, task, run = learned(way, request)
    algorithm = eqx.tree_at(lambda a: a.iso_line_share, algorithm, 0.0)
    program = compiler(way)(lambda run: _loop.ask(algorithm, task, run)[0].genotype)
    weights = [inputs * outputs for inputs, outputs in cast(ag.MLP, task.policy).layers]
    each = 2 * (3 * sum(weights) - weights[0])  # forward, and back to the weights and to all layers but the first
    steps = float(run.state.items.alive.sum(1).mean())
    flops = algorithm.batch_size * algorithm.epochs * steps * each
    return lambda: program(run), {"count": algorithm.batch_size, "flops": flops}


def generation(way: str, generations: int = 1, **request):
    """Ask, evaluate, tell, so many times in one device call."""
    algorithm, task, run = learned(way, request)
    fixed = (algorithm, task, jnp.int32(generations), jnp.int32(2**31 - 1))
    program = plain_generations if way == "plain" else _generations
    count = generations * algorithm.batch_size
    return lambda run: program(fixed, run), {"count": count}, lambda: jax.tree.map(jnp.copy, run)


def learn(way: str, algorithm: str, task: str, batch: int, file: str):
    """Makes the file that the cases above start from."""
    made = SUITED[algorithm](task, batch_size=batch)
    optimizer = ag.Optimizer(made, ag.make_task(task, policy=made.default_policy))
    budget = FEW.get(algorithm, LEARNED) * batch
    return lambda: optimizer.fit(budget, progress=False, checkpoint=file, overwrite=True), {}


def memory(way: str, task: str, batch: int, generations: int):
    """A run whose process's peak memory is of interest."""
    optimizer = ag.Optimizer(ag.AsciiME(batch_size=batch), ag.make_task(task))
    return lambda: optimizer.fit(generations * batch, progress=False), {}


def checkpoints(way: str, task: str, generations: int, every: int | None, learned: str, file: str):
    """Generations of a run that saves every so many of them, or never."""
    optimizer = ag.Optimizer.load(learned)
    batch = optimizer.algorithm.batch_size
    options: Any = {"checkpoint": file, "checkpoint_every": every, "overwrite": True} if every else {}

    def program():
        optimizer.fit(optimizer.evaluations + generations * batch, progress=False, **options)

    arrays = jax.tree.leaves((optimizer._run.archive, optimizer._run.state))
    return program, {"raw_bytes": sum(leaf.size * leaf.dtype.itemsize for leaf in arrays)}


CASES = {case.__name__: case for case in (physics, matmul, variation, generation, learn, memory, checkpoints)}


def vmapped_rows(operator, rows, shared=None, at_once=None, work=None):
    """What `each_row` does, the straightforward way."""
    return jax.vmap(at_once or operator, (0, None))(rows, shared)


def straighten():
    """Makes what is our own of operators and layers the straightforward way."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("asciime_gym.algorithms.", "asciime_gym.learning.")):
            for ours, theirs in {"each_row": vmapped_rows, "dense": jnp.matmul}.items():
                if hasattr(module, ours):
                    setattr(module, ours, theirs)
    _dense.dense, _dense.NARROW = jnp.matmul, 0


def timed(program: Any, prepare: list) -> tuple[float, float]:
    """Seconds that a program takes, and of work on all cores together; what it uses up is made before."""
    args = [jax.block_until_ready(make()) for make in prepare]
    begin, worked = time.perf_counter(), time.process_time()
    jax.block_until_ready(program(*args))
    return time.perf_counter() - begin, time.process_time() - worked


def main(way: str, devices: int, cores: int, first: int = 0):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + cores])
    jax.config.update("jax_num_cpu_devices", devices)
    keep_programs()
    if way == "plain":
        straighten()
    else:
        keep_memory()
    ready, lasted = {}, {}
    for line in sys.stdin:
        request = json.loads(line)
        begin = time.perf_counter()
        is_new = line not in ready
        if is_new:
            ready[line] = CASES[request.pop("case")](way, **request)
        program, about, *prepare = ready[line]
        if not is_new and lasted.get(line, SHORT) < SHORT:
            timed(program, prepare)  # what is short is timed warm
        seconds, worked = timed(program, prepare)
        lasted[line] = time.perf_counter() - begin if is_new else seconds
        answer = {"first" if is_new else "seconds": lasted[line], **about}
        answer["worked"] = worked
        answer["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print("@" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
