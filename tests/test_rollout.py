"""Work is proportional to life: tiles stop when all in them have ended, and share out those who end together."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Walk, same

import asciime_gym as ag
from asciime_gym._compile import OPTIONS, _tracing_for
from asciime_gym.tasks.rollout import TILE, rollout


class Counted(Walk):
    """A walk that counts the steps that are computed, dead or alive."""

    def step(self, state, action):
        jax.debug.callback(lambda _: STEPS.append(1), state.time)
        return super().step(state, action)


STEPS: list[int] = []
LENGTH = 12


def computed(genotypes, life) -> tuple[float, object]:
    """Rounds of a tile, and the result."""
    STEPS.clear()
    task = Counted(lanes=False, noise=0.0)
    result = task.evaluate(genotypes, jax.random.key(0), life=life)
    jax.effects_barrier()
    return len(STEPS) / TILE, result


@pytest.fixture
def genotypes():
    """Every other row runs straight out of the circle, the others stand still."""
    policy = Walk().policy
    still = jnp.zeros((2 * TILE, policy.size))
    return still.at[::2, -2].set(1.0)


def test_a_tile_stops_when_all_in_it_have_ended(genotypes):
    rounds, result = computed(genotypes[::2], None)
    assert rounds == np.asarray(result.steps).max() < LENGTH


def test_those_who_end_together_share_a_tile(genotypes):
    mixed, result = computed(genotypes, None)
    ordered, again = computed(genotypes, result.steps)
    short = int(result.steps[0])
    assert short < LENGTH and mixed == 2 * LENGTH and ordered == LENGTH + short
    assert same(result, again)


def loops(kind: str, task: Walk, batch: int) -> Iterator[Any]:
    """The outermost equations of this kind, `scan` or `while`, in the program of so many episodes."""

    def look(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == kind:
                yield equation
                continue
            for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
                if hasattr(inner, "eqns"):
                    yield from look(getattr(inner, "jaxpr", inner))

    genotypes, keys = jnp.zeros((batch, task.policy.size)), jax.random.split(jax.random.key(0), batch)
    return look(jax.make_jaxpr(lambda genotypes: rollout(task, genotypes, keys))(genotypes).jaxpr)


def tiles(platform: str, lanes: bool | None, batch: int) -> list[int]:
    """How many times a program for this platform goes through a tile, one after the other."""
    with _tracing_for(platform):
        return [equation.params["length"] for equation in loops("scan", Walk(lanes=lanes), batch)]


def test_an_accelerator_takes_all_at_once():
    """A CPU's tiles stay in its cache, in lanes or not."""
    for lanes in (None, False):
        share = 4 * TILE // jax.device_count()
        assert tiles("cuda", lanes, 4 * TILE) == [1] and tiles("cpu", lanes, 4 * TILE) == [share // TILE]
    assert tiles("cuda", True, 4 * TILE) == tiles("cpu", True, 4 * TILE)


@pytest.mark.parametrize(
    "policy",
    [ag.MLP(5, 2), ag.EquinoxPolicy(lambda key: eqx.nn.MLP(5, 2, 8, 1, key=key), 5, 2)],
    ids=["mlp", "equinox"],
)
def test_a_genotype_is_taken_apart_once_an_episode(policy):
    """What is repeated step by step knows its parts only."""
    task = Walk(policy=policy)
    found = list(loops("while", task, TILE))
    assert found
    for equation in found:
        each = [variable.aval.shape[1:] for variable in equation.invars]  # after the episodes' axis
        assert (8 if isinstance(policy, ag.EquinoxPolicy) else 64,) in each  # biases
        assert (policy.size,) not in each


def test_trajectories_that_nobody_wants_take_no_room():
    def needed(length: int, trajectory: bool) -> int:
        task = Walk(episode_length=length)
        play = lambda genotypes: task.evaluate(genotypes, jax.random.key(0), trajectory=trajectory)
        genotypes = jnp.zeros((TILE, task.policy.size))
        found = jax.jit(play).lower(genotypes).compile(OPTIONS["cpu"]).memory_analysis()
        return found.temp_size_in_bytes + found.output_size_in_bytes

    path = TILE * 4 * (5 + 2 + 1)  # observation, action and reward of a step
    assert needed(500, True) - needed(100, True) > 400 * path
    assert abs(needed(500, False) - needed(100, False)) < path
