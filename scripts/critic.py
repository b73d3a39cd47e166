"""What the critic of a PGA-ME or DCRL-ME run knows, and what its offspring gain by it.

    python scripts/critic.py runs/study/walker2d_uni_pga_me_256_0.h5

Elites of the archive, offspring that climb the critic, and the greedy actor are evaluated under the same keys. Of
each: fitness and steps lived, the discounted return from the first step, what the critic expected of it, how far it
ended from the descriptor aimed at (PGA-ME: its parent's), in each dimension and as a share of the bounds, and how well
the critic's opinion of every step goes with what came of it.
"""

from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import asciime_gym as ag
from asciime_gym._process import prepare
from asciime_gym._variation import reward_to_go
from asciime_gym.algorithms._actor_critic import AbstractActorCritic
from asciime_gym.learning.td3 import value


def report(optimizer: ag.Optimizer, genotype: Any, aim: Any, before: np.ndarray | None) -> str:
    """A row of the table: what came of these individuals, which aim at descriptors `aim`."""
    algorithm, task, run = optimizer.algorithm, optimizer.task, optimizer._run
    assert isinstance(algorithm, AbstractActorCritic) and isinstance(task, ag.AbstractSimulator)
    evaluation = task.evaluate(genotype, jax.random.key(1))
    path = evaluation.trajectory
    assert path is not None
    discounted = jax.vmap(lambda reward, alive: reward_to_go(reward, alive, algorithm.discount))
    came = np.asarray(discounted(algorithm._reward(run.archive, evaluation, aim), path.alive))
    condition = algorithm._condition(run.archive, aim)
    if condition is not None:
        condition = jnp.broadcast_to(condition[:, None], (*path.reward.shape, condition.shape[1]))
    expected = np.asarray(value(run.state.learner.critics[0], path.observation, path.action, condition))
    alive, fitness = np.asarray(path.alive), np.asarray(evaluation.fitness)
    better = "" if before is None else f"{100 * np.mean(fitness > before):.0f} %"
    steps, correlation = float(np.mean(evaluation.steps)), np.corrcoef(expected[alive], came[alive])[0, 1]
    first = f"{came[:, 0].mean():.0f} | {expected[:, 0].mean():.0f}"
    off = np.abs(np.asarray((evaluation.descriptor - aim) / (run.archive.high - run.archive.low)))
    first += f" | {100 * off.mean():.1f} %"
    return f"{fitness.mean():.0f} | {fitness.max():.0f} | {steps:.0f} | {first} | {correlation:.2f} | {better}"


def main(file: Annotated[Path, tyro.conf.Positional], count: int = 128):
    """Prints a table.

    Args:
        file: A run of pga_me or dcrl_me, with its replay buffer.
        count: Elites that are looked at, and offspring of them.
    """
    prepare()
    optimizer = ag.Optimizer.load(file)
    algorithm, task, run = optimizer.algorithm, optimizer.task, optimizer._run
    if not isinstance(algorithm, AbstractActorCritic) or not isinstance(task, ag.AbstractSimulator):
        raise SystemExit(f"expected a run of pga_me or dcrl_me, which have critics; got one of {algorithm.name}")
    climb_key, inject_key = jax.random.split(jax.random.key(0))
    archive, learner = run.archive, run.state.learner
    offspring, parents = algorithm._climb(task, archive, run.state.memory, learner, climb_key)
    offspring, parents = offspring[:count], parents[:count]
    elites, aim = archive.elites.genotype[parents], archive.elites.descriptor[parents]
    actors, aims = algorithm._inject(task, archive, learner.actor, inject_key)
    before = np.asarray(task.evaluate(elites, jax.random.key(1), trajectory=False).fitness)
    rows = {"elites": (elites, aim, None), "policy gradient": (offspring, aim, before)}
    rows["greedy actor"] = (actors[:count], aim[:1] if aims is None else aims[:count], None)
    print("| | fitness | best | steps | return | expected | off the aim | correlation | better than parent |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {report(optimizer, *row)} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
