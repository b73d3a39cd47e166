"""Seconds per generation of PGA-ME and DCRL-ME, where they go, and how near they come to what the cores can multiply.

    .venv/bin/python scripts/_bench_actor_critic.py [ALGORITHM…] [--task hopper_uni] [--batch 256] [--rounds 3]
    .venv/bin/python scripts/_bench_actor_critic.py --worker DEVICES CORES

The second form is one side of it: a process that measures what a line of JSON on standard input asks for, and answers
with a line that begins with `@`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import asciime_gym as ag
from asciime_gym import _loop
from asciime_gym._archive import cvt_centroids
from asciime_gym._compile import compiled
from asciime_gym._process import keep_programs
from asciime_gym._spread import replicate, spread
from asciime_gym.algorithms._actor_critic import AbstractActorCritic
from asciime_gym.learning.td3 import train

ALGORITHMS = ("pga_me", "dcrl_me")
BEFORE = 2  # generations that are not timed: the first has nothing to learn from
MATRIX = 1024
PARTS = ("ask", "  critics", "  offspring", "evaluate", "tell", "generation")


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
        "  critics": rows * (step + delayed / algorithm.actor_delay),
        "  offspring": climbed * (products(list(policy.layers), weights=True, inputs=False) + through),
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


def measure(algorithm: str, task: str, batch: int, rounds: int, **fields: Any) -> dict[str, Any]:
    """Times of each part, round by round, and what they multiply."""
    kinds: dict[str, Any] = ag.ALGORITHMS
    made: AbstractActorCritic = kinds[algorithm](batch_size=batch, **fields)
    world = ag.make_task(task, policy=made.default_policy)
    centroids = cvt_centroids(1024, world.descriptor_low, world.descriptor_high)
    run = compiled(_loop.start)(made, world, centroids, np.uint32(0))
    budget = (BEFORE + 4 * rounds + 1) * batch
    state = made.room(world, run.state, budget)
    run = replicate(_loop.Run(run.archive, state, run.key, run.generation, run.evaluations))

    generations = compiled(
        lambda fixed, run: _loop.generations(made, world, fixed[0], fixed[1], run), donate="all-except-first"
    )
    ask = compiled(lambda run: _loop.ask(made, world, run))
    learn = compiled(
        lambda run: train(
            made._td3(world), run.state.learner, run.state.memory, run.key, critic_steps=made.critic_steps
        )
    )
    climb = compiled(lambda run: made._climb(world, run.archive, run.state.memory, run.state.learner, run.key))
    tell = compiled(
        lambda fixed, run, *told: _loop.tell(made, world, run, *told)[0], donate="all-except-first"
    )  # the run and what was told are used up, as in a loop
    multiply, matrix, flops = plain_product()

    limits = lambda count: (jnp.int32(count), jnp.int32(2**31 - 1))
    run = generations(limits(BEFORE), run)[0]
    times: dict[str, list[tuple[float, float]]] = {part: [] for part in (*PARTS, "matrix product")}
    for i in range(rounds + 1):
        taken = {"matrix product": min(seconds(multiply, matrix)[0] for _ in range(3))}
        taken["generation"], (run, *_) = seconds(generations, limits(1), run)
        taken["  critics"] = seconds(learn, run)[0]
        taken["  offspring"] = seconds(climb, run)[0]
        taken["ask"], (offspring, state) = seconds(ask, run)
        taken["evaluate"], evaluation = seconds(
            lambda offspring, run: world.evaluate(offspring.genotype, _loop.keys(run)[1], life=offspring.life),
            offspring,
            run,
        )
        told = jax.block_until_ready(jax.tree.map(jnp.copy, (offspring, state, evaluation)))
        taken["tell"], run = seconds(tell, None, run, *told)
        for part, spent in taken.items():
            if i:  # the first compiles
                times[part].append(spent)
    return {"times": times, "flops": {**work(made, world), "matrix product": flops}}


def worker(devices: int, cores: int):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    jax.config.update("jax_num_cpu_devices", devices)
    keep_programs()
    for line in sys.stdin:
        print("@" + json.dumps(measure(**json.loads(line))), flush=True)


def extremes(spent: list[list[float]]) -> tuple[float, float]:
    return min(wall for wall, _ in spent), max(wall for wall, _ in spent)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--worker", nargs=2, type=int, metavar=("DEVICES", "CORES"))
    parser.add_argument("--devices", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--task", default="hopper_uni")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.worker:
        return worker(*args.worker)
    for name in args.algorithms:
        for devices in args.devices:
            request = {"algorithm": name, "task": args.task, "batch": args.batch, "rounds": args.rounds}
            command = [sys.executable, __file__, "--worker", str(devices), str(devices)]
            done = subprocess.run(
                command, input=json.dumps(request) + "\n", stdout=subprocess.PIPE, text=True, check=True
            )
            answer = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("@"))[1:])
            print(f"{name} on {args.task}, batch {args.batch}, devices and cores: {devices}")
            for part, spent in answer["times"].items():
                flops, (least, most, worked) = answer["flops"].get(part), (*extremes(spent), min(w for _, w in spent))
                rate = f"{flops / least / 1e9:6.0f} GFLOP/s" if flops else ""
                print(f"  {part:15} {least:7.3f} s  (up to {most:.3f}; {worked:.3f} of work)  {rate}", flush=True)


if __name__ == "__main__":
    main()
