"""Steps for PPO to learn from: many environments of each agent, which go on from one rollout to the next."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .._policy import MLP
from .._spread import apart, each_row, spread
from ..tasks._task import AbstractSimulator, SimulatorState
from ..tasks.lanes import lanes
from ..tasks.rollout import TILE, _reset, _step, beginnings


class Actors(eqx.Module):
    """What acts, and what it is for: a Gaussian policy, its value function, and the weights of the rewards."""

    actor: Float[Array, "*agents params"]
    log_std: Float[Array, "*agents act"]
    critic: Float[Array, "*agents values"]
    weights: Float[Array, "*agents rewards"]  # of the fitness, and of each dimension of the descriptor


class Worlds(eqx.Module):
    """Environments by tile; in every array the environment is the last axis."""

    state: PyTree
    start: PyTree  # what they began with; one that ends goes on from any of its tile's


class Experience(eqx.Module):
    """Steps, and what came of them."""

    observation: Float[Array, "*steps obs"]
    action: Float[Array, "*steps act"]
    log_probability: Float[Array, "*steps"]  # but for a constant
    advantage: Float[Array, "*steps"]
    value: Float[Array, "*steps"]  # what the value function should say


class Summary(eqx.Module):
    """Means and variances of a tile's experience."""

    observation: tuple[Float[Array, "*tiles obs"], Float[Array, "*tiles obs"]]
    advantage: tuple[Float[Array, "*tiles"], Float[Array, "*tiles"]]
    value: tuple[Float[Array, "*tiles"], Float[Array, "*tiles"]]


def tile_size(environments: int) -> int:
    """Environments that step together: as many as can, of tiles that are all of one size."""
    return max(size for size in range(1, TILE + 1) if environments % size == 0)


def open_worlds(simulator: AbstractSimulator, key: Key[Array, ""], tiles: int, size: int) -> Worlds:
    """Environments at the beginning of an episode."""
    begin = lambda keys, _: beginnings(simulator, keys)
    at_once = lambda keys, _: jax.vmap(partial(_reset, simulator))(keys)
    keys = jax.random.split(key, (tiles, size))
    start = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, -1), each_row(begin, keys, at_once=at_once))
    return Worlds(start, start)


def collect(
    simulator: AbstractSimulator,
    actors: Actors,
    worlds: Worlds,
    agent: Int[Array, " tiles"],
    key: Key[Array, ""],
    *,
    critic: MLP,
    steps: int,
    discount: float,
    trace: float,
) -> tuple[Worlds, Experience, Summary]:
    """So many steps of every environment, spread over all devices.

    **Arguments:**

    - `agent`: whose environments each tile holds.

    **Returns:** the environments as they stand then; the experience, `[tiles, steps, environments, …]`; its summary.
    """

    def tile(in_lanes: bool) -> Callable:
        def play(row: Any, actors: Actors) -> Any:
            agent, worlds, key = row
            own = jax.tree.map(lambda leaf: leaf[agent], actors)
            state, seen, last = _play(simulator, in_lanes, own, worlds, key, steps)
            judge = lambda genotype, seen, last: _judged(critic, genotype, seen, last, discount, trace)
            experience = apart(judge)(own.critic, seen, last)
            return state, experience, apart(_summary)(experience)

        return play

    rows = agent, worlds, jax.random.split(key, len(agent))
    if simulator.lanes:
        in_lanes = lambda rows, actors: jax.lax.map(lambda row: tile(True)(row, actors), rows)
        state, experience, summary = spread(in_lanes, rows, actors)
    else:
        state, experience, summary = each_row(tile(simulator.lanes is None), rows, actors, at_once=tile(False))
    return Worlds(state, worlds.start), experience, summary


class _Seen(eqx.Module):
    """What is recorded of a step, before it is judged."""

    observation: Float[Array, "*steps obs"]
    action: Float[Array, "*steps act"]
    log_probability: Float[Array, "*steps"]
    reward: Float[Array, "*steps"]
    ended: Bool[Array, "*steps"]


