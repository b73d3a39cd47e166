"""Rows that replace others, where few of many do."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ._compile import by_platform


def overwrite(old: PyTree, new: PyTree, place: Int[Array, " rows"], wanted: Bool[Array, " rows"]) -> PyTree:
    """`old` with those rows of `new` that are wanted at their places in it, no two of them at the same.

    A CPU copies one row after the other, and only those: told to drop the rest, it takes up to a hundred times as long,
    because it stores each of them beyond the array's end, with nothing of it unmasked.
    """

    def one_by_one(old: PyTree, new: PyTree, place: Array, wanted: Array) -> PyTree:
        order = jnp.argsort(~wanted, stable=True)

        def copy(i: Array, old: PyTree) -> PyTree:
            row = order[i]
            put = lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new[row], place[row], 0)
            return jax.tree.map(put, old, new)

        return jax.lax.fori_loop(0, wanted.sum(), copy, old)

    def at_once(old: PyTree, new: PyTree, place: Array, wanted: Array) -> PyTree:
        size = len(jax.tree.leaves(old)[0])
        index = jnp.where(wanted, place, size)
        return jax.tree.map(lambda old, new: old.at[index].set(new, mode="drop"), old, new)

    return by_platform(old, new, place, wanted, cpu=one_by_one, default=at_once)
