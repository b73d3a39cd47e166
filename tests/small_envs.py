"""Environments with known answers; workers import this file, so it needs Gymnasium and nothing of ours."""

import os
import signal
import sys

import gymnasium
import numpy as np
from gymnasium import spaces


class Track(gymnasium.Env):
    """A place on a line that every action moves; the reward is where it is, and past `end` the episode is over.

    The action space is [-1, 3], the observation (place, steps taken).
    """

    action_space = spaces.Box(-1.0, 3.0, (1,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, end: float = 5.0, noise: float = 0.0):
        self.end, self.noise = end, noise

    def _seen(self) -> np.ndarray:
        return np.array([self.place, self.time], np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.noise * self.np_random.normal(), 0
        return self._seen(), {}

    def step(self, action):
        self.place += float(action[0])
        self.time += 1
        info = {"place": self.place, "pair": np.array([self.time, 2.0 * self.time]), "even": self.time % 2 == 0}
        return self._seen(), self.place, self.place > self.end, False, info


class Forgetful(Track):
    """One whose `reset` keeps something of the episode before."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        self.place += self.episodes
        self.episodes += 1
        return self._seen(), info


class Clumsy(Track):
    """One that fails on its third step, in the way that is asked for."""

    def __init__(self, how: str):
        super().__init__(end=1e9)
        self.how = how

    def step(self, action):
        if self.time == 2 and self.how == "raise":
            raise ArithmeticError("the track is broken")
        if self.time == 2 and self.how == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


class Shaped(gymnasium.Env):
    """Two by two observations of whole numbers, and actions with all sorts of bounds; tells what it was given."""

    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = spaces.Box(
        np.array([[-2.0, -np.inf], [0.0, -np.inf]], np.float32), np.array([[4.0, np.inf], [np.inf, 1.0]], np.float32)
    )

    def reset(self, *, seed=None, options=None):
        return np.array([[1, 2], [3, 4]], np.uint8), {}

    def step(self, action):
        assert action.shape == (2, 2) and action.dtype == np.float32
        return np.array([[1, 2], [3, 4]], np.uint8), 0.0, False, False, {"action": action.ravel()}


class Witness(Track):
    """One that sees whether its process has imported JAX."""

    def _seen(self) -> np.ndarray:
        return np.array(["jax" in sys.modules, "asciime_gym" in sys.modules], np.float64)


class Blind(Track):
    """One that sees no number after the third step."""

    def _seen(self) -> np.ndarray:
        return super()._seen() if self.time < 3 else np.array([np.nan, 0.0])
