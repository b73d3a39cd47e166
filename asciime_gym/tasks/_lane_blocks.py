"""Lanes are recipes; this computes them in kernels of many vector operations each.

Nothing is emitted until a result is needed. Then the operations that it takes are put in depth-first order,
so that what belongs together is computed together, and cut into kernels. Left to itself XLA would make
hundreds of kernels for a step of a small robot, most of which cost more to start than to run.

XLA calls a computation and compiles it as one kernel if it bears two attributes; a compiler that does not
know them ignores them. Such a kernel must not contain anything that XLA would spread over several threads,
which it does with a fusion when its operations plus ten times the bytes that it moves come to 200,000 or
more, provided that it has more operations than bytes. Fusions do not cross calls, so a kernel is made of
blocks, calls again, of so few operations that none can come to that: eleven times those of a block are less.
Without calls XLA might also take minutes to fuse a long program.
"""

import functools
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

CALL = {"inlineable": "false"}
ONE_KERNEL = {"xla_cpu_small_call": "true"}
KERNEL = 1000  # operations; longer kernels compile slowly, shorter ones pass more vectors through memory
BLOCK = 200_000 // 11  # operations times lanes
FEW = 64  # lanes; with fewer, loops are unrolled and compile slowly
MANY = 256  # lanes; with more, a block could not hold a single expensive operation


class Lane:
    """A scalar of the traced program with one value per environment: the recipe for a vector [n]."""

    __slots__ = ("cost", "function", "operands", "opposite")

    def __init__(self, function: Callable[..., jax.Array] | None = None, *operands: "Scalar", cost: int = 1):
        self.function = function
        self.operands = operands
        self.cost = cost  # about how many operations XLA makes of it
        self.opposite: Lane | None = None  # the lane that this one negates, so that two negations cancel


Scalar: TypeAlias = Lane | np.generic
Values: TypeAlias = MutableMapping[Lane, jax.Array]
Constant: TypeAlias = Callable[[np.generic], jax.Array]


def identity(x: Scalar) -> Any:
    """What makes two scalars the same: for known ones dtype and bits, since 0.0 == -0.0 and nan != nan."""
    return x if isinstance(x, Lane) else (x.dtype, x.tobytes())


def pending(wanted: Sequence[Lane], values: Values) -> list[Lane]:
    """The lanes that have to be computed, each after its operands."""
    order: list[Lane] = []
    seen: set[Lane] = set()
    stack: list[tuple[Scalar, bool]] = [(x, False) for x in reversed(wanted)]
    while stack:
        x, ready = stack.pop()
        if not isinstance(x, Lane):
            continue
        if ready:
            order.append(x)
        elif x not in values and x not in seen:
            seen.add(x)
            stack.append((x, True))
            stack.extend((operand, False) for operand in reversed(x.operands))
    return order


def cut(program: Sequence[Lane], limit: int) -> Iterator[list[Lane]]:
    """Cut a program into pieces that cost no more than a limit, except for a single lane that does."""
    piece: list[Lane] = []
    total = 0
    for lane in program:
        if piece and total + lane.cost > limit:
            yield piece
            piece, total = [], 0
        piece.append(lane)
        total += lane.cost
    if piece:
        yield piece


def follow(program: Sequence[Lane], values: Values, constant: Constant) -> None:
    """Add the lanes of a program to the values, one operation after the other."""
    constants: dict[Any, jax.Array] = {}
    for lane in program:
        operands = []
        for x in lane.operands:
            if not isinstance(x, Lane) and identity(x) not in constants:
                constants[identity(x)] = constant(x)
            operands.append(values[x] if isinstance(x, Lane) else constants[identity(x)])
        assert lane.function is not None, "a lane without a recipe has a value"
        values[lane] = lane.function(*operands)


def call(
    body: Callable[[Sequence[Lane], Values], None],
    program: Sequence[Lane], needed: Callable[[Lane], bool], values: Values, attributes: dict[str, str],
) -> None:  # fmt: skip
    """Add to the values what is needed of the lanes of a program, by calling its body as a function."""
    made = set(program)
    used = dict.fromkeys(x for lane in program for x in lane.operands if isinstance(x, Lane))
    inputs, outputs = [x for x in used if x not in made], [x for x in program if needed(x)]

    def lane_kernel(*arrays: jax.Array) -> list[jax.Array]:
        inner = dict(zip(inputs, arrays, strict=True))
        body(program, inner)
        return [inner[x] for x in outputs]

    results = as_call(lane_kernel, attributes)(*[values[x] for x in inputs])
    values.update(zip(outputs, results, strict=True))


def one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of small arrays as one kernel, which is compiled and started sooner than the many it would be.

    The compiler takes no scatter into one, nor a linear solver.
    """
    return as_call(function, CALL | ONE_KERNEL)


def as_call(function: Callable[..., Any], attributes: dict[str, str]) -> Callable[..., Any]:
    """The function as a call with these attributes, which what is inside of it does not have."""

    @functools.wraps(function)
    def plain(*args: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(CALL | ONE_KERNEL)):
            return function(*args)

    def call(*args: Any) -> Any:
        with set_xla_metadata(**attributes):
            return jax.jit(plain)(*args)

    return call


def compute(wanted: Sequence[Lane], values: Values, constant: Constant, n: int) -> None:
    """Add the wanted lanes, vectors [n], to the values."""
    order = pending(wanted, values)
    place = {lane: i for i, lane in enumerate(order)}
    last = {x: place[lane] for lane in order for x in lane.operands if isinstance(x, Lane)}  # to use it
    last |= dict.fromkeys(wanted, len(order))

    def used_after(piece: Sequence[Lane]) -> Callable[[Lane], bool]:
        end = place[piece[-1]]
        return lambda lane: last[lane] > end

    def blocks(program: Sequence[Lane], values: Values) -> None:
        for block in cut(program, BLOCK // min(max(n, FEW), MANY)):
            call(lambda lanes, inner: follow(lanes, inner, constant), block, used_after(block), values, CALL)

    attributes = CALL | ONE_KERNEL if FEW <= n <= MANY else CALL
    for kernel in cut(order, KERNEL):
        call(blocks, kernel, used_after(kernel), values, attributes)
