"""Policies: flat genotype in, action out."""

from collections.abc import Callable

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import asciime_gym as ag
from asciime_gym._describe import describe_policy
from asciime_gym._policy import baseline_mlp, in_two

OBSERVATION = jnp.linspace(-1, 1, 5)


def test_mlp_is_what_it_says():
    policy = ag.MLP(5, 2, hidden=(3,), activation="relu", output="tanh")
    genotype = jax.random.normal(jax.random.key(0), (policy.size,))
    w1, b1, w2, b2 = np.split(np.asarray(genotype, float), [15, 18, 24])
    hidden = np.maximum(np.asarray(OBSERVATION) @ w1.reshape(5, 3) + b1, 0)
    expected = np.tanh(hidden @ w2.reshape(3, 2) + b2)
    np.testing.assert_allclose(policy.act(genotype, OBSERVATION), expected, rtol=1e-5, atol=1e-6)
    many = jnp.stack([OBSERVATION, 2 * OBSERVATION])
    np.testing.assert_allclose(policy.act(genotype, many)[0], policy.act(genotype, OBSERVATION), rtol=1e-5)


def test_orthogonal_init():
    policy = ag.MLP(12, 3)
    *hidden, last = policy.unpack(policy.init(jax.random.key(0)))
    for weights, biases in hidden:
        rows = min(weights.shape)
        gram = weights @ weights.T if weights.shape[0] == rows else weights.T @ weights
        np.testing.assert_allclose(gram, 2 * np.eye(rows), atol=1e-4)  # gain √2
        assert not biases.any()
    np.testing.assert_allclose(last[0].T @ last[0], 1e-4 * np.eye(3), atol=1e-7)  # gain 0.01
    assert not last[1].any()


def test_lecun_uniform_init():
    policy = baseline_mlp(12, 3)
    assert (policy.activation, policy.output) == ("relu", "tanh")
    for weights, biases in policy.unpack(policy.init(jax.random.key(0))):
        bound = np.sqrt(3 / weights.shape[0])
        assert np.abs(weights).max() <= bound and np.abs(weights).max() > 0.8 * bound
        assert not biases.any()


def test_init_depends_on_the_key():
    policy = ag.MLP(4, 2)
    first, second = (policy.init(jax.random.key(seed)) for seed in (0, 1))
    assert not np.allclose(first, second)
    assert first.dtype == jnp.float32 and first.shape == (policy.size,)


def test_equinox_module_as_policy():
    make = lambda key: eqx.nn.MLP(5, 2, width_size=8, depth=1, key=key)
    policy = ag.EquinoxPolicy(make, 5, 2)
    key = jax.random.key(3)
    genotype = policy.init(key)
    assert policy.size == genotype.size == 5 * 8 + 8 + 8 * 2 + 2
    np.testing.assert_allclose(policy.act(genotype, OBSERVATION), make(key)(OBSERVATION), rtol=1e-6)
    assert policy.act(genotype, jnp.ones((4, 3, 5))).shape == (4, 3, 2)


class Net(nn.Module):
    """A Flax network of the user's own."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.tanh(nn.Dense(8)(x)))


class Stateful(nn.Module):
    """One that keeps running averages."""

    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=True)(nn.Dense(2)(x))


def test_flax_module_as_policy():
    policy = ag.FlaxPolicy(Net(), 5, 2)
    key = jax.random.key(3)
    genotype = policy.init(key)
    assert policy.size == genotype.size == 5 * 8 + 8 + 8 * 2 + 2
    expected = Net().apply(Net().init(key, OBSERVATION), OBSERVATION)
    np.testing.assert_allclose(policy.act(genotype, OBSERVATION), expected, rtol=1e-6)
    assert policy.act(genotype, jnp.ones((4, 5))).shape == (4, 2)


def test_modules_that_make_no_policy_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        ag.FlaxPolicy(Net(), 5, 3)
    with pytest.raises(ValueError, match="batch_stats"):
        ag.FlaxPolicy(Stateful(), 5, 2)
    with pytest.raises(ValueError, match="no floating-point parameters"):
        ag.EquinoxPolicy(lambda key: eqx.nn.Identity(), 5, 5)
    with pytest.raises(ValueError, match="at least 1"):
        ag.MLP(5, 2, hidden=(0,))


class Linear(ag.AbstractPolicy):
    """A policy of the user's own, with no more than it needs."""

    obs_size: int = 5
    act_size: int = 2
    size: int = 10  # type: ignore[assignment]

    def init(self, key):
        return jax.random.normal(key, (10,))

    def act(self, genotype, observation):
        return observation @ genotype.reshape(5, 2)


class Clipped(ag.MLP):
    """A known one that acts otherwise."""

    def act(self, genotype, observation):
        return jnp.clip(super().act(genotype, observation), -0.01, 0.01)


class Shared(eqx.Module):
    """A module with a function of its own, another one each time that it is made."""

    layer: eqx.nn.Linear
    squash: Callable = eqx.field(static=True)

    def __init__(self, key):
        self.layer, self.squash = eqx.nn.Linear(5, 2, key=key), lambda x: jnp.tanh(x)

    def __call__(self, x):
        return self.squash(self.layer(x))


POLICIES = {
    "mlp": ag.MLP(5, 2),
    "equinox": ag.EquinoxPolicy(lambda key: eqx.nn.MLP(5, 2, width_size=8, depth=1, key=key), 5, 2),
    "flax": ag.FlaxPolicy(Net(), 5, 2),
    "own": Linear(),
    "changed": Clipped(5, 2),
    "function": ag.EquinoxPolicy(Shared, 5, 2),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_prepared_genotype_acts_alike(policy):
    genotype = 3 * policy.init(jax.random.key(0))
    prepare, apply = in_two(policy)
    for observation in (OBSERVATION, jnp.ones((4, 5))):
        np.testing.assert_allclose(apply(prepare(genotype), observation), policy.act(genotype, observation), rtol=1e-6)


def test_a_changed_policy_is_not_stored_as_the_one_it_was_made_of():
    assert '"kind": "MLP"' in describe_policy(ag.MLP(5, 2))
    assert '"kind": "MLP"' not in describe_policy(Clipped(5, 2))
