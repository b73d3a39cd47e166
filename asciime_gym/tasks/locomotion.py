"""The five locomotion tasks on Brax: their rewards, observations and descriptors."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from .._compile import compiled
from .._policy import MLP, AbstractPolicy
from ._brax import brax, environment
from ._task import AbstractSimulator, Evaluation, SimulatorState
from .ant_trap import ant_trap
from .rollout import rollout

BACKENDS = ("spring", "positional", "generalized", "mjx")
ARENA = 30.0  # an omni task's descriptor space is this far in every direction
OMNI_BONUS = 3.03  # keeps an omni task's reward positive for actions within ±1: control costs 4 at most, life pays 1


class Robot(NamedTuple):
    """What distinguishes the tasks."""

    brax_name: str
    observation_size: int  # of Brax's environment
    action_size: int
    feet: tuple[int, ...]  # links that count as feet; none: the descriptor is where the torso ends
    trap: bool = False
    about: str = ""


ROBOTS = {
    "ant_omni": Robot("ant", 27, 8, (), about="reach every place, with little effort"),
    "anttrap_omni": Robot("ant", 27, 8, (), trap=True, about="the same, facing a U-shaped wall"),
    "walker2d_uni": Robot("walker2d", 17, 6, (3, 6), about="run, using either foot as much as you like"),
    "hopper_uni": Robot("hopper", 11, 3, (3,), about="hop, touching the ground as much as you like"),
    # Brax's ant gives its lower legs empty names: they are these links.
    "ant_uni": Robot("ant", 27, 8, (2, 4, 6, 8), about="run, using each of four feet as much as you like"),
}
TASKS = tuple(ROBOTS)


class Locomotion(AbstractSimulator):
    """A Brax robot to be moved in many ways; make one with `make_task`."""

    name: str = eqx.field(static=True)
    backend: str = eqx.field(static=True)
    episode_length: int = eqx.field(static=True)
    policy: AbstractPolicy
    descriptor_low: tuple[float, ...] = eqx.field(static=True)
    descriptor_high: tuple[float, ...] = eqx.field(static=True)
    episode_descriptor: Literal["mean", "final"] = eqx.field(static=True)
    lanes: bool | None = eqx.field(static=True, default=None)
    short_reset: bool = eqx.field(static=True, default=False)

    @property
    def robot(self) -> Robot:
        return ROBOTS[self.name]

    @property
    def env(self) -> Any:
        """The Brax environment under the task."""
        return ant_trap(self.backend) if self.robot.trap else environment(self.robot.brax_name, self.backend)

    @property
    def descriptor_names(self) -> tuple[str, ...]:
        """What each dimension of the descriptor means."""
        names = tuple(f"contact rate of foot {i + 1}" for i in range(len(self.robot.feet)))
        return names or ("final x (m)", "final y (m)")

    def reset(self, key: Key[Array, ""]) -> SimulatorState:
        """A fresh episode, with Brax's own noise on the initial pose."""
        state = self.env.reset(key)
        time = jnp.zeros((), jnp.int32)
        return SimulatorState(
            physics=state.pipeline_state,
            time=time,
            observation=self._observe(state, time),
            reward=jnp.zeros(()),
            terminated=jnp.zeros((), bool),
            truncated=jnp.zeros((), bool),
            descriptor=self._describe(state.pipeline_state),
        )

    def step(self, state: SimulatorState, action: Float[Array, " act"]) -> SimulatorState:
        """One step of the environment, which is several of the physics."""
        zero = jnp.zeros(())
        before = brax().envs.State(state.physics, state.observation, zero, zero, metrics={})
        after = self.env.step(before, action)
        time = state.time + 1
        terminated = after.done > 0.5
        return SimulatorState(
            physics=after.pipeline_state,
            time=time,
            observation=self._observe(after, time),
            reward=jnp.maximum(self._reward(after), 0.0),
            terminated=terminated,
            truncated=(time >= self.episode_length) & ~terminated,
            descriptor=self._describe(after.pipeline_state),
        )

    @compiled
    def episodes(
        self,
        genotypes: Float[Array, "batch params"],
        keys: Key[Array, " batch"],
        *,
        life: Int[Array, " batch"] | None = None,
        trajectory: bool = True,
    ) -> Evaluation:
        evaluation, _ = rollout(self, genotypes, keys, life=life, trajectory=trajectory)
        return evaluation

    @compiled
    def replay(self, genotype: Float[Array, " params"], key: Key[Array, ""]) -> tuple[Evaluation, PyTree]:
        """One episode again: its evaluation, and the physics state after every step (leading axis: time)."""
        evaluation, physics = rollout(self, genotype[None], key[None], keep=lambda state: state.physics)
        return evaluation, jax.tree.map(lambda leaf: leaf[0], physics)

    def _reward(self, state: Any) -> Float[Array, ""]:
        if self.robot.feet:
            return state.reward
        return state.metrics["reward_survive"] + state.metrics["reward_ctrl"] + OMNI_BONUS

    def _observe(self, state: Any, time: Int[Array, ""]) -> Float[Array, " obs"]:
        remaining = (self.episode_length - time) / self.episode_length
        parts = [state.obs, remaining[None]]
        if not self.robot.feet:
            parts.insert(0, state.pipeline_state.x.pos[0, :2] / ARENA)
        return jnp.concatenate(parts)

    def _describe(self, physics: Any) -> Float[Array, " dims"]:
        if not self.robot.feet:
            return jnp.clip(physics.x.pos[0, :2], -ARENA, ARENA)
        contact = brax().contact.get(self.env.sys, physics.x)
        touching = contact.dist <= 0
        of_foot = lambda foot: ((contact.link_idx[0] == foot) | (contact.link_idx[1] == foot)) & touching
        return jnp.stack([of_foot(foot).any() for foot in self.robot.feet]).astype(jnp.float32)

    def __repr__(self) -> str:
        return (
            f"Task({self.name}, backend={self.backend!r}, episode_length={self.episode_length}, "
            f"observation {self.policy.obs_size}, action {self.policy.act_size}, parameters {self.policy.size:,}, "
            f"descriptor: {', '.join(self.descriptor_names)})"
        )


