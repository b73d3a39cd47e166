"""Arithmetic on scalars that are either known while tracing or one vector over the environments.

A known scalar is a NumPy scalar, so it carries its dtype: int32 wraps around and float32 rounds as on the
device. An unknown one is a `Lane`. `Scope.apply` is the only way to compute with them: it folds known
operands, drops operations that do nothing, and makes a lane of the others, unless the same operation has
made one before.

What may differ from `jax.vmap`, apart from rounding:
  - `0 * x` with a known zero is zero, even where x is inf or NaN, so non-finite values can be lost there, and
    only there: `x + 0`, `x - 0`, `x * 1` and `x / 1` are x, while `x - x` and `0 / x` are computed;
  - the sign of a zero, because `x + 0 -> x`, `0 - x -> -x` and `0 * x -> 0` do not look at the sign of x.
"""

import functools
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from ._lane_blocks import Lane, Scalar, compute, identity
from ._lane_math import FASTER

Params: TypeAlias = Mapping[str, Any]


def convert(x: Any, new_dtype: Any, **rest: Any) -> Any:
    """Convert; a float out of range saturates as an integer, which NumPy does not do."""
    if np.issubdtype(x.dtype, np.floating) and np.issubdtype(new_dtype, np.integer):
        return evaluate(lax.convert_element_type_p, {"new_dtype": new_dtype, **rest}, x, exact=False)
    return x.astype(new_dtype)


def divide(a: Any, b: Any) -> Any:
    """Divide; integers do so towards zero, and by zero too, which NumPy does not do."""
    return np.divide(a, b) if np.issubdtype(a.dtype, np.floating) else evaluate(lax.div_p, {}, a, b, exact=False)


# What NumPy computes to the same bit as XLA; JAX evaluates the rest while tracing, after compiling it.
EXACT: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "add": np.add, "add_any": np.add, "and": np.bitwise_and, "ceil": np.ceil,
    "convert_element_type": convert, "div": divide, "eq": np.equal, "floor": np.floor, "ge": np.greater_equal,
    "gt": np.greater, "is_finite": np.isfinite, "le": np.less_equal, "lt": np.less, "max": np.maximum,
    "min": np.minimum, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.bitwise_not,
    "or": np.bitwise_or, "select_n": lambda which, *cases: np.choose(which, cases),
    "sqrt": np.sqrt, "square": np.square, "sub": np.subtract, "xor": np.bitwise_xor,
}  # fmt: skip
CHEAP = {
    *EXACT,
    "clamp",
    "rem",
    "rsqrt",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
}
COMMUTATIVE = {"add", "add_any", "and", "eq", "max", "min", "mul", "ne", "or", "xor"}


def evaluate(primitive: Primitive, params: Params, *xs: Any, exact: bool = True) -> Any:
    """Apply a primitive to known arrays or scalars while tracing."""
    function = EXACT.get(primitive.name) if exact else None
    with np.errstate(all="ignore"):
        if function is not None:
            return function(*xs) if isinstance(function, np.ufunc) else function(*xs, **params)
        with jax.ensure_compile_time_eval():
            out = primitive.bind(*map(jax.numpy.asarray, xs), **primitive.get_bind_params(dict(params)))
        return [np.asarray(x)[()] for x in out] if primitive.multiple_results else np.asarray(out)[()]


def vector_operation(primitive: Primitive, params: Params, *xs: jax.Array) -> jax.Array:
    faster = FASTER.get(primitive.name)
    return faster(*xs) if faster and xs[0].dtype == np.float32 else primitive.bind(*xs, **params)


def varying(x: Any) -> frozenset[str]:
    """The mesh axes over which a value differs, inside shard_map; empty elsewhere."""
    return frozenset(jax.typeof(x).manual_axis_type.varying)


