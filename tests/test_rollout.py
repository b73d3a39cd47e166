"""Work is proportional to life: tiles stop when all in them have ended, and share out those who end together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Walk, same

from asciime_gym.tasks.rollout import TILE


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