def make_task(
    name: str,
    *,
    backend: str = "spring",
    episode_length: int = 250,
    policy: Callable[[int, int], AbstractPolicy] = MLP,
    lanes: bool | None = None,
) -> Locomotion:
    """One of the five tasks.

    **Arguments:**

    - `name`: one of `TASKS`.
    - `backend`: Brax's physics: `"spring"` (fastest), `"positional"`, `"generalized"` or `"mjx"`.
    - `episode_length`: steps after which an episode is cut off.
    - `policy`: a function of (observation size, action size) that gives the policy; ASCII-ME's network by default.
    - `lanes`: whether the physics of many episodes runs one vector per scalar (`tasks/lanes.py`) or under `jax.vmap`;
      by default the former for `"spring"` on a CPU, the latter elsewhere.
    """
    if name not in ROBOTS:
        raise ValueError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}")
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; Brax's backends are {', '.join(BACKENDS)}")
    if int(episode_length) != episode_length:
        raise ValueError(f"episode_length must be a whole number of steps; got {episode_length}")
    robot = ROBOTS[name]
    obs_size = robot.observation_size + (1 if robot.feet else 3)  # time, and (x, y) where place matters
    made = policy(obs_size, robot.action_size)
    if (made.obs_size, made.act_size) != (obs_size, robot.action_size):
        raise ValueError(
            f"{name} needs a policy of observation size {obs_size} and action size {robot.action_size}; "
            f"the one given has {made.obs_size} and {made.act_size}"
        )
    dims = len(robot.feet)
    return Locomotion(
        name=name,
        backend=backend,
        episode_length=int(episode_length),
        policy=made,
        descriptor_low=(0.0,) * dims or (-ARENA, -ARENA),
        descriptor_high=(1.0,) * dims or (ARENA, ARENA),
        episode_descriptor="mean" if dims else "final",
        lanes=False if lanes is None and backend != "spring" else lanes,
        short_reset=backend == "spring",  # others solve linear systems, and scatter
    )