class Scope:
    """The lanes and values of one trace: the program, or the body of one of its loops."""

    def __init__(self, n: int, axes: frozenset[str] = frozenset(), outer: "Scope | None" = None):
        self.n = n
        self.axes = axes  # the mesh axes over which lanes differ, when inside shard_map
        # A body may use what is outside of it, not the other way round, hence the chains.
        self.done: ChainMap[Any, Any] = outer.done.new_child() if outer else ChainMap()  # nothing is made twice
        self.values: ChainMap[Lane, jax.Array] = outer.values.new_child() if outer else ChainMap()

    def vary(self, x: Any) -> jax.Array:
        """Tell shard_map that a value may differ between devices, as the lanes it will meet do."""
        missing = self.axes - varying(x)
        return lax.pcast(x, tuple(missing), to="varying") if missing else x

    def constant(self, x: Any) -> jax.Array:
        """A known scalar as a vector [n]."""
        return self.vary(lax.full((self.n,), x, x.dtype))

    def vectors(self, xs: Sequence[Lane]) -> None:
        """Give lanes their values, if they have none yet."""
        compute(xs, self.values, self.constant, self.n)

    def vector(self, x: Scalar) -> jax.Array:
        """The value of a known scalar, or of a lane that has one."""
        return self.values[x] if isinstance(x, Lane) else self.constant(x)

    def apply(self, primitive: Primitive, params: Params, *xs: Scalar) -> Scalar:
        """Apply an elementwise primitive to scalars."""
        if not any(isinstance(x, Lane) for x in xs):
            return evaluate(primitive, params, *xs)
        shortcut = SHORTCUTS.get(primitive.name)
        found = shortcut(self, *xs) if shortcut else None
        return self.lane(primitive, params, *xs) if found is None else found

    def lane(self, primitive: Primitive, params: Params, *xs: Scalar) -> Lane:
        """A new lane, or the one that the same operation gave before."""
        operands = [identity(x) for x in xs]
        if primitive.name in COMMUTATIVE:
            operands.sort(key=hash)
        key = (primitive, *params.items(), *operands)
        if key not in self.done:
            cost = 1 if primitive.name in CHEAP else 64
            self.done[key] = Lane(functools.partial(vector_operation, primitive, params), *xs, cost=cost)
        return self.done[key]


def neg(scope: Scope, x: Scalar) -> Scalar:
    """-x; the negation of a negation is the lane itself."""
    if not isinstance(x, Lane):
        return evaluate(lax.neg_p, {}, x)
    if x.opposite is not None:
        return x.opposite
    out = scope.lane(lax.neg_p, {}, x)
    out.opposite = x
    return out


def is_number(x: Scalar, value: int) -> bool:
    return not isinstance(x, Lane) and bool(x == value)


def add(scope: Scope, a: Scalar, b: Scalar) -> Scalar | None:
    for x, y in ((a, b), (b, a)):
        if is_number(x, 0):
            return y
        if isinstance(y, Lane) and y.opposite is not None:
            return scope.apply(lax.sub_p, {}, x, y.opposite)
    return None


def sub(scope: Scope, a: Scalar, b: Scalar) -> Scalar | None:
    if is_number(b, 0):
        return a
    if is_number(a, 0):
        return neg(scope, b)
    if isinstance(b, Lane) and b.opposite is not None:
        return scope.apply(lax.add_p, {}, a, b.opposite)
    return None


def mul(scope: Scope, a: Scalar, b: Scalar) -> Scalar | None:
    for x, y in ((a, b), (b, a)):
        if is_number(x, 0):
            return x
        if is_number(x, 1):
            return y
        if is_number(x, -1):
            return neg(scope, y)
    if isinstance(a, Lane) and isinstance(b, Lane) and a.opposite is not None and b.opposite is not None:
        return scope.apply(lax.mul_p, {}, a.opposite, b.opposite)
    return None


def div(scope: Scope, a: Scalar, b: Scalar) -> Scalar | None:
    return a if is_number(b, 1) else neg(scope, a) if is_number(b, -1) else None


def same(scope: Scope, a: Scalar, b: Scalar) -> Scalar | None:
    return a if a is b else None


def logical(absorbing: bool) -> Callable[[Scope, Scalar, Scalar], Scalar | None]:
    """`and` (absorbed by False) or `or` (by True) of booleans; the same for the bits of integers."""

    def shortcut(scope: Scope, a: Scalar, b: Scalar) -> Scalar | None:
        for x, y in ((a, b), (b, a)):
            if not isinstance(x, Lane):
                ones = bool(x == np.invert(np.zeros((), x.dtype)))
                if ones or x == 0:
                    return x if ones == absorbing else y
        return same(scope, a, b)

    return shortcut


def select(scope: Scope, which: Scalar, *cases: Scalar) -> Scalar | None:
    if not isinstance(which, Lane):
        return cases[int(which)]
    if len({identity(x) for x in cases}) == 1:
        return cases[0]
    if len(cases) == 2 and isinstance(cases[0], np.bool_) and isinstance(cases[1], np.bool_):
        return which if cases[1] else None
    return None


SHORTCUTS: dict[str, Callable[..., Scalar | None]] = {
    "add": add, "add_any": add, "and": logical(False), "div": div, "max": same, "min": same, "mul": mul,
    "neg": neg, "or": logical(True), "select_n": select, "sub": sub,
}  # fmt: skip
