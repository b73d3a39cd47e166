"""The contract of a task: what an algorithm may know of the world it optimises for."""

import abc
from collections.abc import Iterable
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .._compile import compiled
from .._policy import AbstractPolicy


class Trajectory(eqx.Module):
    """One episode, or a batch of them with leading axes; zero after its end."""

    observation: Float[Array, "*batch time obs"]
    action: Float[Array, "*batch time act"]
    reward: Float[Array, "*batch time"]
    alive: Bool[Array, "*batch time"]  # not ended before step t: the step that ends the episode is alive
    terminated: Bool[Array, "*batch time"]  # ended at step t, not merely cut off


class Evaluation(eqx.Module):
    """What a batch of episodes gave."""

    fitness: Float[Array, " batch"]
    descriptor: Float[Array, "batch dims"]
    trajectory: Trajectory | None
    steps: Int[Array, " batch"]  # environment steps that each row took


def floats(values: Iterable[float]) -> tuple[float, ...]:
    """A plain tuple of numbers."""
    return tuple(float(value) for value in values)


class AbstractProblem(eqx.Module):
    """The record that ask and tell need."""

    policy: eqx.AbstractVar[AbstractPolicy]
    descriptor_low: eqx.AbstractVar[tuple[float, ...]]
    descriptor_high: eqx.AbstractVar[tuple[float, ...]]
    episode_length: eqx.AbstractVar[int]

    @property
    def descriptor_size(self) -> int:
        return len(self.descriptor_low)

    def __check_init__(self):
        low, high = self.descriptor_low, self.descriptor_high
        finite = all(abs(value) < float("inf") for value in (*low, *high))
        if not low or len(low) != len(high) or not finite or any(a >= b for a, b in zip(low, high, strict=True)):
            raise ValueError(
                "descriptor_low and descriptor_high need the same length, at least 1, and finite values with "
                f"low < high in every dimension; got low={list(low)}, high={list(high)}"
            )
        if self.episode_length < 1:
            raise ValueError(f"episode_length must be at least 1 step; got {self.episode_length}")


class Problem(AbstractProblem):
    """A problem whose evaluator lives elsewhere: all that a hand-driven ask/tell loop needs."""

    policy: AbstractPolicy
    descriptor_low: tuple[float, ...] = eqx.field(converter=floats, static=True)
    descriptor_high: tuple[float, ...] = eqx.field(converter=floats, static=True)
    episode_length: int = eqx.field(static=True)


class AbstractTask(AbstractProblem):
    """A problem that can evaluate policies by itself."""

    # Whether `episodes` is plain Python, with environments that live on the host, rather than part of a program.
    on_host: ClassVar[bool] = False

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def episodes(
        self,
        genotypes: Float[Array, "batch params"],
        keys: Key[Array, " batch"],
        *,
        life: Int[Array, " batch"] | None = None,
        trajectory: bool = True,
    ) -> Evaluation:
        """One episode per row, each from its own key; `life` may order the work, never change a result."""

    def evaluate(
        self,
        genotypes: Float[Array, "batch params"] | Float[np.ndarray, "batch params"],
        key: Key[Array, ""],
        *,
        life: Int[Array, " batch"] | None = None,
        trajectory: bool = True,
    ) -> Evaluation:
        """One episode per row; row i uses `fold_in(key, i)`."""
        play = evaluate if self.on_host else _evaluate_compiled
        return play(self, genotypes, key, life=life, trajectory=trajectory)


def evaluate(
    task: AbstractTask,
    genotypes: Float[Array, "batch params"] | Float[np.ndarray, "batch params"],
    key: Key[Array, ""],
    *,
    life: Int[Array, " batch"] | None,
    trajectory: bool,
) -> Evaluation:
    keys = episode_keys(key, len(genotypes))
    return task.episodes(jnp.asarray(genotypes, jnp.float32), keys, life=life, trajectory=trajectory)


_evaluate_compiled = compiled(evaluate)


def program_view(problem: AbstractProblem) -> AbstractProblem:
    """What a program may know of a problem: of a task that is played on the host, the record alone.

    A program is kept as long as the process lives, and with it all that it was made for; a task's environments must
    not be.
    """
    if isinstance(problem, AbstractTask) and problem.on_host:
        return Problem(problem.policy, problem.descriptor_low, problem.descriptor_high, problem.episode_length)
    return problem


class SimulatorState(eqx.Module):
    """Where a simulation stands, and what its last step gave."""

    physics: PyTree
    time: Int[Array, ""]  # steps taken
    observation: Float[Array, " obs"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    descriptor: Float[Array, " dims"]  # of this step: foot contacts, or where the torso is


class AbstractSimulator(AbstractTask):
    """A task whose environment can also be stepped from outside."""

    episode_descriptor: eqx.AbstractVar[Literal["mean", "final"]]  # of the alive steps' descriptors
    lanes: eqx.AbstractVar[bool | None]  # whether episodes step in lanes; None: where that is faster, on a CPU
    short_reset: eqx.AbstractVar[bool]  # whether a CPU's compiler can make one kernel of `reset` (see `one_kernel`)

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> SimulatorState: ...

    @abc.abstractmethod
    def step(self, state: SimulatorState, action: Float[Array, " act"]) -> SimulatorState: ...


def episode_keys(key: Key[Array, ""], batch: int) -> Key[Array, " batch"]:
    """The key of each row's episode."""
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(batch))
