"""Steps of many environments that begin anew by themselves, as one compiled program.

Environments stand in tiles: every array of their states is [tiles, ..., width], a tile the unit of work. In lanes a
tile is as wide as in a roll-out; the last is filled up with environments that nobody sees. Tiles live on the devices
that step them. What a step tells comes back as one array, and what a state holds is kept as one: on a CPU the number
of arrays that a program touches costs more than their size.

A beginning costs nearly as much as a step, and among many short episodes one is due at almost every step. So each
environment has its next beginning ready, and new ones are made, for all that have used theirs, only when one that has
used it needs another. Which beginning an environment gets depends on its own key alone, never on when it was made.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt32

from .._compile import OPTIONS, _tracing_for
from ._flat import Flat, Flattening
from ._task import SimulatorState
from .lanes import lanes
from .locomotion import Locomotion
from .rollout import TILE

AXIS = "devices"
KEY_WORDS = 2  # of 32 bits each, that a key is made from
POSITION = 3
LINKS = 1024  # that a device is worth its while for: it is woken at every step, which takes as long as so many
WHENS = ("NextStep", "SameStep", "Disabled")  # when an environment begins anew; the values of Gymnasium's AutoresetMode


def key_of(words: UInt32[Array, "2"]) -> Key[Array, ""]:
    """An environment's key from what its generator of random numbers drew."""
    return jax.random.fold_in(jax.random.key(words[0]), words[1])


