"""The compiled programs of our vector environments, on one device or several."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._compile import OPTIONS, _tracing_for
from ._env_tiles import KEY_WORDS, Tiles, Work
from ._task import SimulatorState
from .locomotion import Locomotion
from .rollout import TILE

AXIS = "devices"
LINKS = 1024  # that a device is worth its while for: it is woken at every step, which takes as long as so many
WHENS = ("NextStep", "SameStep", "Disabled")  # when an environment begins anew; the values of Gymnasium's AutoresetMode


class Layout(NamedTuple):
    """Which environment stands where; the last tiles are filled up with environments that nobody sees."""

    environments: int
    width: int
    number: int  # of tiles
    mesh: Mesh  # the devices; each has as many tiles, and keeps them

    @classmethod
    def of(cls, task: Locomotion, in_lanes: bool, count: int, devices: tuple[Any, ...]) -> "Layout":
        devices = devices[: max(count * task.env.sys.num_links() // LINKS, 1)]
        # In lanes a tile is as wide as in a roll-out, so that a robot does the same whatever stands beside it.
        width = TILE if in_lanes else -(-count // len(devices))
        number = -(-count // width)
        mesh = Mesh(np.array(devices[:number]), (AXIS,))
        return cls(count, width, number + -number % mesh.size, mesh)

    @property
    def everywhere(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def shared_out(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    def tiled(self, rows: Array, filling: Any) -> Array:
        """One row per environment as [tiles, ..., width]."""
        full = jnp.full((self.number * self.width - self.environments, *rows.shape[1:]), filling, rows.dtype)
        tiles = jnp.concatenate([rows, full]).reshape(self.number, self.width, *rows.shape[1:])
        return jnp.moveaxis(tiles, 1, -1)

    def on_each_device(self, function: Callable, *args: Any) -> Any:
        """The function of tiles, each device calling it with its own."""
        if self.mesh.size == 1:
            return function(*args)
        every = PartitionSpec(AXIS)
        return jax.shard_map(function, mesh=self.mesh, in_specs=every, out_specs=every, check_vma=False)(*args)


class Programs(NamedTuple):
    """Of a task and a number of environments. The tiles that a program is given are used up."""

    empty: Callable[[], Tiles]
    reset: Callable[..., tuple[Tiles, Array]]  # (tiles, words, seeded, mask); tells rows of `told`
    step: Callable[..., tuple[Tiles, Array]]  # (tiles, actions, when); tells of now, of before a beginning, who began
    unflat: Callable[[Array], SimulatorState]  # of one tile
    everywhere: NamedSharding  # where arguments other than tiles have to be


@functools.lru_cache(maxsize=16)
def programs(task: Locomotion, count: int, devices: tuple[Any, ...]) -> Programs:
    """The programs, compiled when first called; environments of the same kind share them."""
    platform = devices[0].platform
    in_lanes = platform == "cpu" if task.lanes is None else task.lanes
    layout = Layout.of(task, in_lanes, count, devices)
    work = Work.of(task, in_lanes, layout.width)

    def reset(tiles: Tiles, words: Array, seeded: Array, mask: Array) -> tuple[Tiles, Array]:
        # Those who fill up begin at every reset: they need a state, and nobody looks at it.
        rows = layout.tiled(words, 0), layout.tiled(seeded, True), layout.tiled(mask, True)
        return layout.on_each_device(work.reset, tiles, *rows)

    def step(tiles: Tiles, actions: Array, when: Array) -> tuple[Tiles, Array]:
        real = layout.tiled(jnp.ones(count, bool), False)
        rows = layout.tiled(actions, 0.0), real, jnp.broadcast_to(when, real.shape)
        return layout.on_each_device(work.step, tiles, *rows)

    def compiled(function: Callable, *args: Any) -> Callable:
        put = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout.everywhere)
        options: Any = OPTIONS.get(platform)
        with _tracing_for(platform):
            program = jax.jit(function, out_shardings=layout.shared_out, donate_argnums=0)
            return program.lower(like, *jax.tree.map(put, args)).compile(compiler_options=options)

    describe = lambda leaf: jax.ShapeDtypeStruct((layout.number, *leaf.shape), leaf.dtype, sharding=layout.shared_out)
    like = jax.tree.map(describe, work.like)
    mask, words = np.zeros(count, bool), np.zeros((count, KEY_WORDS), np.uint32)
    actions = np.zeros((count, task.policy.act_size), np.float32)
    return Programs(
        empty=lambda: jax.tree.map(lambda leaf: jax.device_put(jnp.zeros(leaf.shape, leaf.dtype), leaf.sharding), like),
        reset=_once(lambda: compiled(reset, words, mask, mask)),
        step=_once(lambda: compiled(step, actions, np.int32(0))),
        unflat=work.flattening.unflat,
        everywhere=layout.everywhere,
    )


def _once(make: Callable[[], Callable]) -> Callable:
    """A function that is made when it is first called."""
    made = functools.cache(make)
    return lambda *args: made()(*args)
