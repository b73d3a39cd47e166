"""Our tasks as single Gymnasium environments."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import error
from jaxtyping import Array, Float, Key, UInt8, UInt32

from .._compile import OPTIONS, _tracing_for
from ._env_tiles import columns, key_of, told
from ._render import Renderer
from ._spaces import (
    RENDER_MODES,
    action_space,
    check_begun,
    check_open,
    check_render_mode,
    check_rendering,
    draw_words,
    host_actions,
    observation_space,
)
from ._task import SimulatorState
from .locomotion import Locomotion, make_task

METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES)}


class LocomotionEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One robot.

    Actions are torques in units of what the actuators can give. They are not clipped: the actuators do no more than
    ±1, but effort is paid for as it was asked for, so that a policy's return is the fitness that it would have in an
    archive. An episode ends by itself (`terminated`) or after `episode_length` steps (`truncated`).

    `info` holds the step's `descriptor` and the torso's `position` in the world (m).
    """

    metadata = METADATA  # an environment adds its own

    def __init__(
        self,
        task: str = "hopper_uni",
        *,
        backend: str = "spring",
        episode_length: int = 250,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 360,
    ):
        """**Arguments:**

        - `task`, `backend`, `episode_length`: as of `make_task`.
        - `render_mode`: `"rgb_array"` for pictures of `width` times `height` pixels from `render()`.
        """
        check_render_mode(render_mode)
        self.task = make_task(task, backend=backend, episode_length=episode_length)
        self.observation_space, self.action_space = observation_space(self.task), action_space(self.task)
        self.render_mode = render_mode
        self.metadata = {**METADATA, "render_fps": frames_per_second(self.task)}
        self._programs = programs(self.task)
        self.state: SimulatorState | None = None  # where the simulation stands; may be set
        self._key: Key[Array, ""] | None = None
        self._renderer = Renderer(self.task, width, height) if render_mode else None
        self._closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A new episode. Without a seed it goes on with the numbers of the last one, or of chance if there was none."""
        check_open(self._closed)
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = self._programs.seed(draw_words(self.np_random))
        self._key, self.state, row = self._programs.begin(self._key)
        observation, _, _, _, info = self._outcome(row)
        return observation, info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        check_open(self._closed)
        check_begun(self.state is not None)
        assert self.state is not None
        if bool(self.state.terminated) or bool(self.state.truncated):
            raise error.ResetNeeded("the episode is over: call reset()")
        action = host_actions(action, (self.task.policy.act_size,))
        self.state, row = self._programs.step(self.state, action)
        return self._outcome(row)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:  # type: ignore[override]
        """A picture of the robot."""
        check_open(self._closed)
        check_rendering(self.render_mode)
        check_begun(self.state is not None)
        assert self._renderer and self.state is not None
        return self._renderer.frame(self.state.physics)

    def close(self):
        self._closed = True
        self.state = None
        if self._renderer:
            self._renderer.close()

    def _outcome(self, row: Array) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        numbers = np.asarray(row)
        parts = {name: numbers[place].copy() for name, place in columns(self.task).items()}
        reward, terminated, truncated = (parts[name].item() for name in ("reward", "terminated", "truncated"))
        info = {"descriptor": parts["descriptor"], "position": parts["position"]}
        return parts["observation"], reward, terminated > 0.5, truncated > 0.5, info


class Programs(NamedTuple):
    """Of a task, compiled when first called."""

    seed: Callable[[UInt32[np.ndarray, "2"]], Key[Array, ""]]
    begin: Callable[[Key[Array, ""]], tuple[Key[Array, ""], SimulatorState, Array]]
    step: Callable[[SimulatorState, np.ndarray], tuple[SimulatorState, Array]]


@functools.lru_cache(maxsize=16)
def programs(task: Locomotion) -> Programs:
    """The programs; environments of the same kind share them."""

    def begin(key: Key[Array, ""]) -> tuple[Key[Array, ""], SimulatorState, Array]:
        key, drawn = jax.random.split(key)
        state = task.reset(drawn)
        return key, state, told(state)

    def step(state: SimulatorState, action: Float[Array, " act"]) -> tuple[SimulatorState, Array]:
        after = task.step(state, action)
        return after, told(after)

    return Programs(jax.jit(key_of), _compiled(begin), _compiled(step))


def _compiled(function: Callable) -> Callable:
    platform = jax.default_backend()
    program = jax.jit(function, compiler_options=OPTIONS.get(platform))

    def call(*args: Any) -> Any:
        with _tracing_for(platform):
            return program(*args)

    return call


def frames_per_second(task: Locomotion) -> int:
    """Steps in a second of the robot's time."""
    return round(1 / float(task.env.dt))