def _play(
    simulator: AbstractSimulator, in_lanes: bool, actors: Actors, worlds: Worlds, key: Key[Array, ""], steps: int
) -> tuple[PyTree, _Seen, Float[Array, "lanes obs"]]:
    """One tile: where it stands after so many steps, what was seen, and what is to be seen next."""
    step = partial(_step, simulator)
    step_all = lanes(step) if in_lanes else jax.vmap(step, -1, -1)
    size = worlds.state.time.shape[-1]
    noise_key, place_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (steps, size, simulator.policy.act_size))
    places = jax.random.randint(place_key, (steps, size), 0, size)

    def body(state: SimulatorState, drawn: tuple[Array, Array]) -> tuple[SimulatorState, _Seen]:
        noise, place = drawn
        observation = state.observation.T
        action = simulator.policy.act(actors.actor, observation) + jnp.exp(actors.log_std) * noise
        after = step_all(state, action.T)
        rewards = step_rewards(simulator.episode_descriptor, state, after)
        whole = jnp.isfinite(rewards).all(axis=0) & jnp.isfinite(after.observation).all(axis=0)
        # The policy sees the time, and fitness counts nothing that comes after it: cut off is over, too.
        ended = after.terminated | after.truncated | ~whole
        reward = jnp.where(whole, actors.weights @ rewards, 0.0)
        log_probability = -jnp.sum(noise**2, axis=1) / 2 - actors.log_std.sum()
        again = jax.tree.map(lambda new, first: jnp.where(ended, first[..., place], new), after, worlds.start)
        return again, _Seen(observation, action, log_probability, reward, ended)

    state, seen = jax.lax.scan(body, worlds.state, (noise, places))
    return state, seen, state.observation.T


def step_rewards(kind: str, before: SimulatorState, after: SimulatorState) -> Float[Array, "rewards lanes"]:
    """What a step gives: its reward, and in each dimension of the descriptor its part of the episode's.

    Where the episode's descriptor is the mean of the steps', that is the step's own; where it is the last, it is the
    progress, which sums to the last: the first step's begins at 0.
    """
    if kind == "mean":
        return jnp.concatenate([after.reward[None], after.descriptor])
    progress = after.descriptor - jnp.where(before.time == 0, 0.0, before.descriptor)
    return jnp.concatenate([after.reward[None], progress])


def _judged(critic: MLP, genotype: Array, seen: _Seen, last: Array, discount: float, trace: float) -> Experience:
    observation = jnp.concatenate([seen.observation, last[None]])
    value = critic.act(genotype, observation)[..., 0]
    advantage = advantages(seen.reward, value, seen.ended, discount, trace)
    return Experience(seen.observation, seen.action, seen.log_probability, advantage, advantage + value[:-1])


def _summary(experience: Experience) -> Summary:
    # Here, by tile, rather than of all: so the sums are the same on any number of devices.
    moments = lambda leaf: (leaf.mean(axis=(0, 1)), leaf.var(axis=(0, 1)))
    return Summary(moments(experience.observation), moments(experience.advantage), moments(experience.value))


def advantages(
    reward: Float[Array, "steps *lanes"],
    value: Float[Array, "steps_and_one *lanes"],
    ended: Bool[Array, "steps *lanes"],
    discount: float,
    trace: float,
) -> Float[Array, "steps *lanes"]:
    """Generalised advantages: Schulman, Moritz, Levine, Jordan & Abbeel (2016), arXiv:1506.02438.

    `value` is what is expected of each state, the one after the last step included; nothing is after an end.
    """
    onward = jnp.where(ended, 0.0, discount)
    surprise = reward + onward * value[1:] - value[:-1]

    def back(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        surprise, onward = step
        advantage = surprise + onward * trace * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(value[0]), (surprise, onward), reverse=True)[1]
