"""Variation operators: pure functions of one individual. `jax.vmap` or `lax.map` them over a batch."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from ._policy import AbstractPolicy


def iso_line(
    parent: Float[Array, " params"],
    mate: Float[Array, " params"],
    key: Key[Array, ""],
    *,
    sigma1: float,
    sigma2: float,
) -> Float[Array, " params"]:
    """Directional variation: isotropic noise, and a random step along the line to another elite."""
    iso_key, line_key = jax.random.split(key)
    iso = jax.random.normal(iso_key, parent.shape)
    line = jax.random.normal(line_key)
    return parent + sigma1 * iso + sigma2 * (mate - parent) * line


def reward_to_go(reward: Float[Array, " time"], alive: Bool[Array, " time"], discount: float) -> Float[Array, " time"]:
    """G_t, the discounted reward from step t to the end; zero after it."""

    def back(future, step):
        reward, alive = step
        value = jnp.where(alive, reward + discount * future, 0.0)
        return value, value

    return jax.lax.scan(back, jnp.zeros(()), (reward, alive), reverse=True)[1]


def floored_cosine(a: Float[Array, "time obs"], b: Float[Array, "time obs"], floor: float) -> Float[Array, " time"]:
    """Cosine similarity of two state sequences step by step, at least `floor`; `floor` where either is all zero.

    An episode is zero after its end, so a parent that ended before its target weighs as a stranger from then on.
    """
    norms = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    cosine = jnp.sum(a * b, axis=-1) / jnp.where(norms > 0, norms, 1.0)
    return jnp.maximum(floor, cosine)


def ascii(
    parent: Float[Array, " params"],
    parent_observation: Float[Array, "time obs"],
    parent_reward_to_go: Float[Array, " time"],
    target_observation: Float[Array, "time obs"],
    target_action: Float[Array, "time act"],
    target_reward_to_go: Float[Array, " time"],
    target_alive: Bool[Array, " time"],
    key: Key[Array, ""],
    *,
    policy: AbstractPolicy,
    optimizer: optax.GradientTransformation,
    epochs: int,
    variance: float,
    cosine_floor: float,
    clip: float,
    noise: float,
    slices: int = 1,
) -> Float[Array, " params"]:
    """Moves a parent's actions towards a target's where the target fared better, away where it fared worse.

    One epoch is one step of `optimizer` up the gradient of mean_t min(k_t w_t, max(k_t, clip) w_t), where
    w_t = floored cosine · (G^target_t − G^parent_t) is fixed and k_t is the squared-exponential kernel between
    the target's action and the one the individual would take in the target's state. Its gradient is the paper's
    J^T Z [A_target − A_parent] / (H·variance), with Z zero where k_t < clip and the target fared worse.

    `noise` is the standard deviation of the change asked of each action at random, before the optimizer scales it.

    `slices` is how finely the episode is cut, to leave out the steps that the target did not live to see; more than
    one pays where one individual is computed at a time.
    """
    similarity = floored_cosine(parent_observation, target_observation, cosine_floor)
    gain = jnp.where(target_alive, target_reward_to_go - parent_reward_to_go, 0.0)
    weight = similarity * gain
    horizon = len(weight)

    def climb(target_observation, target_action, weight, target_alive):
        def objective(genotype, key):
            action = policy.act(genotype, target_observation)
            kernel = jnp.exp(-jnp.sum((target_action - action) ** 2, axis=-1) / (2 * variance))
            value = jnp.sum(jnp.minimum(kernel * weight, jnp.maximum(kernel, clip) * weight)) / horizon
            if noise:
                wish = jax.random.normal(key, (horizon, policy.act_size))[: len(action)]
                value += noise * jnp.sum(jnp.where(target_alive[:, None], wish, 0.0) * action)
            return value

        def epoch(carry, key):
            genotype, state = carry
            uphill = jax.grad(objective)(genotype, key)
            update, state = optimizer.update(-uphill, state, genotype)
            return (optax.apply_updates(genotype, update), state), None

        start = (parent, optimizer.init(parent))
        (child, _), _ = jax.lax.scan(epoch, start, jax.random.split(key, epochs))
        return jnp.asarray(child)

    return while_alive(climb, target_alive, slices, target_observation, target_action, weight, target_alive)


def while_alive(function: Callable[..., Array], alive: Bool[Array, " time"], slices: int, *sequences: Array) -> Array:
    """`function(*sequences)`, where steps after the last one alive make no difference: whole slices of them are left
    out."""
    time = len(alive)
    lengths = sorted({-(-time * part // slices) for part in range(1, slices + 1)})
    life = jnp.max(jnp.where(alive, jnp.arange(1, time + 1), 0))

    def cut(length: int) -> Callable[..., Array]:
        return lambda *sequences: function(*[sequence[:length] for sequence in sequences])

    enough = jnp.sum(jnp.array(lengths[:-1]) < life)
    return jax.lax.switch(enough, [cut(length) for length in lengths], *sequences)
