"""A ring buffer of episodes: a few pure functions over a pytree."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree


class Buffer(eqx.Module):
    """The last `capacity` items that were added."""

    items: PyTree  # leaves [capacity, ...]
    cursor: Int[Array, ""]  # where the next item goes
    count: Int[Array, ""]  # how many items there are


def empty_buffer(capacity: int, like: PyTree) -> Buffer:
    """A buffer for items that look like the rows of `like` (shapes suffice)."""
    items = jax.tree.map(lambda row: jnp.zeros((capacity, *row.shape[1:]), row.dtype), like)
    return Buffer(items, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(buffer: Buffer, rows: PyTree, valid: Bool[Array, " rows"]) -> Buffer:
    """Writes the valid rows over the oldest items; of more rows than fit, the last ones stay."""
    capacity = jax.tree.leaves(buffer.items)[0].shape[0]
    total = valid.sum(dtype=jnp.int32)
    rank = jnp.cumsum(valid, dtype=jnp.int32) - 1
    stays = valid & (rank >= total - capacity)
    place = jnp.where(stays, (buffer.cursor + rank) % capacity, capacity)
    items = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), buffer.items, rows)
    return Buffer(items, (buffer.cursor + total) % capacity, jnp.minimum(buffer.count + total, capacity))


def sample(buffer: Buffer, key: Key[Array, ""], count: int) -> Int[Array, " count"]:
    """Positions of items drawn uniformly with replacement; of an empty buffer, an all-zero item."""
    return jax.random.randint(key, (count,), 0, jnp.maximum(buffer.count, 1))
