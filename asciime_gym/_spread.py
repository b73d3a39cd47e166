"""Work on many rows, spread over all devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PyTree

from ._compile import by_platform

AXIS = "devices"


def device_count() -> int:
    """Devices that the rows of a population are spread over."""
    return jax.device_count()


def first_process() -> bool:
    """Whether this process speaks for all: shows progress, and writes files."""
    return jax.process_index() == 0


def agreed(number: int) -> int:
    """The number that the first process has, in all of them: what depends on a clock must not differ."""
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def replicate(tree: PyTree) -> PyTree:
    """The tree with a copy on every device; on one it is said to belong there, as whatever a program returns is: a
    program is compiled once for what comes first and what comes later."""
    if device_count() == 1:
        return jax.device_put(tree, jax.local_devices()[0])
    everywhere = NamedSharding(_mesh(), PartitionSpec())

    def put(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return jax.device_put(np.asarray(leaf), everywhere)  # by way of the host: devices may belong to other processes

    return jax.tree.map(put, tree)


def spread(function: Callable[[PyTree, PyTree], PyTree], rows: PyTree, shared: PyTree) -> PyTree:
    """`function(rows, shared)`, each device computing its share of the rows, and the result whole on every device.

    **Arguments:**

    - `function`: maps rows to results, one for one; it is called with whatever number of rows a device gets.
    - `rows`: arrays with the same leading axis. They are dealt out in turns, to and fro, so that work that is ordered
      by length is shared out evenly.
    - `shared`: what every device needs whole.
    """
    devices = device_count()
    if devices == 1:
        return function(rows, shared)
    count = jax.tree.leaves(rows)[0].shape[0]
    deal = partial(_deal, devices=devices)
    every, whole = PartitionSpec(AXIS), PartitionSpec()
    # Each device calls a loop of its own length: nothing is exchanged until all of them are done.
    program = jax.shard_map(function, mesh=_mesh(), in_specs=(every, whole), out_specs=every, check_vma=False)
    results = program(jax.tree.map(deal, rows), shared)
    results = jax.lax.with_sharding_constraint(results, NamedSharding(_mesh(), whole))
    return jax.tree.map(partial(_collect, devices=devices, count=count), results)


def each_row(
    operator: Callable[[PyTree, PyTree], PyTree],
    rows: PyTree,
    shared: PyTree = None,
    *,
    at_once: Callable[[PyTree, PyTree], PyTree] | None = None,
    work: Int[Array, " rows"] | None = None,
) -> PyTree:
    """`operator(row, shared)` of every row, spread over all devices.

    A CPU core multiplies one individual's matrices at a time, in its cache; an accelerator all at once. `at_once` is
    the operator for the latter, where another serves better. `work` is how much each row will be, so that cores get
    equal shares; results do not depend on it.
    """
    together = jax.vmap(at_once or operator, (0, None))
    one_by_one = lambda rows, shared: jax.lax.map(lambda row: operator(row, shared), rows)

    def in_order(rows: PyTree, shared: PyTree) -> PyTree:
        if work is None:
            return spread(one_by_one, rows, shared)
        order = jnp.argsort(-work, stable=True)
        place = jnp.argsort(order)
        results = spread(one_by_one, jax.tree.map(lambda leaf: leaf[order], rows), shared)
        return jax.tree.map(lambda leaf: leaf[place], results)

    return by_platform(rows, shared, cpu=in_order, default=lambda *args: spread(together, *args))


def apart(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """The function, compiled by itself: what stands round it differs with the number of devices, and would change how
    it rounds if the compiler made one piece of both.

    It becomes the body of a loop of one round; only the data say that it is one, so that the compiler keeps the loop.
    """

    def call(*args: PyTree) -> PyTree:
        bits = jax.lax.bitcast_convert_type(jax.tree.leaves(args)[0].ravel()[0], jnp.uint32)
        no_more = ((bits >> 1) >> 31).astype(jnp.int32)  # 0
        own = lambda i: jax.tree.map(lambda leaf: jnp.where(i == 0, leaf, jnp.zeros_like(leaf)), args)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *args))
        return jax.lax.fori_loop(0, 1 + no_more, lambda i, _: function(*own(i)), nothing)

    return call


def _mesh() -> Mesh:
    return Mesh(jax.devices(), (AXIS,))


def _deal(leaf: jax.Array, devices: int) -> jax.Array:
    """Rows in an order of which contiguous shares are what the devices get; filled up with the last."""
    missing = -len(leaf) % devices
    full = jnp.concatenate([leaf, jnp.broadcast_to(leaf[-1:], (missing, *leaf.shape[1:]))])
    return full[_turns(len(full), devices)]


def _collect(leaf: jax.Array, devices: int, count: int) -> jax.Array:
    """Undoes `_deal`."""
    return leaf[np.argsort(_turns(len(leaf), devices))[:count]]


def _turns(count: int, devices: int) -> np.ndarray:
    """The numbers of the first device's rows, then of the second's: with two devices 0, 3, 4, 7 … and 1, 2, 5, 6 …"""
    rounds = np.arange(count).reshape(-1, devices)
    rounds[1::2] = rounds[1::2, ::-1]
    return rounds.T.ravel()
