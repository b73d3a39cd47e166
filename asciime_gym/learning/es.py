"""Evolution strategies: pure functions of one search. `jax.vmap` or `lax.map` them over a batch.

The gradient of OpenAI-ES: Salimans, Ho, Chen, Sidor & Sutskever (2017), arXiv:1703.03864. xNES: Glasmachers, Schaul,
Sun, Wierstra & Schmidhuber (2010), Exponential Natural Evolution Strategies.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float, Int, Key


def mirrored(key: Key[Array, ""], samples: int, size: int) -> Float[Array, "samples size"]:
    """Standard normal noise in mirrored pairs: row i of the first half is minus row i of the second."""
    half = jax.random.normal(key, (samples // 2, size))
    return jnp.concatenate([half, -half])


def centred_ranks(value: Float[Array, " samples"]) -> Float[Array, " samples"]:
    """The place of each value among all, from -0.5, the least, to 0.5; equal values share the mean of their places."""
    first, last = _places(value)
    return (first + last) / 2 / max(len(value) - 1, 1) - 0.5


def es_gradient(
    noise: Float[Array, "samples params"], weight: Float[Array, " samples"], sigma: float
) -> Float[Array, " params"]:
    """The gradient of the expected value of a search point that noise of deviation `sigma` is added to."""
    return jnp.matmul(weight, noise, precision="highest") / (len(weight) * sigma)


class Xnes(eqx.Module):
    """A normal distribution over a few coefficients that natural gradients move."""

    mean: Float[Array, " dims"]
    sigma: Float[Array, ""]  # its size
    shape: Float[Array, "dims dims"]  # its shape, of determinant 1: a draw z is the point mean + sigma · shape z


def xnes(mean: Float[Array, " dims"], sigma: float) -> Xnes:
    """A round distribution."""
    return Xnes(mean, jnp.float32(sigma), jnp.eye(len(mean)))


def xnes_points(search: Xnes, draws: Float[Array, "samples dims"]) -> Float[Array, "samples dims"]:
    """The points that standard normal draws stand for."""
    return search.mean + search.sigma * jnp.matmul(draws, search.shape.T, precision="highest")


def xnes_update(search: Xnes, draws: Float[Array, "samples dims"], value: Float[Array, " samples"]) -> Xnes:
    """The distribution after the points of `draws` turned out to be worth `value`; higher is better.

    Learning rates and utilities are the paper's defaults; equal values share the mean of their utilities.
    """
    samples, dims = draws.shape
    rate = 3 / 5 * (3 + math.log(dims)) / (dims * math.sqrt(dims))
    weight = _shared(_utilities(samples), value)
    step = jnp.matmul(weight, draws, precision="highest")
    stretch = jnp.matmul(draws.T * weight, draws, precision="highest") - weight.sum() * jnp.eye(dims)
    size = jnp.trace(stretch) / dims
    turn = jax.scipy.linalg.expm(rate / 2 * (stretch - size * jnp.eye(dims)))
    return Xnes(
        mean=search.mean + search.sigma * jnp.matmul(search.shape, step, precision="highest"),
        sigma=search.sigma * jnp.exp(rate / 2 * size),
        shape=jnp.matmul(search.shape, turn, precision="highest"),
    )


def _utilities(samples: int) -> Float[Array, " samples"]:
    """What the worst, the second worst, … and the best of so many samples weigh; they sum to 0."""
    place = jnp.arange(samples, 0, -1)
    raw = jnp.maximum(0.0, math.log(samples / 2 + 1) - jnp.log(place))
    return raw / raw.sum() - 1 / samples


def _places(value: Float[Array, " samples"]) -> tuple[Int[Array, " samples"], Int[Array, " samples"]]:
    """The first and the last place, from 0, that each value has when all are sorted."""
    order = jnp.sort(value)
    last = jnp.searchsorted(order, value, side="right") - 1
    return jnp.searchsorted(order, value), last


def _shared(table: Float[Array, " samples"], value: Float[Array, " samples"]) -> Float[Array, " samples"]:
    """The entry of `table` for each value's place; equal values share the mean of theirs."""
    first, last = _places(value)
    total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(table)])
    return (total[last + 1] - total[first]) / (last + 1 - first)
