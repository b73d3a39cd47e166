"""TD3: Fujimoto, van Hoof & Meger (2018), arXiv:1802.09477; twin critics, smoothed targets and a delayed actor.

Actor and critics may be conditioned on a vector, such as the descriptor that is aimed at; it is then the `target` of
the steps that they learn from.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from .._buffer import Buffer, Steps, Transitions, draw
from .._dense import dense
from .._policy import MLP, AbstractPolicy
from ._once import repeat

Layers = list[tuple[Array, Array]]  # weights and biases
STRETCH = 50_000  # rows to learn from, about half a second of work, before devices hear of each other


class TD3(eqx.Module):
    """Networks and hyperparameters."""

    actor: AbstractPolicy  # of the observation and, after it, the condition
    critic: MLP  # of observation, action and condition
    minibatch_size: int
    delay: int  # critic steps for each step of the actor and of the targets
    discount: float
    target_rate: float  # τ, the share of the way that targets go at a time
    noise: float  # standard deviation of what is added to the actions that targets take
    noise_clip: float
    reward_scale: float
    actor_learning_rate: float
    critic_learning_rate: float


class Learner(eqx.Module):
    """What is learnt."""

    actor: Float[Array, " params"]
    critics: tuple[Layers, Layers]
    target_actor: Float[Array, " params"]
    target_critics: tuple[Layers, Layers]
    actor_moments: Any  # of Adam
    critic_moments: Any


def critic_network(obs_size: int, act_size: int, dims: int, hidden: tuple[int, ...]) -> MLP:
    """The network that values an action; `dims` is the size of the condition, 0 for none."""
    return MLP(obs_size + act_size + dims, 1, hidden, activation="relu", weights="lecun_uniform")


def start(td3: TD3, actor: Float[Array, " params"], key: Key[Array, ""]) -> Learner:
    """A learner that has not learnt yet."""
    first, second = (td3.critic.unpack(td3.critic.init(key)) for key in jax.random.split(key))
    critics = first, second
    actor_moments = optax.adam(td3.actor_learning_rate).init(actor)
    return Learner(actor, critics, actor, critics, actor_moments, optax.adam(td3.critic_learning_rate).init(critics))


def value(
    critic: Layers,
    observation: Float[Array, "*rows obs"],
    action: Float[Array, "*rows act"],
    condition: Float[Array, "*rows dims"] | None = None,
) -> Float[Array, "*rows"]:
    """Q, what a critic thinks of actions."""
    x = jnp.concatenate([observation, action, *_given(condition)], axis=-1)
    *hidden, (weights, biases) = critic
    for w, b in hidden:
        x = jax.nn.relu(dense(x, w) + b)
    return (dense(x, weights) + biases)[..., 0]


def act(
    actor: AbstractPolicy,
    genotype: Float[Array, " params"],
    observation: Float[Array, "*rows obs"],
    condition: Float[Array, "*rows dims"] | None = None,
) -> Float[Array, "*rows act"]:
    """The actor's actions."""
    return actor.act(genotype, jnp.concatenate([observation, *_given(condition)], axis=-1))


def target_value(
    td3: TD3, learner: Learner, batch: Transitions, noise: Float[Array, "rows act"]
) -> Float[Array, " rows"]:
    """What the critics should say: the reward, and what the more cautious of the target critics expects after it.

    `noise` is standard normal; it smooths the target actor's actions.
    """
    step, after = batch.step, batch.next_observation
    smoothing = jnp.clip(td3.noise * noise, -td3.noise_clip, td3.noise_clip)
    action = jnp.clip(act(td3.actor, learner.target_actor, after, step.target) + smoothing, -1.0, 1.0)
    first, second = (value(critic, after, action, step.target) for critic in learner.target_critics)
    future = jnp.where(step.terminated, 0.0, jnp.minimum(first, second))
    return td3.reward_scale * step.reward + td3.discount * future


