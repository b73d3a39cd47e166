"""Novelty: how far from what was seen before."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._spread import each_row

TILE = 1024  # points that are compared at a time


def novelty(
    points: Float[Array, "rows dims"],
    seen: Float[Array, "capacity dims"],
    count: Int[Array, ""],
    neighbours: int,
) -> Float[Array, " rows"]:
    """The mean distance of each point to its nearest among the first `count` of `seen`; 0 where there are none.

    Of fewer than `neighbours`, the mean over those there are. The work is proportional to `count`, and no array is
    larger than a tile for each row.
    """
    missing = -len(seen) % TILE
    tiles = jnp.pad(seen, ((0, missing), (0, 0))).reshape(-1, TILE, seen.shape[1])

    def of_one(point: Array, shared: tuple[Array, Array]) -> Array:
        tiles, count = shared

        def body(i: Array, nearest: Array) -> Array:
            there = i * TILE + jnp.arange(TILE) < count
            distance = jnp.where(there, jnp.sum((tiles[i] - point) ** 2, axis=1), jnp.inf)
            return -jax.lax.top_k(-jnp.concatenate([nearest, distance]), neighbours)[0]

        nearest = jax.lax.fori_loop(0, -(-count // TILE), body, jnp.full(neighbours, jnp.inf))
        known = jnp.isfinite(nearest)
        return jnp.sum(jnp.sqrt(jnp.where(known, nearest, 0.0))) / jnp.maximum(known.sum(), 1)

    return each_row(of_one, points, (tiles, count))
