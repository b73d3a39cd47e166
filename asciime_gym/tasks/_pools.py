"""Where a task's environments play: in this process, in workers, or in a vector environment of the user's."""

import abc
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._process import cores
from .._worker_main import Environments
from .._workers import Worker, WorkerError, end

HOW_TO_LOOK = 'With vectorization="sync" it happens in this process, where a debugger can look'


class EnvironmentFailure(RuntimeError):
    """An environment raised, or the process that it was in died."""


class Plan(NamedTuple):
    """What environments to play in."""

    name: str
    make: Callable[[], Any]
    num_envs: int
    reuse: bool
    info_names: tuple[str, ...] | None


class Steps(NamedTuple):
    """What a step of some of the environments gave, a row each."""

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: list[dict[str, Any]]


class Pool(abc.ABC):
    """Environments by number; any of them may be reset or stepped while the others wait."""

    num_envs: int

    @abc.abstractmethod
    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
        """First observations `[slots, obs]` of new episodes."""

    @abc.abstractmethod
    def step(self, slots: Sequence[int], actions: np.ndarray) -> Steps: ...

    @abc.abstractmethod
    def close(self, at_once: bool = False): ...


class Local(Pool):
    """Environments in this process."""

    def __init__(self, plan: Plan):
        self.num_envs, self._name = plan.num_envs, plan.name
        self._environments = Environments(plan.make, plan.num_envs, plan.reuse, plan.info_names)

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
        with self._failing("reset"):
            return self._environments.reset(slots, seeds)

    def step(self, slots: Sequence[int], actions: np.ndarray) -> Steps:
        with self._failing("step"):
            return Steps(*self._environments.step(slots, actions))

    @contextlib.contextmanager
    def _failing(self, what: str):
        try:
            yield
        except Exception as error:
            raise EnvironmentFailure(f"{self._name}: {what} raised {type(error).__name__}: {error}") from error

    def close(self, at_once: bool = False):
        self._environments.close()


class Workers(Pool):
    """Environments in processes of their own, one per core, each with its share of them.

    A message per worker carries the steps of all its environments: one per environment, as `AsyncVectorEnv` sends
    them, takes longer than a step of a small robot. Slot i is with worker i modulo their number.
    """

    def __init__(self, plan: Plan):
        self.num_envs, self._name = plan.num_envs, plan.name
        self._count = min(cores(), plan.num_envs)
        self._workers: list[Worker] = []
        try:
            self._workers += [Worker(plan.name) for _ in range(self._count)]
            shares = [len(range(i, plan.num_envs, self._count)) for i in range(self._count)]
            made = [(plan.make, share, plan.reuse, plan.info_names) for share in shares]
            for worker, parts in zip(self._workers, made, strict=True):
                worker.open("environments", parts)
            self._answers("start", range(self._count))
        except BaseException:
            self.close(at_once=True)
            raise

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
        rows = self._deal(slots)
        for i, own in rows.items():
            self._workers[i].ask("reset", self._places(slots, own), [int(seeds[row]) for row in own])
        return _gather(rows, self._answers("reset", rows), len(slots))

    def step(self, slots: Sequence[int], actions: np.ndarray) -> Steps:
        rows = self._deal(slots)
        for i, own in rows.items():
            self._workers[i].ask("step", self._places(slots, own), actions[own])
        answers = self._answers("step", rows)
        columns = [_gather(rows, {i: answers[i][k] for i in rows}, len(slots)) for k in range(4)]
        infos: list[dict[str, Any]] = [{}] * len(slots)
        for i, own in rows.items():
            for row, info in zip(own, answers[i][4], strict=True):
                infos[row] = info
        return Steps(columns[0], columns[1], columns[2], columns[3], infos)

    def _deal(self, slots: Sequence[int]) -> dict[int, list[int]]:
        """The rows of each worker that has any."""
        rows: dict[int, list[int]] = {}
        for row, slot in enumerate(slots):
            rows.setdefault(int(slot) % self._count, []).append(row)
        return rows

    def _places(self, slots: Sequence[int], rows: list[int]) -> list[int]:
        return [int(slots[row]) // self._count for row in rows]

    def _answers(self, what: str, asked: Iterable[int]) -> dict[int, Any]:
        """What the workers answer, all of which have been asked before: so they work at the same time."""
        try:
            return {i: self._workers[i].answer() for i in asked}
        except WorkerError as error:
            raise EnvironmentFailure(f"{self._name}: {what} failed. {HOW_TO_LOOK}. {error}") from None

    def close(self, at_once: bool = False):
        end(self._workers, at_once)
        self._workers = []


class Borrowed(Pool):
    """A vector environment of the user's, who also closes it.

    It steps all of its environments or none, so those that have nothing to play go through the motions.
    """

    def __init__(self, venv: Any, idle_action: np.ndarray):
        self.num_envs, self._venv, self._idle_action = venv.num_envs, venv, idle_action
        self._ended = np.ones(venv.num_envs, bool)  # and may not be stepped before a reset

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
        mask, every = self._ended.copy(), [0] * self.num_envs  # all at first, since some cannot begin with a few
        mask[list(slots)] = True
        for slot, seed in zip(slots, seeds, strict=True):
            every[slot] = int(seed)
        with self._failing("reset"):
            seen, _ = self._venv.reset(seed=every, options={"reset_mask": mask})
        self._ended[:] = False
        return self._rows(seen, slots)

    def step(self, slots: Sequence[int], actions: np.ndarray) -> Steps:
        if self._ended.any():
            self.reset([], [])
        every = np.repeat(self._idle_action[None], self.num_envs, axis=0)
        every[list(slots)] = actions
        with self._failing("step"):
            seen, reward, terminated, truncated, infos = self._venv.step(every)
        self._ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        chosen = lambda column: np.asarray(column)[list(slots)]
        return Steps(
            observation=self._rows(seen, slots),
            reward=chosen(reward),
            terminated=chosen(terminated),
            truncated=chosen(truncated),
            info=[_info_of(infos, slot) for slot in slots],
        )

    def _rows(self, seen: Any, slots: Sequence[int]) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.asarray(seen).astype(np.float32).reshape(self.num_envs, -1)[list(slots)]

    @contextlib.contextmanager
    def _failing(self, what: str):
        try:
            yield
        except Exception as error:
            raise EnvironmentFailure(f"{self._venv}: {what} raised {type(error).__name__}: {error}") from error

    def close(self, at_once: bool = False):
        self._ended[:] = True


def _info_of(infos: dict[str, Any], slot: int) -> dict[str, Any]:
    """One environment's info out of those of all, which have a mask `_name` beside each name."""
    own = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if mask is not None and np.asarray(mask)[slot]:
            own[name] = _info_of(values, slot) if isinstance(values, dict) else values[slot]
    return own


def _gather(rows: dict[int, list[int]], parts: dict[int, np.ndarray], count: int) -> np.ndarray:
    first = next(iter(parts.values()))
    whole = np.empty((count, *first.shape[1:]), first.dtype)
    for i, own in rows.items():
        whole[own] = parts[i]
    return whole
