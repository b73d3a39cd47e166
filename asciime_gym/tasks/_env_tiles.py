"""Environments that step together and begin anew by themselves: what a device does with them.

Environments stand in tiles: every array of theirs is [tiles, ..., width], a tile the unit of work. What a state holds
is kept as one array, and what a step tells is one: on a CPU the number of arrays that a program touches costs more
than their size.

A beginning costs nearly as much as a step, and among many short episodes one is due at almost every step. So each
environment has its next beginning ready, and a tile makes new ones, for all that have used theirs, only when one that
has used it needs another. Which beginning an environment gets depends on its own key alone, never on when it was made.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, UInt32

from ._flat import Flattening
from ._task import SimulatorState
from .lanes import lanes
from .locomotion import Locomotion

KEY_WORDS = 2  # of 32 bits each, that a key is made from
POSITION = 3


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

    state: Float[Array, "tiles size width"]
    keys: UInt32[Array, "tiles words width"]  # draw the beginnings that are not made yet
    ready: Float[Array, "tiles size width"]  # the next beginnings
    used: Bool[Array, "tiles width"]  # those that have to be made


class Work(NamedTuple):
    """What a device does with its tiles."""

    resets: Callable[[Key[Array, " width"]], SimulatorState]  # of one tile, as `steps`
    steps: Callable[[SimulatorState, Array], SimulatorState]
    flattening: Flattening
    like: Tiles  # the shapes of one tile

    @classmethod
    def of(cls, task: Locomotion, in_lanes: bool, width: int) -> "Work":
        wide = (lanes(task.reset), lanes(task.step))
        resets, steps = wide if in_lanes else (jax.vmap(task.reset, 0, -1), jax.vmap(task.step, -1, -1))
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), width))
        states = jax.eval_shape(resets, keys)
        flattening = Flattening.of(states)
        flat = jax.eval_shape(flattening.flat, states)
        return cls(resets, steps, flattening, Tiles(flat, jax.eval_shape(_data, keys), flat, states.terminated))

    def reset(self, tiles: Tiles, words: Array, seeded: Array, mask: Array) -> tuple[Tiles, Array]:
        keys = _choose(seeded, jax.vmap(lambda words: _data(jax.vmap(key_of, -1)(words)))(words), tiles.keys)
        tiles = self.begin(Tiles(tiles.state, keys, tiles.ready, tiles.used | seeded), mask)
        return tiles, _rows(jax.vmap(self.tell)(tiles.state))

    def step(self, tiles: Tiles, actions: Array, real: Array, when: Array) -> tuple[Tiles, Array]:
        def one(tile: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
            before = self.flattening.unflat(tile[0])
            after = self.steps(before, tile[1])
            ended = lambda state: state.terminated | state.truncated
            return self.flattening.flat(after), told(after), ended(before), ended(after)

        after, last, before_ended, ended = jax.lax.map(one, (tiles.state, actions))
        begun = real & jax.lax.select_n(when, before_ended, ended, jnp.zeros_like(ended))
        tiles = self.begin(tiles._replace(state=after), begun)
        now = jax.vmap(self.tell)(tiles.state)
        return tiles, _rows(jnp.concatenate([now, last, begun[:, None].astype(jnp.float32)], 1))

    def tell(self, flat: Array) -> Array:
        return told(self.flattening.unflat(flat))

    def begin(self, tiles: Tiles, mask: Bool[Array, "tiles width"]) -> Tiles:
        """The tiles with those of the mask at their next beginnings."""

        def make(parts: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            """Makes those of the first tile that lacks one."""
            which = jnp.argmax((mask & parts[2]).any(1))
            keys, ready, used = (jax.lax.dynamic_index_in_dim(part, which, keepdims=False) for part in parts)
            pairs = jax.vmap(jax.random.split, 0, 1)(jax.random.wrap_key_data(keys.T))
            keys = _choose(used, _data(pairs[0]), keys)
            ready = _choose(used, self.flattening.flat(self.resets(pairs[1])), ready)
            put = lambda part, new: jax.lax.dynamic_update_index_in_dim(part, new, which, 0)
            return put(parts[0], keys), put(parts[1], ready), put(parts[2], jnp.zeros_like(used))

        # A loop, mostly of no round: it leaves in place what a condition would copy.
        lacking = lambda parts: (mask & parts[2]).any()
        keys, ready, used = jax.lax.while_loop(lacking, make, (tiles.keys, tiles.ready, tiles.used))
        return Tiles(_choose(mask, ready, tiles.state), keys, ready, used | mask)


def _choose(mask: Bool[Array, "*tiles width"], yes: Array, no: Array) -> Array:
    return jnp.where(mask[..., None, :], yes, no)


def _data(keys: Key[Array, " width"]) -> UInt32[Array, "words width"]:
    """Keys as plain numbers, which a program takes and gives at less cost."""
    return jax.random.key_data(keys).T


def _rows(told: Float[Array, "tiles columns width"]) -> Float[Array, "rows columns"]:
    """One row per environment."""
    return told.swapaxes(1, 2).reshape(-1, told.shape[1])
