"""Any Gymnasium environment as a task: played on the host, one environment per episode under way."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import VectorEnv
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key

from .._policy import MLP, AbstractPolicy
from .._watch import report
from ._descriptors import Descriptor, Played
from ._host_rollout import Actor, Stage, play
from ._pools import Pool
from ._scaling import Scaling, action_size, observation_size
from ._sources import source
from ._task import AbstractTask, Evaluation, Trajectory, floats


class Players:
    """The environments of a task: opened when they are first needed, closed when the task is gone."""

    def __init__(self, open_pool: Callable[[], Pool], actor: Actor, scale: Scaling):
        self._open, self._pool = open_pool, None
        self.actor, self.scale = actor, scale

    def pool(self) -> Pool:
        if self._pool is None:
            self._pool = self._open()
        return self._pool

    def close(self, at_once: bool = False):
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(at_once)


class GymnasiumTask(AbstractTask):
    """A Gymnasium environment that nobody here wrote, to be solved in many ways.

    Fitness is the sum of an episode's rewards. The seed of a row's `reset` comes from its key, so an episode does not
    depend on how many environments there are, on where they live, or on which of them played it. Actions are scaled to
    the bounds of the action space: -1 and 1 become low and high, what is beyond is clipped; dimensions without bounds
    get the policy's output as it is. The trajectory holds what the policy gave.

    `close()`, or the end of a `with` block, ends the worker processes; they also end with the task or the interpreter.

    **Arguments:**

    - `env`: an id such as `"Hopper-v5"`, or a function that makes an environment (with wrappers round it, say). It is
      sent to the workers by value, so that a script of yours needs no `if __name__ == "__main__"`.
    - `descriptor`: `FinalObservation(…)`, `MeanPredicate(…)`, `MeanInfo(…)`, or any function of an episode (`Played`).
    - `descriptor_low`, `descriptor_high`: its bounds.
    - `episode_length`: steps after which an episode is cut off; by default the environment's own limit, which may also
      come first.
    - `num_envs`: environments that play at the same time; by default 8 per CPU core.
    - `vectorization`: `"async"`, in one worker process per core; `"sync"`, in this process; or a vector environment
      of your own with `autoreset_mode=AutoresetMode.DISABLED`, which you close yourself.
    - `policy`: a function of (observation size, action size) that gives the policy; ASCII-ME's network by default.
    - `reuse`: whether an environment plays one episode after the other. `False` makes a new one for each, for
      environments whose `reset` keeps something of the episode before; by default so for those known to.
    - `name`: of the task, where the id says too little.
    - `descriptor_names`: what each dimension of the descriptor means.
    """

    on_host: ClassVar[bool] = True

    name: str = eqx.field(static=True)
    policy: AbstractPolicy
    descriptor: Descriptor = eqx.field(static=True)
    descriptor_low: tuple[float, ...] = eqx.field(static=True)
    descriptor_high: tuple[float, ...] = eqx.field(static=True)
    descriptor_names: tuple[str, ...] | None = eqx.field(static=True)
    episode_length: int = eqx.field(static=True)
    num_envs: int = eqx.field(static=True)
    vectorization: str = eqx.field(static=True)
    _players: Players = eqx.field(static=True)

    def __init__(
        self,
        env: str | Callable[[], gymnasium.Env],
        *,
        descriptor: Descriptor,
        descriptor_low: Iterable[float],
        descriptor_high: Iterable[float],
        episode_length: int | None = None,
        num_envs: int | None = None,
        vectorization: Literal["async", "sync"] | VectorEnv = "async",
        policy: Callable[[int, int], AbstractPolicy] = MLP,
        reuse: bool | None = None,
        name: str | None = None,
        descriptor_names: Iterable[str] | None = None,
    ):
        if not callable(descriptor):
            raise TypeError(f"descriptor must be a function of an episode, FinalObservation(0) say; got {descriptor!r}")
        found = source(env, vectorization, num_envs, reuse)
        self.name = name or found.name
        space: Any = found.action_space
        sizes = observation_size(found.observation_space, self.name), action_size(space, self.name)
        self.policy = _policy(policy, sizes, self.name)
        self.descriptor = descriptor
        self.descriptor_low, self.descriptor_high = floats(descriptor_low), floats(descriptor_high)
        names = getattr(descriptor, "names", None) if descriptor_names is None else descriptor_names
        self.descriptor_names = None if names is None else tuple(names)
        self.episode_length = _length(episode_length, found.limit, self.name)
        self.num_envs, self.vectorization = found.num_envs, found.vectorization
        wanted = getattr(descriptor, "info_names", None)
        self._players = Players(lambda: found.open(wanted), Actor(self.policy), Scaling(space))

    def episodes(
        self,
        genotypes: Float[Array, "batch params"],
        keys: Key[Array, " batch"],
        *,
        life: Int[Array, " batch"] | None = None,
        trajectory: bool = True,
    ) -> Evaluation:
        """One episode per row; those that are expected to be long begin first."""
        if isinstance(genotypes, Tracer) or isinstance(keys, Tracer):
            raise TypeError(f"{self.name} is played on the host, so it cannot be part of a compiled program")
        if jax.process_count() > 1:
            raise RuntimeError(
                f"{self.name} is played by one process, and this is one of {jax.process_count()}: start a single one; "
                "map_evaluator with a Dask cluster uses several machines"
            )
        batch, time = len(genotypes), self.episode_length
        order = np.arange(batch) if life is None else np.argsort(-np.asarray(life), kind="stable")
        rows = _Rows(batch, self, trajectory)
        seeds = np.asarray(_seeds(keys)).astype(np.int64)
        stage = Stage(self.num_envs, time, self.policy.obs_size, self.policy.act_size)
        act = self._players.actor.of(np.asarray(genotypes), self.num_envs)
        try:
            play(self._players.pool(), act, self._players.scale, stage, order.tolist(), seeds, rows.take)
        except BaseException:
            self._players.close(at_once=True)  # in the middle of something: the next batch gets new ones
            raise
        return rows.evaluation()

    def close(self):
        """Closes the environments and ends their processes; another evaluation would open them again."""
        self._players.close()

    def __enter__(self) -> "GymnasiumTask":
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self) -> str:
        return (
            f"Task({self.name}, {self.num_envs} environments ({self.vectorization}), "
            f"episode_length={self.episode_length}, observation {self.policy.obs_size}, "
            f"action {self.policy.act_size}, parameters {self.policy.size:,}, descriptor: {self.descriptor})"
        )


class _Rows:
    """The evaluation of a batch, as its episodes end."""

    def __init__(self, batch: int, task: GymnasiumTask, trajectory: bool):
        self._task, self._done = task, 0
        self._fitness, self._steps = np.zeros(batch, np.float32), np.zeros(batch, np.int32)
        self._described = np.zeros((batch, task.descriptor_size), np.float32)
        shape = (batch, task.episode_length)
        self._path = {
            "observation": np.zeros((*shape, task.policy.obs_size), np.float32),
            "action": np.zeros((*shape, task.policy.act_size), np.float32),
            "reward": np.zeros(shape, np.float32),
            "alive": np.zeros(shape, bool),
            "terminated": np.zeros(shape, bool),
        }
        self._path = self._path if trajectory else {}

    def take(self, row: int, played: Played):
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused as such
            self._fitness[row] = played.reward.sum(dtype=np.float64)
        self._steps[row] = played.steps
        self._described[row] = self._describe(played)
        for name, values in self._path.items():
            if name == "alive":
                values[row, : played.steps] = True
            elif name == "terminated":
                values[row, played.steps - 1] = played.terminated
            else:
                values[row, : played.steps] = getattr(played, name)
        self._done += 1
        report(self._done)

    def _describe(self, played: Played) -> np.ndarray:
        if not np.isfinite(played.reward).all():  # it will be refused: nothing to describe
            return np.full(self._task.descriptor_size, np.nan, np.float32)
        described = np.asarray(self._task.descriptor(played))
        if described.shape != (self._task.descriptor_size,):
            raise ValueError(
                f"{self._task.name}: the descriptor must return {self._task.descriptor_size} numbers, as "
                f"descriptor_low and descriptor_high have; got {described!r}"
            )
        with np.errstate(over="ignore"):
            return described.astype(np.float32)

    def evaluation(self) -> Evaluation:
        path = {name: jnp.asarray(values) for name, values in self._path.items()}
        return Evaluation(
            fitness=jnp.asarray(self._fitness),
            descriptor=jnp.asarray(self._described),
            trajectory=Trajectory(**path) if path else None,
            steps=jnp.asarray(self._steps),
        )


@jax.jit
def _seeds(keys: Key[Array, " batch"]) -> Array:
    """A whole number for each row's `reset`; 31 bits, which any environment takes."""
    return jax.vmap(lambda key: jax.random.bits(key) >> 1)(keys)


def _policy(policy: Callable[[int, int], AbstractPolicy], sizes: tuple[int, int], name: str) -> AbstractPolicy:
    made = policy(*sizes)
    if (made.obs_size, made.act_size) != sizes:
        raise ValueError(
            f"{name} needs a policy of observation size {sizes[0]} and action size {sizes[1]}; the one given has "
            f"{made.obs_size} and {made.act_size}"
        )
    return made


def _length(given: int | None, limit: int | None, name: str) -> int:
    length = limit if given is None else given
    if length is None:
        raise ValueError(f"{name} has no time limit of its own: say when to cut an episode off, episode_length=…")
    if int(length) != length:
        raise ValueError(f"episode_length must be a whole number of steps; got {length}")
    return int(length)
