"""What the vector environment returns, from the one array of rows that its programs tell."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jax.sharding import NamedSharding, SingleDeviceSharding

from ._env_tiles import columns
from .locomotion import Locomotion

INFO = ("descriptor", "position")
MASKS = tuple(f"_{name}" for name in INFO)
Outcome = tuple[Any, Any, Any, Any, dict[str, Any]]  # observations, rewards, terminations, truncations, infos


class Teller:
    """Takes the rows apart: on the host, or by a small program of its own on the device."""

    def __init__(
        self,
        task: Locomotion,
        count: int,
        mode: AutoresetMode,
        array_type: str,
        everywhere: NamedSharding,
    ):
        places, self._count = columns(task), count
        self._wide = [(name, places[name]) for name in ("observation", *INFO)]
        self._narrow = [places[name].start for name in ("reward", "terminated", "truncated")]
        self._same_step, self._on_device = mode == AutoresetMode.SAME_STEP, array_type == "jax"
        self._dtype = np.float32 if self._on_device else np.float64  # of rewards: as Gymnasium's own, which is NumPy's
        self._all = np.ones(count, bool)
        # One device puts together what all have told: a copy, where devices that wait for each other may wait for ever
        # once many steps are on their way.
        self._place = SingleDeviceSharding(min(everywhere.device_set, key=lambda device: device.id))
        program = lambda function: jax.jit(lambda *args: function(jnp, *args))
        self._step_there, self._begin_there = program(self._step), program(self._begin)

    def step(self, rows: jax.Array) -> Outcome:
        """What a step returns."""
        if self._on_device:
            return self._step_there(jax.device_put(rows, self._place))
        outcome = self._step(np, np.asarray(rows))
        if self._same_step:
            _as_gymnasium_does(outcome[4])
        return outcome

    def beginning(self, rows: jax.Array, mask: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """What a reset of those in the mask returns."""
        if self._on_device:
            return self._begin_there(jax.device_put(rows, self._place), mask)
        return self._begin(np, np.asarray(rows), mask)

    def _begin(self, xp: ModuleType, rows: Any, mask: Any) -> tuple[Any, dict[str, Any]]:
        parts = self._parts(rows)
        return parts["observation"], _info(xp, parts, mask)

    def _step(self, xp: ModuleType, rows: Any) -> Outcome:
        size = (rows.shape[1] - 1) // 2
        now = told = self._parts(rows)
        infos = {name: now[name] for name in INFO} | {name: self._all.copy() for name in MASKS}
        if self._same_step:
            told, begun = self._parts(rows[:, size:]), rows[: self._count, -1] > 0.5
            infos["final_obs"], infos["_final_obs"] = _where(xp, begun, told["observation"]), begun
            infos["final_info"], infos["_final_info"] = _info(xp, told, begun), begun.copy()
        return now["observation"], told["reward"], told["terminated"], told["truncated"], infos

    def _parts(self, rows: Any) -> dict[str, Any]:
        """The columns by name, as new arrays. Every step does this: few and plain operations."""
        table = rows[: self._count]
        parts = {name: table[:, place].copy() for name, place in self._wide}
        reward, terminated, truncated = self._narrow
        parts["reward"] = table[:, reward].astype(self._dtype)
        parts["terminated"], parts["truncated"] = table[:, terminated] > 0.5, table[:, truncated] > 0.5
        return parts


def _where(xp: ModuleType, mask: Any, values: Any) -> Any:
    return xp.where(mask[:, None], values, xp.zeros_like(values))


def _info(xp: ModuleType, parts: dict[str, Any], mask: Any) -> dict[str, Any]:
    """What is told of those in the mask, each part beside a mask of its own."""
    values = {name: _where(xp, mask, parts[name]) for name in INFO}
    return values | {f"_{name}": xp.array(mask) for name in INFO}


def _as_gymnasium_does(infos: dict[str, Any]):
    """Ends as Gymnasium's own vector environments tell them: only where there are any, observations one by one."""
    ended = infos["_final_obs"]
    if not ended.any():
        for name in ("final_obs", "final_info"):
            del infos[name], infos[f"_{name}"]
        return
    rows = np.full(len(ended), None, object)
    for i in np.flatnonzero(ended):
        rows[i] = infos["final_obs"][i].copy()
    infos["final_obs"] = rows
