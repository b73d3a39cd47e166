"""Rules from the name of a primitive to what it does to known and mixed arrays.

A rule gets the scope, the equation and its operands, and returns the outputs, or `NotImplemented` when it
cannot help.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend.core import JaxprEqn, Primitive

from ._lane_arrays import array, scalars, together
from ._lane_indexing import dynamic_slice, dynamic_update_slice, gather, scatter
from ._lane_scalars import Scope

DOT_LIMIT = 4096  # a larger product is better left to a matrix multiplication


def elementwise(scope: Scope, eqn: JaxprEqn, *xs: np.ndarray) -> np.ndarray:
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    columns = [np.broadcast_to(scalars(x), shape).reshape(-1) for x in xs]
    apply = functools.partial(scope.apply, eqn.primitive, eqn.params)
    return array(map(apply, *columns), shape)


def select_n(scope: Scope, eqn: JaxprEqn, which: np.ndarray, *cases: np.ndarray) -> Any:
    """One of two by a truth value; by a number, of which the shortcuts know nothing, as `vmap` does it."""
    chosen: Any = eqn.invars[0].aval
    return elementwise(scope, eqn, which, *cases) if chosen.dtype == bool else NotImplemented


def reshape(scope: Scope, eqn: JaxprEqn, x: np.ndarray) -> np.ndarray:
    order = eqn.params["dimensions"]
    return (x if order is None else x.transpose(order)).reshape(eqn.params["new_sizes"])


def reduction(primitive: Primitive) -> Callable[..., Any]:
    def rule(scope: Scope, eqn: JaxprEqn, x: np.ndarray) -> Any:
        if not x.size:
            return NotImplemented
        axes = eqn.params["axes"]
        kept = [i for i in range(x.ndim) if i not in axes]
        shape = [x.shape[i] for i in kept]
        rows = scalars(x).transpose([*kept, *axes]).reshape(math.prod(shape), -1)
        combine = functools.partial(scope.apply, primitive, {})
        return array((functools.reduce(combine, row) for row in rows), shape)

    return rule


def converted(scope: Scope, x: np.ndarray, old: Any, new: Any) -> np.ndarray:
    params = {"new_dtype": new, "weak_type": False, "sharding": None}
    convert = functools.partial(scope.apply, lax.convert_element_type_p, params)
    return x if old == new else array(map(convert, scalars(x).flat), x.shape)


def dot_general(scope: Scope, eqn: JaxprEqn, a: np.ndarray, b: np.ndarray) -> Any:
    (ac, bc), (ab, bb) = eqn.params["dimension_numbers"]
    out: Any = eqn.outvars[0].aval
    dtypes = [v.aval.dtype for v in cast(list[Any], eqn.invars)]
    if jnp.result_type(*dtypes) != out.dtype or out.size * math.prod(a.shape[i] for i in ac) > DOT_LIMIT:
        return NotImplemented
    if not a.size * b.size:
        return np.zeros(out.shape, out.dtype)
    a, b = (converted(scope, x, dtype, out.dtype) for x, dtype in zip((a, b), dtypes, strict=True))
    a_free = [i for i in range(a.ndim) if i not in (*ac, *ab)]
    b_free = [i for i in range(b.ndim) if i not in (*bc, *bb)]
    batch = math.prod(a.shape[i] for i in ab)
    a = scalars(a).transpose([*ab, *a_free, *ac]).reshape(batch, math.prod(a.shape[i] for i in a_free), -1)
    b = scalars(b).transpose([*bb, *b_free, *bc]).reshape(batch, math.prod(b.shape[i] for i in b_free), -1)
    times, plus = (functools.partial(scope.apply, p, {}) for p in (lax.mul_p, lax.add_p))
    products = (functools.reduce(plus, map(times, row, col)) for k in range(batch) for row in a[k] for col in b[k])
    return array(products, out.shape)


def broadcast_in_dim(scope: Scope, eqn: JaxprEqn, x: np.ndarray) -> np.ndarray:
    shape = eqn.params["shape"]
    aligned = [1] * len(shape)
    for size, axis in zip(x.shape, eqn.params["broadcast_dimensions"], strict=True):
        aligned[axis] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def concatenate(scope: Scope, eqn: JaxprEqn, *xs: np.ndarray) -> np.ndarray:
    return np.concatenate(together(*xs), eqn.params["dimension"])


def iota(scope: Scope, eqn: JaxprEqn) -> np.ndarray:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    count = np.arange(shape[axis]).astype(eqn.params["dtype"])
    return np.broadcast_to(count.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def pad(scope: Scope, eqn: JaxprEqn, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    x, value = together(x, value)
    config = eqn.params["padding_config"]
    low, high = [max(lo, 0) for lo, _, _ in config], [max(hi, 0) for _, hi, _ in config]
    sizes = [n + max(n - 1, 0) * inside for n, (_, _, inside) in zip(x.shape, config, strict=True)]
    out = np.full(np.add(np.add(low, sizes), high), value, x.dtype)
    filled = [slice(lo, lo + n, c[2] + 1) for lo, n, c in zip(low, sizes, config, strict=True)]
    out[tuple(filled)] = x
    kept = [slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi, _) in zip(out.shape, config, strict=True)]
    return out[tuple(kept)]  # negative padding takes away


def slice_(scope: Scope, eqn: JaxprEqn, x: np.ndarray) -> np.ndarray:
    p = eqn.params
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or [1] * x.ndim))]


def split(scope: Scope, eqn: JaxprEqn, x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, np.cumsum(eqn.params["sizes"])[:-1], eqn.params["axis"])


# Equations that only move scalars: these rules are also the fastest way to evaluate them when all is known.
MOVES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": broadcast_in_dim,
    "concatenate": concatenate,
    "copy": lambda scope, eqn, x: x,
    "device_put": lambda scope, eqn, *xs: list(xs),
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    "iota": iota,
    "optimization_barrier": lambda scope, eqn, *xs: list(xs),
    "pad": pad,
    "reshape": reshape,
    "rev": lambda scope, eqn, x: np.flip(x, eqn.params["dimensions"]),
    "scatter": scatter(None),
    "slice": slice_,
    "split": split,
    "squeeze": lambda scope, eqn, x: np.squeeze(x, tuple(eqn.params["dimensions"])),
    "stack": lambda scope, eqn, *xs: np.stack(together(*xs), eqn.params["axis"]),
    "tile": lambda scope, eqn, x: np.tile(x, eqn.params["reps"]),
    "transpose": lambda scope, eqn, x: x.transpose(eqn.params["permutation"]),
}
ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp clz convert_element_type cos
    cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le lgamma log log1p
    logistic lt max min mul ne neg nextafter not or population_count pow reduce_precision rem round rsqrt
    select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor
"""
RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE.split(), elementwise),
    "dot_general": dot_general,
    "select_n": select_n,
    "reduce_and": reduction(lax.and_p),
    "reduce_max": reduction(lax.max_p),
    "reduce_min": reduction(lax.min_p),
    "reduce_or": reduction(lax.or_p),
    "reduce_prod": reduction(lax.mul_p),
    "reduce_sum": reduction(lax.add_p),
    "scatter-add": scatter(lax.add_p),
    "scatter-max": scatter(lax.max_p),
    "scatter-min": scatter(lax.min_p),
    "scatter-mul": scatter(lax.mul_p),
    "scatter-sub": scatter(lax.sub_p),
}
