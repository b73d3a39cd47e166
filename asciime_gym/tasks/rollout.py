"""Episodes of many policies at once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ._task import AbstractSimulator, Evaluation, SimulatorState, Trajectory

TILE = 64  # episodes that advance together, and stop together when all of them have ended


def rollout(
    simulator: AbstractSimulator,
    genotypes: Float[Array, "batch params"],
    keys: Key[Array, " batch"],
    *,
    trajectory: bool = True,
    keep: Callable[[SimulatorState], PyTree] | None = None,
) -> tuple[Evaluation, PyTree]:
    """One episode per row, tile by tile.

    **Arguments:**

    - `trajectory`: whether to record the trajectories; they are not materialised otherwise.
    - `keep`: what to record besides of the state after each step.

    **Returns:** the evaluation, and what was kept: leaves `[batch, time, ...]`, zero after an episode's end.
    """
    batch = len(genotypes)
    # Rows are padded to whole tiles with copies of the first, so that a row's arithmetic, and with it the last
    # bit of its result, does not depend on how many others there are.
    fill = jnp.zeros(-batch % TILE, jnp.int32)
    rows = jnp.concatenate([jnp.arange(batch), fill]).reshape(-1, TILE)
    play = lambda rows: _tile(simulator, genotypes[rows], keys[rows], trajectory, keep)
    results = jax.lax.map(play, rows)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:batch], results)


def _tile(simulator: AbstractSimulator, genotypes: Array, keys: Array, trajectory: bool, keep) -> Any:
    time = simulator.episode_length
    act, step = jax.vmap(simulator.policy.act), jax.vmap(simulator.step)
    start = jax.vmap(simulator.reset)(keys)

    def advance(state, alive):
        """One step: the next state, and what is recorded of it, zero where the episode had ended."""
        action = act(genotypes, state.observation)
        after = step(state, action)
        record = {}
        if trajectory:
            flags = dict(alive=alive, terminated=after.terminated)
            record["trajectory"] = Trajectory(state.observation, action, after.reward, **flags)
        if keep is not None:
            record["kept"] = keep(after)
        return after, jax.tree.map(lambda leaf: _where(alive, leaf), record)

    def body(carry):
        t, state, alive, fitness, descriptor, steps, records = carry
        after, record = advance(state, alive)
        fitness += _where(alive, after.reward)
        if simulator.episode_descriptor == "mean":
            descriptor += _where(alive, after.descriptor)
        else:
            descriptor = jnp.where(alive[:, None], after.descriptor, descriptor)
        records = jax.tree.map(lambda rows, row: rows.at[t].set(row), records, record)
        return t + 1, after, alive & ~after.terminated, fitness, descriptor, steps + alive, records

    alive = jnp.ones(len(genotypes), bool)
    shapes = jax.eval_shape(advance, start, alive)[1]
    records = jax.tree.map(lambda leaf: jnp.zeros((time, *leaf.shape), leaf.dtype), shapes)
    zero = jnp.zeros(len(genotypes))
    begin = (
        jnp.zeros((), jnp.int32),
        start,
        alive,
        zero,
        jnp.zeros_like(start.descriptor),
        zero.astype(jnp.int32),
        records,
    )
    going = lambda carry: (carry[0] < time) & carry[2].any()
    _, _, _, fitness, descriptor, steps, records = jax.lax.while_loop(going, body, begin)
    if simulator.episode_descriptor == "mean":
        descriptor /= steps[:, None]
    records = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), records)
    return Evaluation(fitness, descriptor, records.get("trajectory"), steps), records.get("kept")


def _where(alive: Array, leaf: Array) -> Array:
    """`leaf` where a row is alive, zero elsewhere."""
    return jnp.where(alive.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, jnp.zeros_like(leaf))
