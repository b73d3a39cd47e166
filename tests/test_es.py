"""Evolution strategies against closed forms and slow NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from scipy.linalg import expm
from scipy.stats import rankdata

from asciime_gym.learning.adam import adam, no_moments
from asciime_gym.learning.es import centred_ranks, es_gradient, mirrored, xnes, xnes_points, xnes_update
from asciime_gym.learning.novelty import TILE, novelty

KEY = jax.random.key(3)


# The gradient ---------------------------------------------------------------------------------------------------


def test_noise_is_mirrored():
    noise = np.asarray(mirrored(KEY, 1000, 7))
    assert noise.shape == (1000, 7) and (noise[:500] == -noise[500:]).all()
    assert abs(noise[:500].mean()) < 0.1 and abs(noise.std() - 1) < 0.05
    assert len(np.unique(noise[:500], axis=0)) == 500


@pytest.mark.parametrize(
    "value",
    [
        [3.0, 1.0, 2.0],
        [1.0, 1.0, 0.0, 5.0],
        [2.0, 2.0, 2.0, 2.0],
        [-np.inf, 4.0, -np.inf, 4.0, 4.0],
        np.random.default_rng(0).integers(0, 40, 200).astype(float).tolist(),
    ],
)
def test_ranks_and_their_ties(value):
    ranks = np.asarray(centred_ranks(jnp.array(value, jnp.float32)))
    expected = (rankdata(value, method="average") - 1) / (len(value) - 1) - 0.5
    np.testing.assert_allclose(ranks, expected, atol=1e-6)


def test_ranks_span_from_minus_a_half_to_a_half():
    assert np.asarray(centred_ranks(jnp.array([0.0, 7.0, 1.0]))).tolist() == [-0.5, 0.5, 0.0]
    assert np.asarray(centred_ranks(jnp.zeros(9))).tolist() == [0.0] * 9


def test_gradient_equals_numpy_exactly():
    """Eighths, of which float32 makes exact sums: nothing is left to rounding."""
    rng = np.random.default_rng(1)
    noise, weight = rng.integers(-16, 16, (64, 33)) / 8, rng.integers(-8, 8, 64) / 8
    expected = (weight[:, None] * noise).sum(axis=0) / (64 * 0.25)
    found = es_gradient(jnp.array(noise, jnp.float32), jnp.array(weight, jnp.float32), 0.25)
    assert np.array_equal(np.asarray(found), expected.astype(np.float32))


@pytest.mark.parametrize("curvature", [0.0, 3.0], ids=["linear", "quadratic"])
def test_gradient_is_the_analytic_one(curvature):
    """Within five standard errors: in mirrored pairs only the slope is left of a quadratic, whose noise is known."""
    samples, sigma = 20_000, 0.1
    slope, point = np.array([2.0, -1.0, 0.0, 0.5]), np.array([0.3, -0.2, 1.0, 0.0])
    function = lambda x: x @ slope - curvature / 2 * (x**2).sum(axis=-1) + 1000.0
    noise = np.asarray(mirrored(KEY, samples, 4), np.float64)
    value = function(point + sigma * noise)
    found = np.asarray(es_gradient(jnp.array(noise, jnp.float32), jnp.array(value, jnp.float32), sigma))
    analytic = slope - curvature * point
    error = np.sqrt((analytic @ analytic + analytic**2) / (samples / 2))
    rounding = 1000.0 * 2**-24 / sigma  # float32 holds the values no better
    assert (np.abs(found - analytic) < 5 * error + rounding).all()
    assert 5 * error.max() < 0.2 * np.abs(analytic).max()  # that says something


def test_adam_is_adam():
    import optax

    known, rng = optax.adam(0.01, eps=1e-5), np.random.default_rng(0)
    point = {"a": jnp.ones(5), "b": jnp.zeros((2, 3))}
    ours, moments, theirs, state = point, no_moments(point), point, known.init(point)
    for i in range(50):
        downhill = jax.tree.map(lambda leaf, i=i: jnp.array(rng.normal(i % 3, 2, leaf.shape), jnp.float32), point)
        ours, moments = adam(ours, downhill, moments, learning_rate=0.01, eps=1e-5)
        step, state = known.update(downhill, state)
        theirs = optax.apply_updates(theirs, step)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), ours, theirs)


# xNES -----------------------------------------------------------------------------------------------------------


class NumpyXnes:
    """The paper's equations, in double precision and one sample at a time."""

    def __init__(self, mean, sigma):
        self.mean, self.sigma, self.shape = np.array(mean, float), sigma, np.eye(len(mean))

    def points(self, draws):
        return np.stack([self.mean + self.sigma * self.shape @ z for z in draws])

    def update(self, draws, value):
        n, d = draws.shape
        rate = (9 + 3 * np.log(d)) / (5 * d * np.sqrt(d))
        raw = np.array([max(0.0, np.log(n / 2 + 1) - np.log(place)) for place in range(1, n + 1)])
        utility = dict(zip(np.argsort(-value), raw / raw.sum() - 1 / n, strict=True))
        step = sum(utility[i] * draws[i] for i in range(n))
        stretch = sum(utility[i] * (np.outer(draws[i], draws[i]) - np.eye(d)) for i in range(n))
        size = np.trace(stretch) / d
        self.mean = self.mean + self.sigma * self.shape @ step
        self.sigma = self.sigma * np.exp(rate / 2 * size)
        self.shape = self.shape @ expm(rate / 2 * (stretch - size * np.eye(d)))


