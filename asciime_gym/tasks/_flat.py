"""A state as one array of its numbers."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class Flat(NamedTuple):
    """The float32 arrays of a state whose arrays all end in the same axis, one under the other, and the other ones."""

    numbers: Float[Array, "*batch size width"]
    rest: tuple[Array, ...]


class Flattening(NamedTuple):
    """How states of one kind become flat, and states again."""

    structure: Any
    shapes: tuple[tuple[int, ...] | None, ...]  # without the last axis; `None` for what is not float32

    @classmethod
    def of(cls, state: PyTree) -> "Flattening":
        """For states like this one, or like this description of one."""
        leaves, structure = jax.tree.flatten(state)
        return cls(structure, tuple(leaf.shape[:-1] if leaf.dtype == jnp.float32 else None for leaf in leaves))

    def flat(self, state: PyTree) -> Flat:
        leaves = list(zip(jax.tree.leaves(state), self.shapes, strict=True))
        numbers = [leaf.reshape(-1, leaf.shape[-1]) for leaf, shape in leaves if shape is not None]
        return Flat(jnp.concatenate(numbers), tuple(leaf for leaf, shape in leaves if shape is None))

    def unflat(self, flat: Flat) -> PyTree:
        leaves, rest, begin = [], iter(flat.rest), 0
        for shape in self.shapes:
            if shape is None:
                leaves.append(next(rest))
                continue
            end = begin + math.prod(shape)
            leaves.append(flat.numbers[begin:end].reshape(*shape, -1))
            begin = end
        return jax.tree.unflatten(self.structure, leaves)
