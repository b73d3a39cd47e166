"""Rules for reading and writing at indices, which cost nothing where the indices are known.

They return `NotImplemented` where an index is a lane.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Primitive

from ._lane_arrays import is_known, scalars, together
from ._lane_scalars import Scope

Axes: TypeAlias = Sequence[Any]  # numbers of axes; JAX mixes Python's integers with NumPy's


def window(x: np.ndarray, sizes: Sequence[int], starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    """The window of x at known starts, moved inside where it would stick out."""
    firsts = [min(max(int(i), 0), full - size) for i, full, size in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def dynamic_slice(scope: Scope, eqn: JaxprEqn, x: np.ndarray, *starts: np.ndarray) -> Any:
    return x[window(x, eqn.params["slice_sizes"], starts)] if all(map(is_known, starts)) else NotImplemented


def dynamic_update_slice(scope: Scope, eqn: JaxprEqn, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> Any:
    if not all(map(is_known, starts)):
        return NotImplemented
    x, update = together(x, update)
    out = x.copy()
    out[window(x, update.shape, starts)] = update
    return out


def positions(
    shape: Axes, index: np.ndarray, moved: Axes, sizes: Axes,
    windows: Axes, kept: Axes, batching: tuple[Axes, Axes],
    out: Axes, clip: bool,
) -> np.ndarray:  # fmt: skip
    """Which element of an array of `shape` each element of a gather's output or scatter's update belongs to.

    `index[..., k]` is where the window starts along axis `moved[k]`; the axes `windows` of the output run
    inside the window along the axes `kept`, its other axes run over the index. A window that sticks out is
    moved inside if it may be clipped; else its elements are at -1.
    """
    grid = np.indices(out, sparse=True)
    over = tuple(g for i, g in enumerate(grid) if i not in windows)
    result, outside = np.zeros((), np.int64), np.zeros((), bool)
    for axis, (full, size) in enumerate(zip(shape, sizes, strict=True)):
        at = np.zeros((), np.int64)
        if axis in moved:
            start = index[(*over, moved.index(axis))].astype(np.int64)
            at = np.clip(start, 0, full - size)
            outside = outside | (start != at)
        elif axis in batching[0]:
            at = over[batching[1][batching[0].index(axis)]]
        if axis in kept:
            at = at + grid[windows[kept.index(axis)]]
        result = result * full + at
    return np.broadcast_to(result if clip else np.where(outside, -1, result), out)


def gather(scope: Scope, eqn: JaxprEqn, x: np.ndarray, index: np.ndarray) -> Any:
    if not is_known(index):
        return NotImplemented
    p, d = eqn.params, eqn.params["dimension_numbers"]
    out: Any = eqn.outvars[0].aval
    kept = [i for i in range(x.ndim) if i not in (*d.collapsed_slice_dims, *d.operand_batching_dims)]
    picked = positions(
        x.shape, index, d.start_index_map, p["slice_sizes"], d.offset_dims, kept,
        (d.operand_batching_dims, d.start_indices_batching_dims), out.shape,
        p["mode"] != lax.GatherScatterMode.FILL_OR_DROP,
    )  # fmt: skip
    return NotImplemented if np.any(picked < 0) else x.reshape(-1)[picked]


def scatter(primitive: Primitive | None) -> Callable[..., Any]:
    """Updates at known places, combined with what is there by a primitive or put in its place."""

    def rule(scope: Scope, eqn: JaxprEqn, x: np.ndarray, index: np.ndarray, update: np.ndarray) -> Any:
        applied = primitive is None and eqn.params["update_jaxpr"] is not None  # a function of what is there
        if applied or not is_known(index):
            return NotImplemented
        d = eqn.params["dimension_numbers"]
        kept = [i for i in range(x.ndim) if i not in (*d.inserted_window_dims, *d.operand_batching_dims)]
        sizes = [update.shape[d.update_window_dims[kept.index(i)]] if i in kept else 1 for i in range(x.ndim)]
        landed = positions(
            x.shape, index, d.scatter_dims_to_operand_dims, sizes, d.update_window_dims, kept,
            (d.operand_batching_dims, d.scatter_indices_batching_dims), update.shape,
            eqn.params["mode"] == lax.GatherScatterMode.CLIP,
        )  # fmt: skip
        out: Any = scalars(x).reshape(-1).copy()
        for place, value in zip(landed.reshape(-1), scalars(update).reshape(-1), strict=True):
            if place >= 0:
                out[place] = value if primitive is None else scope.apply(primitive, {}, out[place], value)
        return out.reshape(x.shape)

    return rule
