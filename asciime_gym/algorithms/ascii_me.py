"""ASCII-ME: Mitsides, Faldor & Cully (2025), Scaling Policy Gradient Quality-Diversity with Massive
Parallelization via Behavioral Variations."""

from functools import partial
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from .._archive import Archive
from .._buffer import Buffer, add, empty_buffer, sample
from .._checks import at_least, between, one_of, whole
from .._loop import AbstractAlgorithm, Feedback, Offspring
from .._policy import MLP, AbstractPolicy
from .._spread import each_row
from .._variation import ascii, reward_to_go
from ..tasks._task import AbstractProblem, Evaluation, Trajectory
from .map_elites import iso_line_offspring

SLICES = 8  # of a target's episode: how finely the steps after its end are left out


class Keepsake(eqx.Module):
    """What an elite remembers of its own episode."""

    observation: Float[Array, "*batch time obs"]
    reward_to_go: Float[Array, "*batch time"]


class Experience(eqx.Module):
    """What others learn from an episode."""

    observation: Float[Array, "*batch time obs"]
    action: Float[Array, "*batch time act"]
    reward_to_go: Float[Array, "*batch time"]
    alive: Bool[Array, "*batch time"]


class AsciiME(AbstractAlgorithm):
    """MAP-Elites with a second operator that interpolates between action sequences by their rewards-to-go.

    **Arguments:**

    - `batch_size`: offspring per generation.
    - `iso_line_share`: fraction of them made by iso+line; the rest by ASCII.
    - `epochs`: optimizer steps per ASCII offspring.
    - `learning_rate`: of those steps.
    - `optimizer`: `"adam"`, `"sgd"` (the paper's plain step) or an optax transformation, which then ignores
      `learning_rate`.
    - `sigma1`: standard deviation of the isotropic noise of iso+line.
    - `sigma2`: standard deviation, relative to the distance of the two parents, of its step along their line.
    - `variance`: σ² of the kernel that compares actions.
    - `cosine_floor`: b, the least weight that the similarity of two states can have.
    - `clip`: ε; where the kernel is below it and the target fared worse, a step does not count.
    - `discount`: γ of the reward-to-go.
    - `action_noise`: λ1, standard deviation of the random change asked of each action (of its gradient, where the
      optimizer is an optax transformation).
    - `buffer_capacity`: trajectories that targets are drawn from; `None` is the whole previous generation.
    - `targets`: `"buffer"`, or `"archive"` to imitate elites only (the paper's ablation).
    """

    name: ClassVar[str] = "ascii_me"
    operators: ClassVar[tuple[str, ...]] = ("iso_line", "ascii")
    needs_trajectory: ClassVar[bool] = True

    batch_size: int = 512
    iso_line_share: float = 0.5
    epochs: int = 32
    learning_rate: float = 3e-3
    optimizer: str | optax.GradientTransformation = "adam"
    sigma1: float = 0.005
    sigma2: float = 0.05
    variance: float = 4.0
    cosine_floor: float = 0.25
    clip: float = 0.8
    discount: float = 0.99
    action_noise: float = 0.0
    buffer_capacity: int | None = None
    targets: Literal["buffer", "archive"] = "buffer"

    def __check_init__(self):
        whole(self, "batch_size", "epochs")
        at_least(self, 0, "learning_rate", "sigma1", "sigma2", "action_noise")
        between(self, 0, 1, "iso_line_share", "cosine_floor", "clip", "discount")
        if not self.variance > 0:
            raise ValueError(f"AsciiME: variance must be above 0; got {self.variance}")
        if self.buffer_capacity is not None:
            whole(self, "buffer_capacity")
        if isinstance(self.optimizer, str):
            one_of(self, ("adam", "sgd"), "optimizer")
        one_of(self, ("buffer", "archive"), "targets")

    @staticmethod
    def default_policy(obs_size: int, act_size: int) -> AbstractPolicy:
        return MLP(obs_size, act_size)

    def keepsake(self, trajectory: Trajectory) -> Keepsake:
        return Keepsake(trajectory.observation, reward_to_go(trajectory.reward, trajectory.alive, self.discount))

    def init(self, problem: AbstractProblem, archive: Archive, key: Key[Array, ""]) -> Buffer:
        time, policy = problem.episode_length, problem.policy
        like = Experience(
            observation=jnp.zeros((1, time, policy.obs_size)),
            action=jnp.zeros((1, time, policy.act_size)),
            reward_to_go=jnp.zeros((1, time)),
            alive=jnp.zeros((1, time), bool),
        )
        return empty_buffer(self.buffer_capacity or self.batch_size, like)

    def room(self, problem: AbstractProblem, state: Buffer, evaluations: int) -> Buffer:
        return state

    def ask(
        self, problem: AbstractProblem, archive: Archive, state: Buffer, key: Key[Array, ""]
    ) -> tuple[Offspring, Buffer]:
        iso_line_count = round(self.batch_size * self.iso_line_share)
        ascii_count = self.batch_size - iso_line_count
        iso_line_key, ascii_key = jax.random.split(key)
        varied, varied_life = iso_line_offspring(archive, iso_line_key, iso_line_count, self.sigma1, self.sigma2)
        taught, taught_life = self._ascii_offspring(problem, archive, state, ascii_key, ascii_count)
        offspring = Offspring(
            genotype=jnp.concatenate([varied, taught]),
            operator=jnp.asarray(np.repeat([1, 2], [iso_line_count, ascii_count]), jnp.int32),
            candidate=jnp.ones(self.batch_size, bool),
            life=jnp.concatenate([varied_life, taught_life]),
            target=None,
            steps=jnp.zeros((), jnp.int32),
        )
        return offspring, state

    def tell(
        self,
        archive: Archive,
        state: Buffer,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> Buffer:
        return add(state, self._experience(evaluation), feedback.valid)

    def _ascii_offspring(
        self, problem: AbstractProblem, archive: Archive, buffer: Buffer, key: Key[Array, ""], count: int
    ) -> tuple[Float[Array, "count params"], Int[Array, " count"]]:
        parent_key, target_key, noise_key = jax.random.split(key, 3)
        parents = archive.sample(parent_key, count)
        if self.targets == "buffer":
            targets = sample(buffer, target_key, count)
            lives = buffer.items.alive.sum(axis=1)[targets]
            target_of = lambda i, archive, buffer: jax.tree.map(lambda leaf: leaf[i], buffer.items)
        else:
            targets = archive.sample(target_key, count)
            lives = archive.elites.steps[targets]
            target_of = lambda i, archive, buffer: self._elite_experience(problem, archive, i)

        # The optimizer multiplies by its learning rate; one of the user's own does what it does.
        known = isinstance(self.optimizer, str) and self.learning_rate > 0
        noise = self.action_noise / self.learning_rate if known else self.action_noise

        def child(row, shared, slices=1):
            (parent, target, key), (archive, buffer) = row, shared
            elite = archive.elites.keepsake
            other = target_of(target, archive, buffer)
            return ascii(
                archive.elites.genotype[parent],
                elite.observation[parent],
                elite.reward_to_go[parent],
                other.observation,
                other.action,
                other.reward_to_go,
                other.alive,
                key,
                policy=problem.policy,
                optimizer=self._optimizer(),
                epochs=self.epochs,
                variance=self.variance,
                cosine_floor=self.cosine_floor,
                clip=self.clip,
                noise=noise,
                slices=slices,
            )

        rows = parents, targets, jax.random.split(noise_key, count)
        children = each_row(partial(child, slices=SLICES), rows, (archive, buffer), at_once=child, work=lives)
        return children, archive.elites.steps[parents]

    def _optimizer(self) -> optax.GradientTransformation:
        known = {"adam": optax.adam, "sgd": optax.sgd}
        if isinstance(self.optimizer, str):
            return known[self.optimizer](self.learning_rate)
        return self.optimizer

    def _experience(self, evaluation: Evaluation) -> Experience:
        trajectory = evaluation.trajectory
        assert trajectory is not None  # needs_trajectory
        value = jax.vmap(lambda r, a: reward_to_go(r, a, self.discount))(trajectory.reward, trajectory.alive)
        return Experience(trajectory.observation, trajectory.action, value, trajectory.alive)

    def _elite_experience(self, problem: AbstractProblem, archive: Archive, cell: Int[Array, ""]) -> Experience:
        """An elite's episode; its actions are computed anew from what it saw."""
        elites = archive.elites
        observation = elites.keepsake.observation[cell]
        alive = jnp.arange(problem.episode_length) < elites.steps[cell]
        action = problem.policy.act(elites.genotype[cell], observation)
        action = jnp.where(alive[:, None], action, 0.0)
        return Experience(observation, action, elites.keepsake.reward_to_go[cell], alive)
