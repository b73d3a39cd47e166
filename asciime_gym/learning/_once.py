"""Work that cannot be shared out: done once, whatever the number of devices."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Int, PyTree

from .._compile import by_platform
from .._spread import AXIS, _mesh, device_count


def repeat(
    body: Callable[[Int[Array, ""], PyTree, PyTree], PyTree], count: int, state: PyTree, shared: PyTree, *, stretch: int
) -> PyTree:
    """The state after `state = body(i, state, shared)` for i = 0 … count - 1.

    Accelerators all do the same. Of CPU devices, which are the cores of a machine, the first does it alone: its matrix
    products use the cores that the others leave idle. The result is the same bit for bit.

    **Arguments:**

    - `stretch`: rounds after which the first of several CPU devices hands the state to the others, which give up if
      they have to wait for longer than about half a minute.
    """

    def everywhere(state: PyTree, shared: PyTree) -> PyTree:
        return jax.lax.fori_loop(0, count, lambda i, state: body(i, state, shared), state)

    def by_the_first(state: PyTree, shared: PyTree) -> PyTree:
        whole = PartitionSpec()
        program = jax.shard_map(part, mesh=_mesh(), in_specs=(whole,) * 3, out_specs=whole, check_vma=False)
        rounds = lambda i, state: program(i * stretch, state, shared)
        return jax.lax.fori_loop(0, -(-count // stretch), rounds, state)

    def part(begin: Int[Array, ""], state: PyTree, shared: PyTree) -> PyTree:
        first = jax.lax.axis_index(AXIS) == 0
        end = jnp.minimum(begin + stretch, count)
        rounds = lambda: jax.lax.fori_loop(begin, end, lambda i, state: body(i, state, shared), state)
        state = jax.lax.cond(first, rounds, lambda: state)
        return jax.tree.map(lambda leaf: _from(first, leaf), state)

    cpu = everywhere if device_count() == 1 else by_the_first
    return by_platform(state, shared, cpu=cpu, default=everywhere)


def _from(source: Array, leaf: Array) -> Array:
    """The leaf of the one device that is the source: summed as bits, so that a zero keeps its sign."""
    bits = jax.lax.bitcast_convert_type(leaf, jnp.uint32)
    bits = jax.lax.psum(jnp.where(source, bits, jnp.uint32(0)), AXIS)
    return jax.lax.bitcast_convert_type(bits, leaf.dtype)