def test_xnes_is_the_papers():
    rng, hills = np.random.default_rng(0), np.array([1.0, 30.0, 5.0])
    ours, slow = xnes(jnp.array([1.0, 0.0, 0.0]), 3.0), NumpyXnes([1.0, 0.0, 0.0], 3.0)
    for _ in range(25):
        draws = rng.normal(size=(12, 3))
        points = np.asarray(xnes_points(ours, jnp.array(draws, jnp.float32)))
        np.testing.assert_allclose(points, slow.points(draws), rtol=1e-3, atol=1e-4)
        value = -(slow.points(draws) ** 2 @ hills)
        ours = xnes_update(ours, jnp.array(draws, jnp.float32), jnp.array(value, jnp.float32))
        slow.update(draws, value)
    np.testing.assert_allclose(ours.shape, slow.shape, rtol=1e-3, atol=1e-3)
    assert abs(np.linalg.det(np.asarray(ours.shape)) - 1) < 1e-3


def test_xnes_reaches_the_optimum_of_an_ill_conditioned_quadratic():
    """Half-axes a thousand times as long as others, in 5 dimensions, with the paper's 8 samples a generation: a few
    thousand evaluations, as it shows for ellipsoids."""
    hills = 10.0 ** jnp.linspace(0, 6, 5)

    def generation(search, key):
        draws = jax.random.normal(key, (8, 5))
        points = xnes_points(search, draws)
        value = -jnp.sum(hills * points**2, axis=1)
        return xnes_update(search, draws, value), value.max()

    keys = jax.random.split(KEY, 600)
    search, best = jax.lax.scan(generation, xnes(jnp.ones(5), 1.0), keys)
    assert best[0] < -1e4 and best[-50:].max() > -1e-6
    axes = np.linalg.svd(np.asarray(search.shape), compute_uv=False)
    assert 200 < axes[0] / axes[-1] < 5000


def test_what_is_all_the_same_teaches_xnes_nothing():
    before = xnes(jnp.array([1.0, 0.0]), 0.5)
    after = xnes_update(before, jax.random.normal(KEY, (30, 2)), jnp.full(30, 7.0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), before, after)


def test_xnes_shares_utility_among_equals():
    """Whichever of two equals comes first."""
    draws, value = jax.random.normal(KEY, (6, 2)), jnp.array([1.0, 3.0, 3.0, -jnp.inf, 0.0, 3.0])
    order = jnp.array([5, 3, 2, 0, 4, 1])
    one = xnes_update(xnes(jnp.zeros(2), 1.0), draws, value)
    other = xnes_update(xnes(jnp.zeros(2), 1.0), draws[order], value[order])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), one, other)


# Novelty --------------------------------------------------------------------------------------------------------


def brute_force(points, seen, neighbours):
    distance = np.linalg.norm(points[:, None] - seen[None], axis=-1)
    return np.sort(distance, axis=1)[:, :neighbours].mean(axis=1)


@pytest.mark.parametrize("count", [1, 4, 10, TILE - 1, TILE, TILE + 1, 2 * TILE + 300])
def test_novelty_equals_brute_force(count):
    rng = np.random.default_rng(count)
    points, seen = rng.random((40, 3), np.float32), rng.random((2 * TILE + 452, 3), np.float32)
    found = novelty(jnp.asarray(points), jnp.asarray(seen), jnp.int32(count), 10)
    np.testing.assert_allclose(found, brute_force(points, seen[:count], 10), rtol=1e-5)


def test_nothing_was_seen_nothing_is_novel():
    assert np.asarray(novelty(jnp.ones((3, 2)), jnp.zeros((9, 2)), jnp.int32(0), 10)).tolist() == [0.0] * 3


def largest(jaxpr: Jaxpr | ClosedJaxpr) -> int:
    """Elements of the largest array that a program makes."""
    sizes = [variable.aval.size for eqn in jaxpr.eqns for variable in eqn.outvars if hasattr(variable.aval, "size")]
    inner = [part for eqn in jaxpr.eqns for value in eqn.params.values() for part in jax.tree.leaves(value)]
    return max([0, *sizes, *(largest(part) for part in inner if isinstance(part, (Jaxpr, ClosedJaxpr)))])


def test_novelty_never_compares_all_with_all():
    """At the size of a generation, on any platform."""
    program = jax.make_jaxpr(lambda points, seen, count: novelty(points, seen, count, 10))(
        jnp.zeros((4000, 2)), jnp.zeros((50_000, 2)), jnp.int32(50_000)
    )
    assert 50_000 * 2 <= largest(program) <= 4000 * (TILE + 10) * 2
