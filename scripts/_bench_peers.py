"""One side of the benchmark of the six algorithms: a process that times generations and their parts.

    python scripts/_bench_peers.py WAY DEVICES CORES

A request is a line of JSON on standard input, the answer a line that begins with `@`, as of `_bench_worker.py`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from _suited import SUITED

import asciime_gym as ag
from asciime_gym import _loop
from asciime_gym._archive import cvt_centroids
from asciime_gym._compile import compiled
from asciime_gym._process import keep_programs
from asciime_gym._spread import replicate, spread
from asciime_gym.algorithms._actor_critic import AbstractActorCritic
from asciime_gym.learning.experience import Actors, collect, open_worlds, tile_size
from asciime_gym.learning.td3 import train

BEFORE = 2  # generations that are not timed: the first has nothing to learn from
MATRIX = 1024
PLAY, LEARN = "PPO's steps", "PPO's epochs"


def products(sizes: list[tuple[int, int]], *, weights: bool, inputs: bool) -> int:
    """Multiplications and additions per row of a network: forward, back to the weights, back to the inputs."""
    each = [inputs * outputs for inputs, outputs in sizes]
    back = sum(each) if inputs else sum(each[1:])
    return 2 * (sum(each) + back + (sum(each) if weights else 0))


def work(algorithm: AbstractActorCritic, task: ag.AbstractTask) -> dict[str, float]:
    """Floating-point operations of the matrix products of a generation."""
    td3, policy = algorithm._td3(task), cast(ag.MLP, task.policy)
    critic, actor = list(td3.critic.layers), list(cast(ag.MLP, td3.actor).layers)
    forward = lambda sizes: 2 * sum(inputs * outputs for inputs, outputs in sizes)
    through = products(critic, weights=False, inputs=True)  # for the action's sake
    step = forward(actor) + 2 * forward(critic) + 2 * products(critic, weights=True, inputs=False)
    delayed = products(actor, weights=True, inputs=False) + through
    rows = algorithm.critic_steps * algorithm.minibatch_size
    climbed = algorithm.policy_steps * algorithm.minibatch_size * algorithm.counts[1]
    return {
        "critics": rows * (step + delayed / algorithm.actor_delay),
        "offspring": climbed * (products(list(policy.layers), weights=True, inputs=False) + through),
    }


def seconds(program: Callable, *args: Any) -> tuple[tuple[float, float], Any]:
    """How long it takes, how much of that all cores together worked for it, and the result."""
    begin = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(program(*args))
    return (time.perf_counter() - begin[0], time.process_time() - begin[1]), result


def plain_product() -> tuple[Callable, Any, float]:
    """A product of matrices on each device."""
    ones, matrix = jnp.ones(jax.device_count()), jnp.ones((MATRIX, MATRIX))
    program = compiled(
        lambda matrix: spread(lambda rows, m: jax.lax.map(lambda row: (row * m) @ m, rows), ones, matrix)
    )
    return program, matrix, 2.0 * MATRIX**3 * jax.device_count()


def measure(algorithm: str, task: str, rounds: int, **fields: Any) -> dict[str, Any]:
    """Times of a generation and of its parts, round by round; evaluations of each; and what is multiplied."""
    made = SUITED[algorithm](task, **fields)
    world = ag.make_task(task, policy=type(made).default_policy)
    centroids = cvt_centroids(1024, world.descriptor_low, world.descriptor_high)
    run = compiled(_loop.start)(made, world, centroids, np.uint32(0))
    state = made.room(world, run.state, (BEFORE + 4 * rounds + 1) * made.batch_size)
    run = replicate(_loop.Run(run.archive, state, run.key, run.generation, run.evaluations))

    generations = compiled(
        lambda fixed, run: _loop.generations(made, world, fixed[0], fixed[1], run), donate="all-except-first"
    )
    ask = compiled(lambda run: _loop.ask(made, world, run))
    tell = compiled(
        lambda fixed, run, *told: _loop.tell(made, world, run, *told)[0], donate="all-except-first"
    )  # the run and what was told are used up, as in a loop
    evaluate = lambda offspring, run: world.evaluate(
        offspring.genotype, _loop.keys(run)[1], life=offspring.life, trajectory=made.needs_trajectory
    )
    parts, multiplied = parts_of(made, world)
    multiply, matrix, flops = plain_product()

    limits = lambda count: (jnp.int32(count), jnp.int32(2**31 - 1))
    run = generations(limits(BEFORE), run)[0]
    times: dict[str, list[tuple[float, float]]] = {}
    evaluations = 0
    for i in range(rounds + 1):
        taken = {"matrix product": min(seconds(multiply, matrix)[0] for _ in range(3))}
        before = int(run.evaluations)
        taken["generation"], (run, *_) = seconds(generations, limits(1), run)
        evaluations = int(run.evaluations) - before
        for name, part in parts.items():
            taken[name] = seconds(part, run)[0]
        taken["ask"], (offspring, state) = seconds(ask, run)
        taken["evaluate"], evaluation = seconds(evaluate, offspring, run)
        told = jax.block_until_ready(jax.tree.map(jnp.copy, (offspring, state, evaluation)))
        taken["tell"], run = seconds(tell, None, run, *told)
        for part, spent in taken.items():
            if i:  # the first compiles
                times.setdefault(part, []).append(spent)
    if PLAY in times:
        asked, played = times["ask"], times[PLAY]
        times[LEARN] = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(asked, played, strict=True)]
    return {"times": times, "evaluations": evaluations, "flops": {**multiplied, "matrix product": flops}}


def parts_of(made: ag.AbstractAlgorithm, world: ag.AbstractTask) -> tuple[dict[str, Callable], dict[str, float]]:
    """What an algorithm's `ask` is made of, if it learns there; and the operations of the products in each part."""
    if isinstance(made, AbstractActorCritic):
        return learning(made, world), work(made, world)
    if isinstance(made, ag.Ppga):
        assert isinstance(world, ag.AbstractSimulator)
        return {PLAY: compiled(partial(playing, made, world))}, {LEARN: ppo_work(made, world)}
    return {}, {}


