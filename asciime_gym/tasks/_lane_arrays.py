"""The arrays of a program: known, mixed or whole.

A known array is an ordinary NumPy array; a mixed one is a NumPy array of objects, the `Scalar`s; a `Whole`
one is a JAX array that has not been taken apart into scalars, because it is large or because nobody has
looked inside yet.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.core import Tracer

from ._lane_blocks import Lane, Scalar
from ._lane_scalars import Scope

TALL = 64  # the most rows that are stacked inside a kernel; XLA would spread the stacking of many over threads


class Whole:
    """An array in one piece: lane axis last, or none if it is the same in all environments."""

    def __init__(self, value: jax.Array, axis: int | None = -1):
        self.value, self.axis = value, axis
        self.shape = value.shape if axis is None else value.shape[:-1]


Value: TypeAlias = np.ndarray | Whole


def is_known(x: Value) -> TypeGuard[np.ndarray]:
    return isinstance(x, np.ndarray) and x.dtype != object


def array(scalars: Iterable[Scalar], shape: Sequence[int]) -> np.ndarray:
    """A mixed array."""
    return np.fromiter(scalars, object, math.prod(shape)).reshape(shape)


def scalars(x: np.ndarray) -> np.ndarray:
    """The array as a mixed one: `astype(object)` would lose the dtype of its elements."""
    return array(x.reshape(-1), x.shape) if is_known(x) else x


def together(*xs: np.ndarray) -> list[np.ndarray]:
    """The arrays in one representation, ready to be put into one array."""
    return list(xs) if all(map(is_known, xs)) else [scalars(x) for x in xs]


def row(i: int, x: jax.Array) -> jax.Array:
    return lax.squeeze(lax.slice_in_dim(x, i, i + 1), [0])


def stack(shape: tuple[int, ...], *rows: jax.Array) -> jax.Array:
    return lax.reshape(lax.concatenate([lax.expand_dims(x, [0]) for x in rows], 0), (*shape, *rows[0].shape))


def apart(scope: Scope, x: Value) -> np.ndarray:
    """The array as a known or mixed one."""
    if isinstance(x, np.ndarray):
        return x
    if x not in scope.done:
        size, source = math.prod(x.shape), Lane()
        scope.values[source] = lax.reshape(whole(scope, x)[0], (size, scope.n))
        scope.done[x] = array((Lane(functools.partial(row, i), source) for i in range(size)), x.shape)
    return scope.done[x]


def whole(scope: Scope, *xs: Value) -> list[jax.Array]:
    """Arrays in one piece, lane axis last; all at once, because they may share much of their computation."""
    mixed = {i: x for i, x in enumerate(xs) if isinstance(x, np.ndarray) and not is_known(x)}
    stacks = {i: Lane(functools.partial(stack, x.shape), *x.flat) for i, x in mixed.items() if x.size <= TALL}
    tall = [s for i, x in mixed.items() if i not in stacks for s in x.flat if isinstance(s, Lane)]
    scope.vectors([*stacks.values(), *tall])

    def piece(i: int, x: Value) -> jax.Array:
        if i in stacks:
            return scope.values[stacks[i]]
        if i in mixed:
            return stack(x.shape, *[scope.vector(s) for s in mixed[i].flat])
        if isinstance(x, Whole) and x.axis == -1:
            return x.value
        value = x.value if isinstance(x, Whole) else x
        return scope.vary(lax.broadcast_in_dim(value, (*x.shape, scope.n), range(len(x.shape))))

    return [piece(i, x) for i, x in enumerate(xs)]


def settle(x: Value, aval: Any) -> Value:
    """An array without lanes becomes a known one; so does an empty one."""
    if isinstance(x, Whole):
        return x if math.prod(x.shape) else np.zeros(aval.shape, aval.dtype)
    return x if is_known(x) or any(isinstance(s, Lane) for s in x.flat) else x.astype(aval.dtype)


def constant(x: Any) -> Value:
    """A constant of a jaxpr: known, unless it is being traced (a closure) or has no NumPy dtype (a key)."""
    traced = isinstance(x, Tracer) or jnp.issubdtype(x.dtype, jax.dtypes.extended)
    return settle(Whole(x, None), x) if traced else np.asarray(x)
