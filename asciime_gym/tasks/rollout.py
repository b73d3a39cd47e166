"""Episodes of many policies at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from .._compile import by_platform
from .._policy import in_two
from .._spread import device_count, spread
from ._lane_blocks import one_kernel
from ._task import AbstractSimulator, Evaluation, SimulatorState, Trajectory
from .lanes import lanes

NOBODY = -1  # the number of a row that is there to fill a tile
TILE = 64  # episodes that advance together, and stop together when all of them have ended


def rollout(
    simulator: AbstractSimulator,
    genotypes: Float[Array, "batch params"],
    keys: Key[Array, " batch"],
    *,
    life: Int[Array, " batch"] | None = None,
    trajectory: bool = True,
    keep: Callable[[SimulatorState], PyTree] | None = None,
) -> tuple[Evaluation, PyTree]:
    """One episode per row, tile by tile, the tiles spread over all devices.

    **Arguments:**

    - `life`: steps that each row is expected to live. Rows that should end together share a tile, so that tiles stop
      early; results do not depend on it.

    - `trajectory`: whether to record the trajectories; they are not materialised otherwise.
    - `keep`: what to record besides of the state after each step.

    **Returns:** the evaluation, and what was kept: leaves `[batch, time, ...]`, zero after an episode's end.
    """
    batch, devices = len(genotypes), device_count()
    order = jnp.arange(batch) if life is None else jnp.argsort(-life, stable=True)
    place = jnp.zeros(batch, jnp.int32).at[order].set(jnp.arange(batch))
    share = -(-batch // devices)

    def tiles(in_lanes: bool, width: int) -> Callable:
        """All rows in tiles of this width."""

        def play(rows, shared):
            genotypes, keys = shared
            return jax.lax.map(lambda row: _tile(simulator, in_lanes, row, genotypes, keys, trajectory, keep), rows)

        def results(order, place):
            # Whole tiles only, filled up with rows that never live: what a row's arithmetic is, and with it the last
            # bit of its result, does not depend on how many others there are, nor on where it stands among them.
            filling = jnp.full(-batch % (width * devices), NOBODY)  # and as many tiles for each device
            rows = jnp.concatenate([order, filling]).reshape(-1, width)
            tiled = spread(play, rows, (genotypes, keys))
            return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[place], tiled)

        return results

    if simulator.lanes:
        return tiles(True, TILE)(order, place)
    # Of a CPU a tile stays in the cache; an accelerator takes its whole share at once.
    return by_platform(order, place, cpu=tiles(simulator.lanes is None, TILE), default=tiles(False, share))


# Traced once per simulator, however often and in whichever way a program contains them, so for all platforms alike.
_reset = eqx.filter_jit(lambda simulator, key: simulator.reset(key))
_step = eqx.filter_jit(lambda simulator, state, action: simulator.step(state, action))


def beginnings(simulator: AbstractSimulator, keys: Key[Array, " batch"]) -> SimulatorState:
    """Episodes' beginnings on a CPU: they are few, and one after the other is soonest compiled."""
    reset = partial(_reset, simulator)
    return jax.lax.map(one_kernel(reset) if simulator.short_reset else reset, keys)


def _tile(
    simulator: AbstractSimulator,
    in_lanes: bool,
    rows: Array,
    genotypes: Array,
    keys: Array,
    trajectory: bool,
    keep: Any,
) -> tuple[Evaluation, PyTree]:
    """Episodes that advance together; in every array of their states and records the episode is the last axis."""
    time, count = simulator.episode_length, len(rows)
    genotypes, keys = genotypes[jnp.maximum(rows, 0)], keys[jnp.maximum(rows, 0)]
    prepare, apply = in_two(simulator.policy)
    prepared, act = jax.vmap(prepare)(genotypes), jax.vmap(apply, (0, -1), -1)
    step = partial(_step, simulator)
    start = beginnings(simulator, keys) if in_lanes else jax.vmap(partial(_reset, simulator))(keys)
    start = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), start)
    step_all = lanes(step) if in_lanes else jax.vmap(step, -1, -1)

    def record(state, action, after, alive):
        """What is kept of one step."""
        path = (state.observation, action, after.reward, alive, after.terminated) if trajectory else None
        return path, None if keep is None else keep(after)

    def body(carry):
        t, state, alive, fitness, descriptor, steps, records = carry
        action = act(prepared, state.observation)
        after = step_all(state, action)
        fitness += jnp.where(alive, after.reward, 0.0)
        if simulator.episode_descriptor == "mean":
            descriptor += jnp.where(alive, after.descriptor, 0.0)
        else:
            descriptor = jnp.where(alive, after.descriptor, descriptor)
        write = lambda rows, row: rows.at[t].set(jnp.where(alive, row, jnp.zeros_like(row)))
        records = jax.tree.map(write, records, record(state, action, after, alive))
        return t + 1, after, alive & ~after.terminated, fitness, descriptor, steps + alive, records

    alive, zero = rows != NOBODY, jnp.zeros(count)
    shapes = jax.eval_shape(record, start, jnp.zeros((simulator.policy.act_size, count)), start, alive)
    records = jax.tree.map(lambda leaf: jnp.zeros((time, *leaf.shape), leaf.dtype), shapes)
    begin = (jnp.int32(0), start, alive, zero, jnp.zeros_like(start.descriptor), zero.astype(jnp.int32), records)
    going = lambda carry: (carry[0] < time) & carry[2].any()
    _, _, _, fitness, descriptor, steps, records = jax.lax.while_loop(going, body, begin)
    if simulator.episode_descriptor == "mean":
        descriptor /= jnp.maximum(steps, 1)
    path, kept = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), records)
    return Evaluation(fitness, descriptor.T, path and Trajectory(*path), steps), kept