def playing(made: ag.Ppga, world: ag.AbstractSimulator, run: _loop.Run) -> Any:
    """The steps that PPO takes in a generation, without learning from them."""
    state, size = run.state, tile_size(made.environments)
    ppo, tiles = made._ppo(cast(ag.MLP, world.policy)), made.environments // size

    def play(agents: int, iterations: int, key: Any) -> Any:
        copy = lambda leaf: jnp.tile(leaf, (agents, 1))
        mixed = jnp.eye(1 + world.descriptor_size)[:agents]
        actors = Actors(copy(state.theta), copy(state.log_std), state.critics[:agents], mixed)
        owner = jnp.repeat(jnp.arange(agents), tiles)
        options = {"critic": ppo.critic, "steps": ppo.rollout, "discount": ppo.discount, "trace": ppo.trace}

        def iteration(worlds: Any, key: Any) -> Any:
            worlds, _, summary = collect(world, actors, worlds, owner, key, **options)
            return worlds, summary

        begin = open_worlds(world, key, agents * tiles, size)
        return jax.lax.scan(iteration, begin, jax.random.split(key, iterations))[1]

    directions = 1 + world.descriptor_size
    return play(1, made.walk_iterations, run.key), play(directions, made.gradient_iterations, run.key)


def ppo_work(made: ag.Ppga, world: ag.AbstractSimulator) -> float:
    """Floating-point operations of the matrix products that PPO learns with in a generation."""
    policy = cast(ag.MLP, world.policy)
    nets = [list(policy.layers), list(made._critic(policy).layers)]
    return (
        made._steps(1 + world.descriptor_size)
        * made.epochs
        * sum(products(net, weights=True, inputs=False) for net in nets)
    )


def learning(made: AbstractActorCritic, world: ag.AbstractTask) -> dict[str, Callable]:
    """What an actor-critic's `ask` is made of."""

    def learn(run: _loop.Run) -> Any:
        state = run.state
        return train(made._td3(world), state.learner, state.memory, run.key, critic_steps=made.critic_steps)

    climb = lambda run: made._climb(world, run.archive, run.state.memory, run.state.learner, run.key)
    return {"critics": compiled(learn), "offspring": compiled(climb)}


def main():
    _, devices, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    jax.config.update("jax_num_cpu_devices", devices)
    keep_programs()
    for line in sys.stdin:
        print("@" + json.dumps(measure(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