def columns(task: Locomotion) -> dict[str, slice]:
    """Where the parts of `told` stand."""
    sizes = {"observation": task.policy.obs_size, "descriptor": task.descriptor_size, "position": POSITION}
    sizes |= {"reward": 1, "terminated": 1, "truncated": 1}
    ends = np.cumsum(list(sizes.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def told(state: SimulatorState) -> Float[Array, "columns *lanes"]:
    """What is told of a state, in one array."""
    scalars = [state.reward, state.terminated.astype(jnp.float32), state.truncated.astype(jnp.float32)]
    return jnp.concatenate([state.observation, state.descriptor, state.physics.x.pos[0], jnp.stack(scalars)])


class Tiles(NamedTuple):
    """Environments, and what they begin with next."""

    state: Flat
    keys: Key[Array, "tiles width"]  # draw the beginnings that are not made yet
    ready: Flat  # the next beginnings
    used: Bool[Array, "tiles width"]  # those that have to be made


class Programs(NamedTuple):
    """Of a task and a number of environments. The tiles that a program is given are used up."""

    empty: Callable[[], Tiles]
    reset: Callable[..., tuple[Tiles, Array]]  # (tiles, words, seeded, mask); tells rows of `told`
    step: Callable[..., tuple[Tiles, Array]]  # (tiles, actions, when); tells of now, of before a beginning, who began
    unflat: Callable[[Flat], SimulatorState]
    everywhere: NamedSharding  # where arguments other than tiles have to be


@functools.lru_cache(maxsize=16)
def programs(task: Locomotion, count: int, devices: tuple[Any, ...]) -> Programs:
    """The programs, compiled when first called; environments of the same kind share them."""
    platform = devices[0].platform
    in_lanes = platform == "cpu" if task.lanes is None else task.lanes
    devices = devices[: max(count * task.env.sys.num_links() // LINKS, 1)]
    width = TILE if in_lanes else -(-count // len(devices))
    number = -(-count // width)
    mesh = Mesh(np.array(devices[:number]), (AXIS,))
    number += -number % mesh.size
    everywhere, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(AXIS))
    work = _Work.of(task, in_lanes, width)

    def tiled(rows: Array, filling: Any) -> Array:
        """Rows [count, ...] as [tiles, ..., width]."""
        full = jnp.full((number * width - count, *rows.shape[1:]), filling, rows.dtype)
        return jnp.moveaxis(jnp.concatenate([rows, full]).reshape(number, width, *rows.shape[1:]), 1, -1)

    def on_each_device(function: Callable, *args: Any) -> Any:
        every = PartitionSpec(AXIS)
        return jax.shard_map(function, mesh=mesh, in_specs=every, out_specs=every, check_vma=False)(*args)

    def reset(tiles: Tiles, words: Array, seeded: Array, mask: Array) -> tuple[Tiles, Array]:
        # Those who fill up begin at every reset: they need a state, and nobody looks at it.
        return on_each_device(work.reset, tiles, tiled(words, 0), tiled(seeded, True), tiled(mask, True))

    def step(tiles: Tiles, actions: Array, when: Array) -> tuple[Tiles, Array]:
        real = tiled(jnp.ones(count, bool), False)
        whens = jnp.broadcast_to(when, real.shape)
        return on_each_device(work.step, tiles, tiled(actions, 0.0), real, whens)

    def compiled(function: Callable, *args: Any) -> Callable:
        put = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere)
        options: Any = OPTIONS.get(platform)
        with _tracing_for(platform):
            program = jax.jit(function, out_shardings=shared, donate_argnums=0)
            return program.lower(like(), *jax.tree.map(put, args)).compile(compiler_options=options)

    like = lambda: jax.tree.map(functools.partial(_described, number, shared), work.like)
    mask, words = np.zeros(count, bool), np.zeros((count, KEY_WORDS), np.uint32)
    actions = np.zeros((count, task.policy.act_size), np.float32)
    return Programs(
        empty=lambda: jax.tree.map(_empty, like()),
        reset=_once(lambda: compiled(reset, words, mask, mask)),
        step=_once(lambda: compiled(step, actions, np.int32(0))),
        unflat=work.flattening.unflat,
        everywhere=everywhere,
    )


class _Work(NamedTuple):
    """What a device does with its tiles."""

    resets: Callable[[Key[Array, " width"]], SimulatorState]  # of one tile, as `steps`
    steps: Callable[[SimulatorState, Array], SimulatorState]
    flattening: Flattening
    like: Tiles  # the shapes of one tile

    @classmethod
    def of(cls, task: Locomotion, in_lanes: bool, width: int) -> "_Work":
        wide = (lanes(task.reset), lanes(task.step))
        resets, steps = wide if in_lanes else (jax.vmap(task.reset, 0, -1), jax.vmap(task.step, -1, -1))
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), width))
        states = jax.eval_shape(resets, keys)
        flattening = Flattening.of(states)
        flat = jax.eval_shape(flattening.flat, states)
        return cls(resets, steps, flattening, Tiles(flat, keys, flat, states.terminated))

    def reset(self, tiles: Tiles, words: Array, seeded: Array, mask: Array) -> tuple[Tiles, Array]:
        keys = jnp.where(seeded, jax.vmap(jax.vmap(key_of, -1))(words), tiles.keys)
        tiles = self.begin(Tiles(tiles.state, keys, tiles.ready, tiles.used | seeded), mask)
        return tiles, _rows(jax.vmap(self.tell)(tiles.state))

    def step(self, tiles: Tiles, actions: Array, real: Array, when: Array) -> tuple[Tiles, Array]:
        def one(tile: tuple[Flat, Array]) -> tuple[Flat, Array, Array, Array]:
            before = self.flattening.unflat(tile[0])
            after = self.steps(before, tile[1])
            ended = lambda state: state.terminated | state.truncated
            return self.flattening.flat(after), told(after), ended(before), ended(after)

        after, last, before_ended, ended = jax.lax.map(one, (tiles.state, actions))
        begun = real & jax.lax.select_n(when, before_ended, ended, jnp.zeros_like(ended))
        tiles = self.begin(tiles._replace(state=after), begun)
        told_now = jax.vmap(self.tell)(tiles.state)
        return tiles, _rows(jnp.concatenate([told_now, last, begun[:, None].astype(jnp.float32)], 1))

    def tell(self, flat: Flat) -> Array:
        return told(self.flattening.unflat(flat))

    def begin(self, tiles: Tiles, mask: Bool[Array, "tiles width"]) -> Tiles:
        """The tiles with those of the mask at their next beginnings."""

        def one(tile: tuple) -> tuple:
            keys, ready, used = tile
            pairs = jax.vmap(jax.random.split, 0, 1)(keys)
            made = pairs[0], self.flattening.flat(self.resets(pairs[1]))
            return *_choose(used, made, (keys, ready)), jnp.zeros_like(used)

        # A loop of one round or none, since a loop leaves in place what a condition would copy.
        missing = lambda parts: (mask & parts[2]).any()
        parts = jax.lax.while_loop(missing, lambda parts: jax.lax.map(one, parts), tiles[1:])
        state = jax.vmap(_choose)(mask, parts[1], tiles.state)
        return Tiles(state, parts[0], parts[1], parts[2] | mask)


def _choose(mask: Bool[Array, " width"], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(mask, a, b), yes, no)


def _rows(told: Float[Array, "tiles columns width"]) -> Float[Array, "rows columns"]:
    """One row per environment."""
    return told.swapaxes(1, 2).reshape(-1, told.shape[1])


def _described(number: int, sharding: NamedSharding, leaf: Any) -> jax.ShapeDtypeStruct:
    """So many tiles like this one."""
    return jax.ShapeDtypeStruct((number, *leaf.shape), leaf.dtype, sharding=sharding)


def _empty(leaf: jax.ShapeDtypeStruct) -> Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.device_put(jax.random.split(jax.random.key(0), leaf.shape), leaf.sharding)
    return jax.device_put(jnp.zeros(leaf.shape, leaf.dtype), leaf.sharding)


def _once(make: Callable[[], Callable]) -> Callable:
    """A function that is made when it is first called."""
    made = functools.cache(make)
    return lambda *args: made()(*args)
