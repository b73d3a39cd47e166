"""PPO: Schulman, Wolski, Dhariwal, Radford & Klimov (2017), arXiv:1707.06347; several agents in one program.

Each agent maximises its own weighted sum of the rewards, in environments of its own. Between iterations the networks
are in plain terms (`normalise.py`); an iteration puts them into those of the statistics so far, which does not change
what they do.
"""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from .._policy import MLP
from .._spread import apart, each_row
from ..tasks._task import AbstractSimulator
from .adam import Moments, adam, no_moments
from .experience import Actors, Experience, collect, open_worlds, tile_size
from .normalise import Normaliser, merged, normalised, plain, unseen

BLOCKS = (
    4  # parts of a minibatch whose gradients are summed in order: so it does not matter which device computes which
)


class PPO(eqx.Module):
    """Networks and hyperparameters."""

    actor: MLP  # the mean of the actions
    critic: MLP  # the value of a state
    environments: int  # of each agent
    rollout: int  # steps of each of them per iteration
    minibatches: int
    epochs: int
    clip: float  # how far from 1 the ratio of probabilities counts
    value_coefficient: float
    max_gradient_norm: float  # of the policy's and of the value function's gradient
    learning_rate: float
    discount: float
    trace: float  # λ of the advantages
    normalise_observations: bool = True
    normalise_returns: bool = True


class Agents(eqx.Module):
    """What is learnt, in plain terms."""

    actor: Float[Array, "agents params"]
    log_std: Float[Array, "agents act"]
    critic: Float[Array, "agents values"]
    returns: Normaliser  # of what each value function should have said


class _Nets(eqx.Module):
    """One agent's, or all agents', in the terms that they are trained in."""

    actor: Float[Array, "*agents params"]
    log_std: Float[Array, "*agents act"]
    critic: Float[Array, "*agents values"]


def train(
    ppo: PPO,
    simulator: AbstractSimulator,
    agents: Agents,
    weights: Float[Array, "agents rewards"],
    seen: Normaliser,
    key: Key[Array, ""],
    *,
    iterations: int,
) -> tuple[Agents, Normaliser]:
    """The agents after so many iterations in fresh environments, with a fresh Adam.

    **Arguments:**

    - `weights`: of the step's reward and of each dimension of its descriptor, for each agent.
    - `seen`: statistics of the observations; all agents add to them.
    """
    count, size = len(weights), tile_size(ppo.environments)
    tiles = ppo.environments // size
    owner = jnp.repeat(jnp.arange(count), tiles)
    start_key, key = jax.random.split(key)
    play = partial(collect, simulator, critic=ppo.critic, steps=ppo.rollout, discount=ppo.discount, trace=ppo.trace)

    def iteration(carry: Any, key: Array) -> tuple[Any, None]:
        agents, moments, seen, worlds = carry
        play_key, learn_key = jax.random.split(key)
        actors = Actors(agents.actor, agents.log_std, agents.critic, weights)
        worlds, tiled, summary = play(actors, worlds, owner, play_key)
        update = lambda seen, mean, variance: merged(seen, mean, variance, ppo.rollout * size)
        seen = apart(update)(seen, *summary.observation) if ppo.normalise_observations else seen
        own = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[3:]), tiled)
        of_each = jax.tree.map(
            lambda leaf: leaf.reshape(count, tiles, *leaf.shape[1:], 1), (summary.advantage, summary.value)
        )
        agents, moments = _improve(ppo, agents, moments, own, of_each, seen, learn_key)
        return (agents, moments, seen, worlds), None

    nets = _Nets(agents.actor, agents.log_std, agents.critic)
    worlds = open_worlds(simulator, start_key, count * tiles, size)
    begin = agents, jax.vmap(no_moments)(nets), seen, worlds
    (agents, _, seen, _), _ = jax.lax.scan(iteration, begin, jax.random.split(key, iterations))
    return agents, seen


def _improve(
    ppo: PPO, agents: Agents, moments: Moments, own: Experience, summary: Any, seen: Normaliser, key: Array
) -> tuple[Agents, Moments]:
    """The agents after an iteration's epochs on their own experience; `summary`: of its advantages and values."""
    nets, own, returns = apart(partial(_normalised, ppo))(agents, own, summary, seen)
    nets, moments = _learn(ppo, nets, moments, own, key)
    return apart(partial(_plain, ppo))(nets, returns, seen), moments


