"""Lanes are recipes; this computes them in blocks of many vector operations each.

Nothing is emitted until a result is needed. Then the operations that it takes are put in depth-first order,
so that what belongs together is computed together, and cut into blocks, each of which becomes one kernel.
Left to itself XLA would make hundreds of kernels for a step of a small robot, most of which cost more to
start than to run.
"""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

BLOCK = 500  # vector operations; longer blocks compile slowly, shorter ones pass more vectors through memory
# Keep the call, and compile it as one kernel.  A compiler that does not know these attributes ignores them.
ONE_KERNEL = {"inlineable": "false", "xla_cpu_small_call": "true"}
MANY = 512  # lanes; with more, XLA would spread the kernel over threads, which such a call cannot contain
FEW = 32  # lanes; with fewer the loops in such a kernel are unrolled, which compiles slowly and gains little


class Lane:
    """A scalar of the traced program with one value per environment: the recipe for a vector [n]."""

    __slots__ = ("function", "operands", "opposite")

    def __init__(self, function: Callable[..., jax.Array] | None = None, *operands: "Scalar"):
        self.function = function
        self.operands = operands
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


def kernel(
    block: Sequence[Lane], inputs: Sequence[Lane], outputs: Sequence[Lane], constant: Constant
) -> Callable[..., Any]:
    """The function from the inputs to the outputs of a block."""

    def lane_block(*arrays: jax.Array) -> list[jax.Array]:
        values: dict[Any, jax.Array] = dict(zip(inputs, arrays, strict=True))
        for lane in block:
            for x in lane.operands:
                if not isinstance(x, Lane) and identity(x) not in values:
                    values[identity(x)] = constant(x)
            assert lane.function is not None, "a lane without a recipe has a value"
            values[lane] = lane.function(*[values[identity(x)] for x in lane.operands])
        return [values[lane] for lane in outputs]

    return jax.jit(lane_block)


def compute(wanted: Sequence[Lane], values: Values, constant: Constant, n: int) -> None:
    """Add the wanted lanes, vectors [n], to the values."""
    order = pending(wanted, values)
    number = {lane: i // BLOCK for i, lane in enumerate(order)}
    # The last block to use a lane.
    last = {x: number[lane] for lane in order for x in lane.operands if isinstance(x, Lane)}
    last |= dict.fromkeys(wanted, len(order))
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        here = number[block[0]]
        used = dict.fromkeys(x for lane in block for x in lane.operands if isinstance(x, Lane))
        inputs = [x for x in used if number.get(x) != here]
        outputs = [lane for lane in block if last[lane] > here]
        with set_xla_metadata(**ONE_KERNEL if FEW <= n <= MANY else {}):
            found = kernel(block, inputs, outputs, constant)(*[values[x] for x in inputs])
        values.update(zip(outputs, found, strict=True))
