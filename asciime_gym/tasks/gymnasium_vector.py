"""Our tasks as Gymnasium vector environments: all robots in one compiled step."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import jax
import numpy as np
from gymnasium import error
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import UInt8

from ._env_programs import WHENS, programs
from ._env_tiles import KEY_WORDS, Tiles
from ._outcome import Outcome, Teller
from ._render import Renderer
from ._spaces import (
    RENDER_MODES,
    action_space,
    check_begun,
    check_open,
    check_render_mode,
    check_rendering,
    device_actions,
    draw_words,
    host_actions,
    observation_space,
)
from ._task import SimulatorState
from .gymnasium_env import frames_per_second
from .locomotion import make_task

ARRAY_TYPES = ("numpy", "jax")
METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "autoreset_mode": AutoresetMode.NEXT_STEP}


class LocomotionVectorEnv(VectorEnv[Any, Any, Any]):
    """Many robots of one kind; what each of them does and tells is what `LocomotionEnv` does and tells.

    Sub-environment i is seeded with `seed + i`, or with `seed[i]`, and draws its later beginnings from that, too.
    """

    metadata = METADATA  # an environment adds its own

    def __init__(
        self,
        num_envs: int = 1,
        task: str = "hopper_uni",
        *,
        backend: str = "spring",
        episode_length: int = 250,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        array_type: str = "numpy",
        render_mode: str | None = None,
        width: int = 480,
        height: int = 360,
    ):
        """**Arguments:**

        - `num_envs`: sub-environments.
        - `task`, `backend`, `episode_length`: as of `make_task`.
        - `autoreset_mode`: one of Gymnasium's `AutoresetMode`, or its value.
        - `array_type`: `"numpy"`, or `"jax"` for arrays that stay on the device. Nothing that would mean to wait for
          the device is then done: JAX actions are checked for their shape only, and with `SAME_STEP` `final_obs` and
          `final_info` are there at every step, with masks, as plain arrays.
        - `render_mode`: `"rgb_array"` for pictures of `width` times `height` pixels from `render()`.
        """
        check_render_mode(render_mode)
        if not isinstance(num_envs, Integral) or num_envs < 1:
            raise ValueError(f"num_envs must be a whole number of at least 1; got {num_envs!r}")
        if array_type not in ARRAY_TYPES:
            raise ValueError(f"array_type must be one of {list(ARRAY_TYPES)}; got {array_type!r}")
        self.num_envs = int(num_envs)
        self.task = make_task(task, backend=backend, episode_length=episode_length)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.array_type = array_type
        self.render_mode = render_mode
        self.metadata = {**METADATA, "autoreset_mode": self.autoreset_mode, "render_fps": frames_per_second(self.task)}
        if array_type == "jax":
            self.metadata["jax"] = True
        self.single_observation_space, self.single_action_space = observation_space(self.task), action_space(self.task)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._programs = programs(self.task, self.num_envs, _devices())
        self._tell = Teller(self.task, self.num_envs, self.autoreset_mode, array_type, self._programs.everywhere)
        self._when = np.int32(WHENS.index(self.autoreset_mode.value))
        self._tiles: Tiles | None = None
        self._over = np.zeros(self.num_envs, bool)  # whose episodes have ended, where nothing but `reset` goes on
        self._renderer = Renderer(self.task, width, height) if render_mode else None

    def reset(
        self,
        *,
        seed: int | np.integer | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """New episodes: of all, or of those in the boolean array `options["reset_mask"]`.

        A sub-environment without a seed goes on with its own random numbers, or with those of chance if it has none.
        """
        check_open(self.closed)
        mask = self._mask(options)
        words, seeded = self._words(seed, mask)
        tiles = self._programs.empty() if self._tiles is None else self._tiles
        rows = self._advance(self._programs.reset, tiles, words, seeded, mask)
        self._over = self._over & ~mask
        return self._tell.beginning(rows, mask)

    def step(self, actions: Any) -> Outcome:
        """One step of all; those that have to begin anew before it do so instead, and ignore their actions."""
        check_open(self.closed)
        check_begun(self._tiles is not None)
        shape = (self.num_envs, self.task.policy.act_size)
        if self.array_type == "jax" and isinstance(actions, jax.Array):
            actions = device_actions(actions, shape, self._programs.everywhere)
        else:
            actions = host_actions(actions, shape)
            if self.array_type == "jax":
                actions = actions.copy()  # the user's may change before the device has read it
        if self._over.any():
            ended = np.flatnonzero(self._over).tolist()
            raise error.ResetNeeded(f'the episodes of {ended} are over: call reset(options={{"reset_mask": …}})')
        rows = self._advance(self._programs.step, self._tiles, actions, self._when)
        outcome = self._tell.step(rows)
        if self.autoreset_mode == AutoresetMode.DISABLED and self.array_type == "numpy":
            self._over = outcome[2] | outcome[3]
        return outcome

    def render(self) -> tuple[UInt8[np.ndarray, "height width 3"], ...]:  # type: ignore[override]
        """A picture of each robot."""
        check_open(self.closed)
        check_rendering(self.render_mode)
        assert self._renderer
        return tuple(self._renderer.frames(self.states.physics))

    def close_extras(self, **kwargs: Any):
        self._tiles = None
        if self._renderer:
            self._renderer.close()

    @property
    def states(self) -> SimulatorState:
        """Where the simulations stand: NumPy arrays whose first axis is the sub-environment."""
        check_begun(self._tiles is not None)
        assert self._tiles is not None
        states = jax.device_get(jax.vmap(self._programs.unflat)(self._tiles.state))
        rows = lambda leaf: np.moveaxis(leaf, -1, 1).reshape(-1, *leaf.shape[1:-1])[: self.num_envs]
        return jax.tree.map(rows, states)

    def _advance(self, program: Any, *args: Any) -> jax.Array:
        """Calls a program, which uses up the tiles."""
        try:
            self._tiles, rows = program(*args)
        except BaseException:  # such as the user's Ctrl-C
            self._tiles = None
            raise
        return rows

    def _mask(self, options: dict[str, Any] | None) -> np.ndarray:
        """Who is to begin anew."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = options["reset_mask"]
        if not isinstance(mask, (np.ndarray, jax.Array)):
            raise TypeError(f"options['reset_mask'] must be an array; got {type(mask).__name__}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must have the shape ({self.num_envs},); got {mask.shape}")
        if mask.dtype != np.bool_:
            raise TypeError(f"options['reset_mask'] must be of dtype bool; got {mask.dtype}")
        mask = np.array(mask)  # the user's may change before the device has read it
        if not mask.any():
            raise ValueError("options['reset_mask'] must name at least one sub-environment; all of it is False")
        if self._tiles is None and not mask.all():
            raise error.ResetNeeded("the first reset must be of all sub-environments, without reset_mask")
        return mask

    def _words(self, seed: Any, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the keys of newly seeded sub-environments are made from, and which these are."""
        if seed is None and self._tiles is None:
            seed = seeding.np_random()[1]
        if isinstance(seed, Integral):
            super().reset(seed=int(seed))  # refuses what is no seed
            seeds = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"a list of seeds must have one for each of {self.num_envs}; got {len(seeds)}")
        words = np.zeros((self.num_envs, KEY_WORDS), np.uint32)
        seeded = np.zeros(self.num_envs, bool)
        for i, one in enumerate(seeds):
            if mask[i] and (one is not None or self._tiles is None):
                one = int(one) if isinstance(one, Integral) else one
                words[i], seeded[i] = draw_words(seeding.np_random(one)[0]), True
        return words, seeded


def _devices() -> tuple[Any, ...]:
    """The devices of this process, or the one that the user prefers."""
    preferred = getattr(jax.config, "jax_default_device", None)
    return (preferred,) if isinstance(preferred, jax.Device) else tuple(jax.local_devices())