def _normalised(
    ppo: PPO, agents: Agents, own: Experience, summary: Any, seen: Normaliser
) -> tuple[_Nets, Experience, Normaliser]:
    """Networks and experience in the terms to train in, and the statistics of returns that these are."""
    samples, tiles = own.value.shape[1], summary[0][0].shape[1]
    rows = samples // tiles
    most = 10 * samples  # value functions forget what was long ago: the policy is another now
    surprise = jax.vmap(lambda mean, variance: merged(unseen(1), mean, variance, rows))(*summary[0])
    returns = agents.returns
    if ppo.normalise_returns:
        returns = jax.vmap(lambda old, mean, variance: merged(old, mean, variance, rows, most))(returns, *summary[1])
    nets = _Nets(
        jax.vmap(lambda actor: normalised(ppo.actor, actor, seen))(agents.actor),
        agents.log_std,
        jax.vmap(lambda critic, said: normalised(ppo.critic, critic, seen, said))(agents.critic, returns),
    )
    own = Experience(
        observation=seen(own.observation),
        action=own.action,
        log_probability=own.log_probability,
        advantage=_by(surprise, own.advantage),
        value=_by(returns, own.value),
    )
    return nets, own, returns


def _plain(ppo: PPO, nets: _Nets, returns: Normaliser, seen: Normaliser) -> Agents:
    """Undoes that."""
    return Agents(
        jax.vmap(lambda actor: plain(ppo.actor, actor, seen))(nets.actor),
        nets.log_std,
        jax.vmap(lambda critic, said: plain(ppo.critic, critic, seen, said))(nets.critic, returns),
        returns,
    )


def _learn(ppo: PPO, nets: _Nets, moments: Moments, own: Experience, key: Array) -> tuple[_Nets, Moments]:
    """Epochs of minibatches, each epoch in an order of its own."""
    count, samples = own.value.shape
    blocks = math.gcd(BLOCKS, samples // ppo.minibatches)
    owner = jnp.repeat(jnp.arange(count), blocks)

    def gradient(row: tuple[Array, Array], shared: tuple[_Nets, Experience]) -> _Nets:
        (agent, index), (nets, own) = row, shared
        part = jax.tree.map(lambda leaf: leaf[agent, index], own)
        return jax.grad(partial(loss, ppo))(jax.tree.map(lambda leaf: leaf[agent], nets), part)

    def minibatch(carry: tuple[_Nets, Moments], index: Array) -> tuple[tuple[_Nets, Moments], None]:
        nets, moments = carry
        parts = each_row(gradient, (owner, index), (nets, own))
        return apart(step)(nets, parts, moments), None

    def step(nets: _Nets, parts: _Nets, moments: Moments) -> tuple[_Nets, Moments]:
        downhill = jax.tree.map(lambda leaf: leaf.reshape(count, blocks, -1).mean(axis=1), parts)
        one = lambda nets, downhill, moments: adam(
            nets, _tamed(ppo, downhill), moments, learning_rate=ppo.learning_rate, eps=1e-5
        )
        return jax.vmap(one)(nets, downhill, moments)

    return jax.lax.scan(minibatch, (nets, moments), shuffled(ppo, count, samples, blocks, key))[0]


def shuffled(
    ppo: PPO, agents: int, samples: int, blocks: int, key: Key[Array, ""]
) -> Int[Array, "steps agents_and_blocks rows"]:
    """Which of its samples each block of each agent learns from, minibatch after minibatch: every epoch all of them."""
    order = lambda key: jax.random.permutation(key, samples)
    orders = jax.vmap(jax.vmap(order))(jax.random.split(key, (ppo.epochs, agents)))
    parts = orders.reshape(ppo.epochs, agents, ppo.minibatches, blocks, -1).swapaxes(1, 2)
    return parts.reshape(ppo.epochs * ppo.minibatches, agents * blocks, -1)


def loss(ppo: PPO, nets: _Nets, part: Experience) -> Float[Array, ""]:
    """What one agent's minibatch, or a part of it, says against the agent."""
    off = (part.action - ppo.actor.act(nets.actor, part.observation)) * jnp.exp(-nets.log_std)
    log_probability = -jnp.sum(off**2, axis=-1) / 2 - nets.log_std.sum()
    ratio = jnp.exp(log_probability - part.log_probability)
    clipped = jnp.clip(ratio, 1 - ppo.clip, 1 + ppo.clip)
    gain = jnp.mean(jnp.minimum(ratio * part.advantage, clipped * part.advantage))
    error = jnp.mean((ppo.critic.act(nets.critic, part.observation)[..., 0] - part.value) ** 2)
    return ppo.value_coefficient * error - gain


def _tamed(ppo: PPO, downhill: _Nets) -> _Nets:
    """One agent's gradients: the policy's and the value function's no longer than allowed, and nothing if not finite.

    An agent that has lost its footing stays where it is, rather than become not-a-number.
    """

    def limited(tree: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))
        scale = jnp.minimum(1.0, ppo.max_gradient_norm / (norm + 1e-6))
        return jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(norm), leaf * scale, 0.0), tree)

    actor, log_std = limited((downhill.actor, downhill.log_std))
    return _Nets(actor, log_std, limited(downhill.critic))


def _by(normalisers: Normaliser, values: Float[Array, "agents samples"]) -> Float[Array, "agents samples"]:
    """Each agent's values, normalised."""
    return jax.vmap(lambda normaliser, values: normaliser(values[:, None])[:, 0])(normalisers, values)
