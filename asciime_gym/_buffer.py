"""Ring buffers of episodes and of single steps: a few pure functions over a pytree."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .tasks._task import Trajectory


class Buffer(eqx.Module):
    """The last `capacity` items that were added."""

    items: PyTree  # leaves [capacity, ...]
    cursor: Int[Array, ""]  # where the next item goes
    count: Int[Array, ""]  # how many items there are

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.items)[0].shape[0]


def empty_buffer(capacity: int, like: PyTree) -> Buffer:
    """A buffer for items that look like the rows of `like` (shapes suffice)."""
    items = jax.tree.map(lambda row: jnp.zeros((capacity, *row.shape[1:]), row.dtype), like)
    return Buffer(items, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(buffer: Buffer, rows: PyTree, valid: Bool[Array, " rows"]) -> Buffer:
    """Writes the valid rows over the oldest items; of more rows than fit, the last ones stay."""
    capacity = buffer.capacity
    total = valid.sum(dtype=jnp.int32)
    rank = jnp.cumsum(valid, dtype=jnp.int32) - 1
    stays = valid & (rank >= total - capacity)
    place = jnp.where(stays, (buffer.cursor + rank) % capacity, capacity)
    items = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), buffer.items, rows)
    return Buffer(items, (buffer.cursor + total) % capacity, jnp.minimum(buffer.count + total, capacity))


def sample(buffer: Buffer, key: Key[Array, ""], count: int) -> Int[Array, " count"]:
    """Positions of items drawn uniformly with replacement; of an empty buffer, an all-zero item."""
    return jax.random.randint(key, (count,), 0, jnp.maximum(buffer.count, 1))


@partial(jax.jit, static_argnums=1)
def resize(buffer: Buffer, capacity: int) -> Buffer:
    """The buffer with room for `capacity` items; of more items than fit, the newest stay.

    Items keep their places, unless some were overwritten already or do not fit: then the oldest that stays comes first.
    """
    kept = jnp.minimum(buffer.count, capacity)
    oldest = (buffer.cursor - kept) % buffer.capacity
    place = (oldest + jnp.arange(capacity)) % buffer.capacity
    there = jnp.arange(capacity) < kept

    def move(leaf: Array) -> Array:
        rows = leaf[place]
        return jnp.where(there.reshape(-1, *(1,) * (leaf.ndim - 1)), rows, jnp.zeros_like(rows))

    return Buffer(jax.tree.map(move, buffer.items), kept % capacity, kept)


class Steps(eqx.Module):
    """Steps of episodes, one row after another: what a step led to is seen by the row after it.

    The last step of an episode needs no such row: it is `terminated`, so that nothing follows, or `truncated`.
    """

    observation: Float[Array, "*rows obs"]
    action: Float[Array, "*rows act"]
    reward: Float[Array, "*rows"]
    terminated: Bool[Array, "*rows"]
    truncated: Bool[Array, "*rows"]  # the last one before the episode was cut off
    target: Float[Array, "*rows dims"] | None  # the descriptor aimed at


class Transitions(eqx.Module):
    """Steps with what they led to."""

    step: Steps
    next_observation: Float[Array, "*rows obs"]  # means nothing where the step is terminated or truncated


def steps_of(
    trajectory: Trajectory, reward: Float[Array, "batch time"], target: Float[Array, "batch dims"] | None
) -> Steps:
    """All steps of a batch of episodes in one row, those after an episode's end included.

    `reward` is what is to be learnt from, `target` the same for all steps of an episode.
    """
    alive = trajectory.alive
    goes_on = jnp.pad(alive[:, 1:], ((0, 0), (0, 1)))
    steps = Steps(
        observation=trajectory.observation,
        action=trajectory.action,
        reward=reward,
        terminated=trajectory.terminated,
        truncated=alive & ~goes_on & ~trajectory.terminated,
        target=None if target is None else jnp.repeat(target[:, None], alive.shape[1], axis=1),
    )
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps)


def draw(buffer: Buffer, key: Key[Array, ""], count: int) -> Transitions:
    """Transitions drawn uniformly with replacement from a buffer of steps, to which whole episodes were added."""
    place = sample(buffer, key, count)
    step = jax.tree.map(lambda leaf: leaf[place], buffer.items)
    return Transitions(step, buffer.items.observation[(place + 1) % buffer.capacity])
