"""`lanes(f)`: a `jax.vmap` for CPUs, with one vector over the environments for each scalar of the program.

`jax.vmap` puts the batch axis first, so that on a CPU every small [links, 3] operation becomes a strided
loop that neither vectorises nor stays in cache. `lanes` traces `f` once for one environment and evaluates
its jaxpr again with every array replaced by a NumPy array of scalars. A scalar is either known while
tracing or a `Lane`, a vector [n] with one value per environment. Slices, gathers, reshapes, broadcasts and
concatenations then cost nothing, products with the model's many zeros and ones vanish, and what is left is
a stream of contiguous vector operations, which is cut into a few large kernels.

With a finite state the results are those of vmap up to rounding and the sign of zeros; a non-finite one may
become finite where it meets a factor that the program itself fixes at zero (see `_lane_scalars`). A
primitive without a rule is vmapped by itself, so any program works, but only one of small arrays gains.
Custom derivatives are inlined, that is, lost: this is for simulating, not for differentiating.

This file evaluates jaxprs and their control flow; `_lane_arrays` says what an array is, `_lane_scalars`
computes with scalars, `_lane_rules` and `_lane_indexing` hold the rules, `_lane_blocks` and `_lane_math`
make the kernels.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ._lane_arrays import Value, Whole, apart, array, constant, is_known, scalars, settle, whole
from ._lane_blocks import Lane
from ._lane_rules import MOVES, RULES, elementwise
from ._lane_scalars import Scope, evaluate, varying

LARGE = 1024  # arrays of more scalars than this stay whole, and their equations are vmapped
UNROLL = 64  # the longest loop over inputs (the links of a robot, say) that is unrolled
CALLS = {
    "checkpoint": "jaxpr", "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr", "pjit": "jaxpr", "remat2": "jaxpr",
}  # fmt: skip


def is_large(x: Any) -> bool:
    """Whether an array, or the description of one, has too many scalars to be taken apart."""
    return not isinstance(x, np.ndarray) and math.prod(x.shape) > LARGE


def run(scope: Scope, jaxpr: Jaxpr | ClosedJaxpr, args: Sequence[Value]) -> list[Value]:
    """Evaluate a jaxpr on arrays of scalars."""
    consts = jaxpr.consts if isinstance(jaxpr, ClosedJaxpr) else ()
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    env: dict[Any, Value] = dict(zip(jaxpr.invars, args, strict=True))
    env.update(zip(jaxpr.constvars, map(constant, consts), strict=True))

    def read(v: Any) -> Value:
        dtype = v.aval.dtype
        return np.asarray(v.val, dtype) if isinstance(v, Literal) else env[v]

    for eqn in jaxpr.eqns:
        out = step(scope, eqn, [read(v) for v in eqn.invars])
        out = out if isinstance(out, list) else [out]
        env.update((v, settle(x, v.aval)) for v, x in zip(eqn.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars]


def step(scope: Scope, eqn: JaxprEqn, xs: list[Value]) -> Any:
    """Evaluate one equation: by its rule, while tracing if all is known, or by vmap."""
    name = eqn.primitive.name
    if name in CALLS:
        return run(scope, eqn.params[CALLS[name]], xs)
    if name in CONTROL:
        return CONTROL[name](scope, eqn, *xs)
    known = all(map(is_known, xs)) and not eqn.effects
    large = any(map(is_large, [*xs, *(v.aval for v in eqn.outvars)]))
    rule = MOVES.get(name, RULES.get(name))
    # Moving known scalars is always cheap, computing with them is faster on arrays.
    usable = name in MOVES or rule is not elementwise if known else not large
    if rule is not None and usable:
        out = rule(scope, eqn, *[apart(scope, x) for x in xs])
        if out is not NotImplemented:
            return out
    if known:
        values = evaluate(eqn.primitive, eqn.params, *xs)
        return [np.asarray(x) for x in (values if eqn.primitive.multiple_results else [values])]
    return vmapped(scope, eqn, *xs)


def vmapped(scope: Scope, eqn: JaxprEqn, *xs: Value) -> list[Value]:
    """Evaluate an equation on whole arrays, the way of `jax.vmap`."""

    def bind(*values: jax.Array) -> list[jax.Array]:
        with eqn.ctx.manager:
            out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
        return list(out) if eqn.primitive.multiple_results else [out]

    same = [is_known(x) or (isinstance(x, Whole) and x.axis is None) for x in xs]
    mapped = iter(whole(scope, *[x for x, shared in zip(xs, same, strict=True) if not shared]))
    values = [
        scope.vary(x.value if isinstance(x, Whole) else jax.numpy.asarray(x)) if shared else next(mapped)
        for x, shared in zip(xs, same, strict=True)
    ]
    if all(same):  # nothing to map over, but an effect or a traced operand forbids to evaluate it now
        return [Whole(scope.vary(x), None) for x in bind(*values)]
    out = jax.vmap(bind, [None if shared else -1 for shared in same], -1, axis_size=scope.n)(*values)
    return [Whole(scope.vary(x)) for x in out]


def cond(scope: Scope, eqn: JaxprEqn, which: Value, *operands: Value) -> list[Value]:
    """The chosen branch if that is known, else all of them and a choice between their results."""
    branches = eqn.params["branches"]
    if is_known(which):
        return run(scope, branches[min(max(int(which), 0), len(branches) - 1)], operands)
    if eqn.effects or any(is_large(v.aval) for v in eqn.outvars):
        return vmapped(scope, eqn, which, *operands)
    index = apart(scope, which).item()
    if len(branches) == 2:
        index = scope.lane(lax.ne_p, {}, index, np.int32(0))
    outs = [[apart(scope, x) for x in run(scope, branch, operands)] for branch in branches]
    select = functools.partial(scope.apply, lax.select_n_p, {}, index)
    return [array(map(select, *[scalars(x).flat for x in xs]), xs[0].shape) for xs in zip(*outs, strict=True)]


def scan(scope: Scope, eqn: JaxprEqn, *xs: Value) -> list[Value]:
    """A short loop over inputs is unrolled, because its slices are then known; any other stays a loop."""
    p = eqn.params
    split = p["num_consts"], p["num_consts"] + p["num_carry"]
    consts, carry, inputs = list(xs[: split[0]]), list(xs[split[0] : split[1]]), list(xs[split[1] :])
    limit = (0 if any(map(is_large, inputs)) else UNROLL) if inputs else 1
    if p["length"] == 0 or p["length"] > limit:
        return loop(scope, eqn, consts, carry, inputs)
    inputs = [apart(scope, x) for x in inputs]
    ys: list[list[Value]] = []
    for t in reversed(range(p["length"])) if p["reverse"] else range(p["length"]):
        out = run(scope, p["jaxpr"], consts + carry + [x[t, ...] for x in inputs])
        carry = out[: len(carry)]
        ys.append(out[len(carry) :])
    columns = zip(*(reversed(ys) if p["reverse"] else ys), strict=True)
    return carry + [np.stack([scalars(apart(scope, y)) for y in column]) for column in columns]


def loop(scope: Scope, eqn: JaxprEqn, consts: list[Value], carry: list[Value], inputs: list[Value]) -> list[Value]:
    """A `lax.scan` over whole arrays, which are taken apart and put together again in each round."""
    p, m = eqn.params, len(carry)
    mixed = [s for x in consts if isinstance(x, np.ndarray) and not is_known(x) for s in x.flat]
    scope.vectors([s for s in mixed if isinstance(s, Lane)])  # once, not in every round

    def body(carry: list[jax.Array], slices: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        inner = Scope(scope.n, scope.axes, scope)
        out = whole(inner, *run(inner, p["jaxpr"], [*consts, *map(Whole, carry), *map(Whole, slices)]))
        return out[:m], out[m:]

    start = whole(scope, *carry, *inputs)
    last, ys = lax.scan(body, start[:m], start[m:], p["length"], p["reverse"], p["unroll"])
    return [Whole(x) for x in [*last, *ys]]


CONTROL: dict[str, Callable[..., list[Value]]] = {"cond": cond, "scan": scan}


def lanes(f: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of one environment into one of n environments.

    Arguments and outputs are pytrees of arrays, to each of which the result adds the environment axis
    *last*. n is taken from the arguments; 64 to 256, a multiple of 8, is fastest. What is the same for all
    environments belongs in the closure of `f`.
    """

    @jax.jit
    @functools.wraps(f)
    def wide(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        shapes = [x.shape for x in leaves]
        if len({shape[-1:] for shape in shapes} - {()}) != 1 or () in shapes:
            raise ValueError(
                "lanes: the last axis of every array in the arguments has to be the environment axis, of one "
                f"size; got arrays of the shapes {shapes}. Close over what all environments share."
            )

        def flat(*leaves: Any) -> Any:
            args, kwargs = jax.tree.unflatten(tree, leaves)
            return f(*args, **kwargs)

        # With the mesh that they live on, so that a function that is jitted need not be traced anew.
        first = jax.eval_shape(lambda *xs: [x[..., 0] for x in xs], *leaves)
        one = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=x.sharding) for x in first]
        jaxpr, result = jax.make_jaxpr(flat, return_shape=True)(*one)
        scope = Scope(shapes[0][-1], frozenset().union(*map(varying, leaves)))
        inputs = [settle(Whole(scope.vary(x)), s) for x, s in zip(leaves, one, strict=True)]
        out = whole(scope, *run(scope, jaxpr, inputs))
        return jax.tree.unflatten(jax.tree.structure(result), out)

    return wide
