"""A state as one array of its numbers."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class Flattening(NamedTuple):
    """How states whose arrays all end in the same axis become one array, and states again.

    Whole numbers keep their bits: they are moved, never computed with, while they pass for float32.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]  # without the last axis
    dtypes: tuple[Any, ...]

    @classmethod
    def of(cls, state: PyTree) -> "Flattening":
        """For states like this one, or like this description of one."""
        leaves, structure = jax.tree.flatten(state)
        for leaf in leaves:
            if not jnp.issubdtype(leaf.dtype, jnp.bool_) and leaf.dtype.itemsize != 4:
                raise TypeError(f"a state is made of numbers of 32 bits and of truth values; got {leaf.dtype}")
        return cls(structure, tuple(leaf.shape[:-1] for leaf in leaves), tuple(leaf.dtype for leaf in leaves))

    def flat(self, state: PyTree) -> Float[Array, "size width"]:
        rows = lambda leaf: _as_float(leaf).reshape(-1, leaf.shape[-1])
        return jnp.concatenate([rows(leaf) for leaf in jax.tree.leaves(state)])

    def unflat(self, flat: Float[Array, "size width"]) -> PyTree:
        leaves, begin = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            end = begin + math.prod(shape)
            leaves.append(_from_float(flat[begin:end].reshape(*shape, flat.shape[-1]), dtype))
            begin = end
        return jax.tree.unflatten(self.structure, leaves)


def _as_float(leaf: Array) -> Array:
    if jnp.issubdtype(leaf.dtype, jnp.bool_):
        return leaf.astype(jnp.float32)
    return leaf if leaf.dtype == jnp.float32 else jax.lax.bitcast_convert_type(leaf, jnp.float32)


def _from_float(leaf: Array, dtype: Any) -> Array:
    if jnp.issubdtype(dtype, jnp.bool_):
        return leaf > 0.5
    return leaf if dtype == jnp.float32 else jax.lax.bitcast_convert_type(leaf, dtype)
