"""What the tests share: algorithms and tasks with known answers."""

import contextlib
import dataclasses
import hashlib
import time
from pathlib import Path
from typing import Literal

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Key

import asciime_gym as ag
from asciime_gym._storage import seal
from asciime_gym.tasks._task import SimulatorState
from asciime_gym.tasks.rollout import rollout

LANES = "xla_cpu_small_call"  # marks a kernel of lanes in a program
# A little training; the replay buffer is full after a generation, so that it is always written over.
SMALL = {"critic_steps": 8, "policy_steps": 4, "minibatch_size": 16, "critic_hidden": (16, 16), "replay_size": 200}
# Every algorithm, small: the promises in test_promises.py run over all of them.
ALGORITHMS = {
    "map_elites": ag.MapElites(batch_size=24),
    "ascii_me": ag.AsciiME(batch_size=24, epochs=3),
    "pga_me": ag.PgaME(batch_size=24, **SMALL),
    "dcrl_me": ag.DcrlME(batch_size=24, **SMALL),
    "memes": ag.Memes(batch_size=24, samples=2, novelty_capacity=50),
    "ppga": ag.Ppga(
        batch_size=24,
        environments=16,
        rollout=8,
        minibatches=2,
        epochs=2,
        walk_iterations=2,
        gradient_iterations=2,
        critic_hidden=(8,),
        threshold_min=0.0,
    ),
}
# For tests that each of them has to pass; those that train networks compile for half a minute each.
TRAIN = "pga_me", "dcrl_me", "ppga"
EACH = [pytest.param(name, marks=pytest.mark.slow if name in TRAIN else ()) for name in ALGORITHMS]


def workers(parent: int | None = None, group: int | None = None) -> list[int]:
    """Worker processes of this package: those of a parent, or those in a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            owner, leader = (int(field) for field in (folder / "stat").read_text().rpartition(")")[2].split()[1:3])
            if b"_worker_main" in (folder / "cmdline").read_bytes() and (owner == parent or leader == group):
                found.append(int(folder.name))
    return found


def vanished(parent: int | None = None, group: int | None = None) -> bool:
    """Whether there are no such workers, now or soon."""
    for _ in range(150):
        if not workers(parent, group):
            return True
        time.sleep(0.1)
    return False


def spent(algorithm, generations: int, task) -> int:
    """Evaluations after so many generations; the initial one costs no more than its rows."""
    practice = 0
    if isinstance(algorithm, ag.Ppga):  # episodes' worth of PPO's steps
        practice = -(-algorithm._steps(1 + task.descriptor_size) // task.episode_length)
    return generations * algorithm.batch_size + (generations - 1) * practice


def sized(algorithm, batch_size: int):
    """The algorithm with another batch size."""
    return dataclasses.replace(algorithm, batch_size=batch_size)


class Walk(ag.AbstractSimulator):
    """A point on a plane that goes where the action says, and falls when it leaves a circle.

    Reward: 1 - |action|² / 4 a step; descriptor: where it ends. Small, pure JAX, compiles in a second.
    """

    policy: ag.AbstractPolicy = eqx.field(default_factory=lambda: ag.MLP(5, 2, hidden=(8,), output="tanh"))
    episode_length: int = eqx.field(static=True, default=12)
    noise: float = eqx.field(static=True, default=0.4)
    name: str = eqx.field(static=True, default="walk")
    descriptor_low: tuple[float, ...] = eqx.field(static=True, default=(-1.0, -1.0))
    descriptor_high: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0))
    episode_descriptor: Literal["mean", "final"] = eqx.field(static=True, default="final")
    lanes: bool | None = eqx.field(static=True, default=None)
    short_reset: bool = eqx.field(static=True, default=True)

    def reset(self, key: Key[Array, ""]) -> SimulatorState:
        place = self.noise * jax.random.normal(key, (2,))
        return self._state(place, jnp.zeros((), jnp.int32), jnp.zeros(()))

    def step(self, state: SimulatorState, action: Float[Array, " act"]) -> SimulatorState:
        place = state.physics + 0.2 * jnp.clip(action, -1, 1)
        return self._state(place, state.time + 1, 1 - jnp.sum(action**2) / 4)

    def _state(self, place, time, reward) -> SimulatorState:
        terminated = jnp.sum(place**2) > 0.9
        left = (self.episode_length - time) / self.episode_length
        return SimulatorState(
            physics=place,
            time=time,
            observation=jnp.concatenate([place, jnp.sin(3 * place), left[None]]),
            reward=jnp.maximum(reward, 0.0),
            terminated=terminated,
            truncated=(time >= self.episode_length) & ~terminated,
            descriptor=place,
        )

    def episodes(
        self,
        genotypes: Float[Array, "batch params"],
        keys: Key[Array, " batch"],
        *,
        life: Int[Array, " batch"] | None = None,
        trajectory: bool = True,
    ) -> ag.Evaluation:
        return rollout(self, genotypes, keys, life=life, trajectory=trajectory)[0]


def raw(leaf) -> np.ndarray:
    """A leaf as plain numbers."""
    is_key = jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def same(a, b) -> bool:
    """Whether two trees are equal bit for bit."""
    leaves_a, tree_a = jax.tree.flatten(a)
    leaves_b, tree_b = jax.tree.flatten(b)
    bits = lambda x: (raw(x).dtype, raw(x).shape, raw(x).tobytes())
    return tree_a == tree_b and all(bits(x) == bits(y) for x, y in zip(leaves_a, leaves_b, strict=True))


def digest(tree) -> str:
    """A fingerprint of every bit of a tree."""
    return hashlib.sha256(b"".join(raw(leaf).tobytes() for leaf in jax.tree.leaves(tree))).hexdigest()


@contextlib.contextmanager
def edited(path):
    """A file of ours to be changed, which then states the digest of what it has become."""
    with h5py.File(path, "r+") as file:
        yield file
    seal(path)
