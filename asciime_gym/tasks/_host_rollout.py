"""Episodes in environments that live on the host."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compile import OPTIONS
from .._policy import AbstractPolicy
from ._descriptors import Info, Played
from ._pools import Pool, Steps
from ._scaling import Scaling

NOBODY = -1  # plays in an environment that is free


class Actor:
    """The policies of a whole batch; those that are playing act in one call.

    Each row's product is computed by itself, in a loop whose length the program does not know: what a policy does
    depends, to the last bit, neither on who else plays nor on how many environments there are.
    """

    def __init__(self, policy: AbstractPolicy):
        def act(
            genotypes: Float[Array, "batch params"],
            rows: Int[Array, " envs"],
            seen: Float[Array, "envs obs"],
            count: Int[Array, ""],
        ) -> Float[Array, "envs act"]:
            one = lambda i, actions: actions.at[i].set(policy.act(genotypes[rows[i]], seen[i]))
            return jax.lax.fori_loop(0, count, one, jnp.zeros((len(rows), policy.act_size)))

        self._act = jax.jit(act, compiler_options=OPTIONS["cpu"])

    def of(self, genotypes: Float[np.ndarray, "batch params"], num_envs: int) -> Callable[[Any, Any], np.ndarray]:
        """A function of (rows, what they see) that gives their actions."""
        if len(genotypes) == 1:  # two at least: a program for a single one might be another
            genotypes = np.repeat(genotypes, 2, axis=0)
        # On a CPU whatever other devices there are: that is where the environments are.
        placed = jax.device_put(genotypes, jax.local_devices(backend="cpu")[0])

        def act(rows: Int[np.ndarray, " live"], seen: Float[np.ndarray, "live obs"]) -> Float[np.ndarray, "live act"]:
            count = len(rows)
            padded = np.zeros(num_envs, np.int32), np.zeros((num_envs, seen.shape[1]), np.float32)
            padded[0][:count], padded[1][:count] = rows, seen
            return np.asarray(self._act(placed, *padded, np.int32(count)))[:count]

        return act


class Stage:
    """The episodes under way, one per environment."""

    def __init__(self, num_envs: int, time: int, obs_size: int, act_size: int):
        self.row = np.full(num_envs, NOBODY)  # who plays
        self.t = np.zeros(num_envs, int)  # steps taken
        self._time = time
        self._observation = np.zeros((num_envs, time + 1, obs_size), np.float32)
        self._action = np.zeros((num_envs, time, act_size), np.float32)
        self._reward = np.zeros((num_envs, time), np.float32)
        self._terminated = np.zeros(num_envs, bool)
        self._info: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]

    def begin(self, slots: Sequence[int], rows: Sequence[int], seen: Float[np.ndarray, "slots obs"]):
        self.row[slots], self.t[slots], self._observation[slots, 0] = rows, 0, seen
        for slot in slots:
            self._info[slot] = []

    @property
    def live(self) -> Int[np.ndarray, " live"]:
        """Environments in which somebody plays."""
        return np.flatnonzero(self.row != NOBODY)

    def seen(self, slots: Int[np.ndarray, " slots"]) -> Float[np.ndarray, "slots obs"]:
        """What they see now."""
        return self._observation[slots, self.t[slots]]

    def advance(
        self, slots: Int[np.ndarray, " slots"], action: Float[np.ndarray, "slots act"], steps: Steps
    ) -> Bool[np.ndarray, " slots"]:
        """Takes in a step; returns whose episode it ended."""
        # Who does not act in numbers does not go on, and has a fitness that the archive refuses.
        lost = ~np.isfinite(action).all(axis=1)
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused as such
            reward = np.where(lost, np.nan, steps.reward).astype(np.float32)
        t = self.t[slots]
        self._action[slots, t], self._reward[slots, t] = action, reward
        self._observation[slots, t + 1] = steps.observation
        self.t[slots] += 1
        self._terminated[slots] = steps.terminated
        for slot, info in zip(slots, steps.info, strict=True):
            self._info[slot].append(info)
        return steps.terminated | steps.truncated | lost | (self.t[slots] >= self._time)

    def end(self, slot: int) -> tuple[int, Played]:
        """Who played, and what; the environment is free."""
        row, t = int(self.row[slot]), self.t[slot]
        self.row[slot] = NOBODY
        observation = self._observation[slot, : t + 1].copy()
        return row, Played(
            observation=observation[:-1],
            next_observation=observation[1:],
            action=self._action[slot, :t].copy(),
            reward=self._reward[slot, :t].copy(),
            terminated=bool(self._terminated[slot]),
            info=Info(self._info[slot]),
        )


def play(
    pool: Pool,
    act: Callable[[Any, Any], np.ndarray],
    scale: Scaling,
    stage: Stage,
    rows: Iterable[int],
    seeds: Int[np.ndarray, " batch"],
    ended: Callable[[int, Played], None],
):
    """One episode per row, in this order; an environment whose episode has ended takes the next at once.

    **Arguments:**

    - `act`: a function of (rows, what they see).
    - `scale`: makes of a policy's output what the environment takes.
    - `seeds`: of each row's episode.
    - `ended`: called with each row and its episode, in the order in which they end.
    """
    waiting, free = iter(rows), range(pool.num_envs)
    while True:
        taken = list(zip(free, waiting, strict=False))
        if taken:
            slots, newcomers = (list(column) for column in zip(*taken, strict=True))
            stage.begin(slots, newcomers, pool.reset(slots, seeds[newcomers].tolist()))
        live = stage.live
        if not len(live):
            return
        action = act(stage.row[live], stage.seen(live))
        steps = pool.step(live.tolist(), scale(np.where(np.isfinite(action), action, 0.0)))
        free = live[stage.advance(live, action, steps)].tolist()
        for slot in free:
            ended(*stage.end(slot))