def critic_loss(critics: tuple[Layers, Layers], step: Steps, target: Float[Array, " rows"]) -> Float[Array, ""]:
    """The sum of both critics' mean squared errors; a truncated step, whose future is unknown, has none."""
    errors = [value(critic, step.observation, step.action, step.target) - target for critic in critics]
    first, second = (jnp.mean(jnp.where(step.truncated, 0.0, error) ** 2) for error in errors)
    return first + second


def actor_loss(
    action: Float[Array, "rows act"],
    critic: Layers,
    observation: Float[Array, "rows obs"],
    condition: Float[Array, "rows dims"] | None = None,
) -> Float[Array, ""]:
    """How little a critic thinks of actions."""
    return -jnp.mean(value(critic, observation, action, condition))


def update(td3: TD3, learner: Learner, batch: Transitions, noise: Float[Array, "rows act"]) -> Learner:
    """`delay` critic steps, each with its own part of the batch; then one of the actor, with the last; then targets."""
    size = td3.minibatch_size
    target = target_value(td3, learner, batch, noise)  # the target networks stand still meanwhile
    critics, moments = learner.critics, learner.critic_moments
    part = batch.step
    for begin in range(0, td3.delay * size, size):
        part = jax.tree.map(lambda leaf, begin=begin: leaf[begin : begin + size], batch.step)
        downhill = jax.grad(critic_loss)(critics, part, target[begin : begin + size])
        critics, moments = _descend(td3.critic_learning_rate, critics, downhill, moments)

    def loss(actor: Array) -> Array:
        action = act(td3.actor, actor, part.observation, part.target)
        return actor_loss(action, critics[0], part.observation, part.target)

    downhill = jax.grad(loss)(learner.actor)
    actor, actor_moments = _descend(td3.actor_learning_rate, learner.actor, downhill, learner.actor_moments)
    follow = partial(jax.tree.map, lambda old, new: old + td3.target_rate * (new - old))
    return Learner(
        actor=actor,
        critics=critics,
        target_actor=follow(learner.target_actor, actor),
        target_critics=follow(learner.target_critics, critics),
        actor_moments=actor_moments,
        critic_moments=moments,
    )


def train(td3: TD3, learner: Learner, memory: Buffer, key: Key[Array, ""], *, critic_steps: int) -> Learner:
    """So many critic steps, a multiple of `delay`, with minibatches drawn from a buffer of `Steps`."""
    rows = td3.delay * td3.minibatch_size

    def body(i: Array, learner: Learner, shared: tuple[Buffer, Array]) -> Learner:
        memory, key = shared
        batch_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
        noise = jax.random.normal(noise_key, (rows, td3.actor.act_size))
        return update(td3, learner, draw(memory, batch_key, rows), noise)

    return repeat(body, critic_steps // td3.delay, learner, (memory, key), stretch=max(1, STRETCH // rows))


def policy_gradient(
    parent: Float[Array, " params"],
    observations: Float[Array, "steps rows obs"],
    critic: Layers,
    condition: Float[Array, " dims"] | None = None,
    *,
    policy: AbstractPolicy,
    learning_rate: float,
) -> Float[Array, " params"]:
    """Variation of one individual: an Adam step up a critic's opinion of its actions for each minibatch."""

    def climb(carry: tuple[Array, Any], observation: Array) -> tuple[tuple[Array, Any], None]:
        genotype, moments = carry
        aim = None if condition is None else jnp.broadcast_to(condition, (len(observation), len(condition)))
        loss = lambda genotype: actor_loss(policy.act(genotype, observation), critic, observation, aim)
        return _descend(learning_rate, genotype, jax.grad(loss)(genotype), moments), None

    (child, _), _ = jax.lax.scan(climb, (parent, optax.adam(learning_rate).init(parent)), observations)
    return child


def _descend(learning_rate: float, parameters: Any, gradient: Any, moments: Any) -> tuple[Any, Any]:
    """One step of Adam."""
    step, moments = optax.adam(learning_rate).update(gradient, moments)
    return optax.apply_updates(parameters, step), moments


def _given(condition: Array | None) -> list[Array]:
    return [] if condition is None else [condition]
