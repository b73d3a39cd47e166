"""Running means and deviations, and networks that see or say what is normalised by them.

A network of normalised observations is one of plain observations with other weights in its first layer, and one that
gives normalised values is one that gives plain values with other weights in its last. So a network is kept in plain
terms, in which it means the same whatever the statistics become, and put into normalised ones to be trained.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._policy import MLP

LEAST = 1e-2  # deviations count as at least this: what has hardly ever changed must not be blown up when it does


class Normaliser(eqx.Module):
    """Mean and variance of what was seen so far."""

    mean: Float[Array, "*agents size"]
    variance: Float[Array, "*agents size"]
    count: Float[Array, "*agents"]

    @property
    def deviation(self) -> Float[Array, "*agents size"]:
        return jnp.maximum(jnp.sqrt(self.variance), LEAST)

    @property
    def scale(self) -> Float[Array, "*agents size"]:
        """What differences are multiplied by. A division would be rewritten by the compiler, and not always alike."""
        return 1 / self.deviation

    def __call__(self, x: Float[Array, "*rows size"]) -> Float[Array, "*rows size"]:
        return (x - self.mean) * self.scale


def unseen(*shape: int) -> Normaliser:
    """Nothing was seen: it changes nothing."""
    return Normaliser(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(shape[:-1]))


def merged(
    old: Normaliser,
    mean: Float[Array, "groups size"],
    variance: Float[Array, "groups size"],
    count: int,
    most: float = jnp.inf,
) -> Normaliser:
    """The statistics after groups of `count` rows each, of which these are known; the old ones count as `most` rows at
    most."""
    new = count * len(mean)
    before = jnp.minimum(old.count, most)
    share = new / (before + new)
    there = mean.mean(axis=0)
    spread = variance.mean(axis=0) + mean.var(axis=0)
    change = there - old.mean
    return Normaliser(
        mean=old.mean + share * change,
        variance=(1 - share) * old.variance + share * spread + share * (1 - share) * change**2,
        count=before + new,
    )


def normalised(
    network: MLP, genotype: Float[Array, " params"], seen: Normaliser, said: Normaliser | None = None
) -> Float[Array, " params"]:
    """The same function, of inputs that `seen` has normalised; with outputs that `said` has."""
    layers = network.unpack(genotype)
    weights, biases = layers[0]
    layers[0] = weights * seen.deviation[:, None], biases + jnp.matmul(seen.mean, weights, precision="highest")
    if said is not None:
        weights, biases = layers[-1]
        layers[-1] = weights * said.scale, (biases - said.mean) * said.scale
    return _packed(layers)


def plain(
    network: MLP, genotype: Float[Array, " params"], seen: Normaliser, said: Normaliser | None = None
) -> Float[Array, " params"]:
    """Undoes `normalised`."""
    layers = network.unpack(genotype)
    weights, biases = layers[0]
    weights = weights * seen.scale[:, None]
    layers[0] = weights, biases - jnp.matmul(seen.mean, weights, precision="highest")
    if said is not None:
        weights, biases = layers[-1]
        layers[-1] = weights * said.deviation, biases * said.deviation + said.mean
    return _packed(layers)


def _packed(layers: list[tuple[Array, Array]]) -> Float[Array, " params"]:
    return jnp.concatenate([part.ravel() for layer in layers for part in layer])
