"""What PGA-ME and DCRL-ME share: a replay buffer, TD3, and policy-gradient variation by its critic."""

import abc
import dataclasses
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from .._archive import Archive
from .._buffer import Buffer, Steps, add, empty_buffer, resize, sample, steps_of
from .._checks import at_least, between, whole
from .._loop import AbstractAlgorithm, Feedback, Offspring
from .._policy import AbstractPolicy, baseline_mlp
from .._spread import each_row
from ..learning.td3 import TD3, Learner, critic_network, policy_gradient, start, train
from ..tasks._task import AbstractProblem, Evaluation, Trajectory
from ._bounded import check_bounded
from .map_elites import iso_line_offspring

Strategy = Literal["minibatch", "steps", "none"]
OPERATORS = ("iso_line", "policy_gradient", "actor_injection")

# The part of the docstrings that is the same for both.
ARGUMENTS = """
    - `sigma1`: standard deviation of the isotropic noise of iso+line.
    - `sigma2`: standard deviation, relative to the distance of the two parents, of its step along their line.
    - `critic_hidden`: sizes of the critics' hidden layers.
    - `minibatch_size`: transitions of each step of the critics, the actor or a policy-gradient offspring.
    - `critic_steps`: steps of the critics before each generation; a multiple of `actor_delay`.
    - `policy_steps`: steps of each policy-gradient offspring up the critic.
    - `policy_learning_rate`: of those, with a fresh Adam.
    - `actor_learning_rate`: of the greedy actor, with Adam.
    - `critic_learning_rate`: of the critics, with Adam.
    - `replay_size`: most transitions that are kept to learn from; no more than the budget can fill are made room for.
    - `discount`: γ of the critics.
    - `actor_delay`: critic steps for each step of the actor and of the target networks.
    - `target_rate`: τ, the share of the way to their networks that the target networks go.
    - `policy_noise`: standard deviation of the noise on the actions of the target actor.
    - `noise_clip`: most that this noise can be.
    - `reward_scale`: what rewards are multiplied by.
"""


class State(eqx.Module):
    """What is remembered, and what was learnt from it."""

    memory: Buffer  # of `Steps`
    learner: Learner


class AbstractActorCritic(AbstractAlgorithm):
    """MAP-Elites with offspring that climb a critic, and with the actor that the critic was trained with.

    The critic is trained at the beginning of `ask`: so whatever is asked for comes from a critic that has seen all that
    was told, nothing is trained that nobody uses, and the first generation only fills the buffer.
    """

    needs_trajectory: ClassVar[bool] = True
    operators: ClassVar[tuple[str, ...]] = OPERATORS

    batch_size: int = 1024
    iso_line_share: float = 0.5
    sigma1: float = 0.005
    sigma2: float = 0.05
    critic_hidden: tuple[int, ...] = eqx.field(default=(256, 256), converter=tuple)
    minibatch_size: int = 100
    critic_steps: int = 3000
    policy_steps: int = 150
    policy_learning_rate: float = 5e-3
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    replay_size: int = 4_000_000
    discount: float = 0.99
    actor_delay: int = 2
    target_rate: float = 0.005
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    reward_scale: float = 1.0

    def __check_init__(self):
        whole(self, "batch_size", "minibatch_size", "critic_steps", "policy_steps", "replay_size", "actor_delay")
        at_least(self, 0, "sigma1", "sigma2", "policy_noise", "noise_clip", "reward_scale")
        at_least(self, 0, "policy_learning_rate", "actor_learning_rate", "critic_learning_rate")
        between(self, 0, 1, "iso_line_share", "discount", "target_rate")
        if self.critic_steps % self.actor_delay:
            raise ValueError(
                f"{type(self).__name__}: critic_steps must be a multiple of actor_delay, {self.actor_delay}; "
                f"got {self.critic_steps}"
            )
        if min(self.counts) < 0:
            iso_line, _, injected = self.counts
            raise ValueError(
                f"{type(self).__name__}: {iso_line} iso+line offspring and {injected} injected actors are more than "
                f"the batch_size of {self.batch_size}"
            )

    @property
    @abc.abstractmethod
    def counts(self) -> tuple[int, int, int]:
        """Offspring of each operator."""

    @abc.abstractmethod
    def _actor(self, problem: AbstractProblem) -> AbstractPolicy:
        """The greedy actor's network."""

    @abc.abstractmethod
    def _condition(self, archive: Archive, descriptor: Float[Array, "rows dims"]) -> Float[Array, "rows dims"] | None:
        """What actor and critics see of descriptors that are aimed at."""

    @abc.abstractmethod
    def _reward(
        self, archive: Archive, evaluation: Evaluation, target: Float[Array, "batch dims"]
    ) -> Float[Array, "batch time"]:
        """The reward to learn from, of episodes that aimed at `target`."""

    @abc.abstractmethod
    def _inject(
        self, problem: AbstractProblem, archive: Archive, actor: Float[Array, " weights"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "rows params"], Float[Array, "rows dims"] | None]:
        """The greedy actor as offspring, and what these aim at."""

    @abc.abstractmethod
    def _first_actor(
        self, actor: Float[Array, " weights"], initial: Float[Array, "batch params"]
    ) -> Float[Array, " weights"]:
        """What the greedy actor starts as, once the initial policies are known."""

    @classmethod
    def scaled(
        cls, batch_size: int, strategy: Strategy = "none", *, reference: int = 256, **fields: Any
    ) -> "AbstractActorCritic":
        """The paper's strategies for training with larger batches: what is told of a batch of `reference` offspring,
        or the default, made to fit one of `batch_size`.

        **Arguments:**

        - `strategy`: `"minibatch"` keeps the number of critic steps and enlarges the minibatches in proportion,
          `"steps"` keeps the minibatches and takes more critic steps in proportion, `"none"` changes neither.
        - `fields`: other hyperparameters; `minibatch_size` and `critic_steps` as they would be at the reference.
        """
        if strategy not in get_args(Strategy):
            raise ValueError(f"scaled: strategy must be one of {list(get_args(Strategy))}; got {strategy!r}")
        made = cls(batch_size=batch_size, **fields)
        if strategy == "minibatch":
            return dataclasses.replace(made, minibatch_size=max(1, round(made.minibatch_size * batch_size / reference)))
        if strategy == "steps":
            rounds = max(1, round(made.critic_steps // made.actor_delay * batch_size / reference))
            return dataclasses.replace(made, critic_steps=rounds * made.actor_delay)
        return made

    @staticmethod
    def default_policy(obs_size: int, act_size: int) -> AbstractPolicy:
        return baseline_mlp(obs_size, act_size)

    def keepsake(self, trajectory: Trajectory) -> None:
        return None

    def init(self, problem: AbstractProblem, archive: Archive, key: Key[Array, ""]) -> State:
        check_bounded(self, problem.policy)
        actor_key, critic_key = jax.random.split(key)
        td3 = self._td3(problem)
        like = Steps(
            observation=jnp.zeros((1, problem.policy.obs_size)),
            action=jnp.zeros((1, problem.policy.act_size)),
            reward=jnp.zeros(1),
            terminated=jnp.zeros(1, bool),
            truncated=jnp.zeros(1, bool),
            target=jnp.zeros((1, self._dims(problem))) if self._dims(problem) else None,
        )
        memory = empty_buffer(self._capacity(problem, self.batch_size), like)
        return State(memory, start(td3, td3.actor.init(actor_key), critic_key))

    def room(self, problem: AbstractProblem, state: State, evaluations: int) -> State:
        capacity = self._capacity(problem, evaluations)
        if capacity == state.memory.capacity:
            return state
        return State(resize(state.memory, capacity), state.learner)

    def ask(
        self, problem: AbstractProblem, archive: Archive, state: State, key: Key[Array, ""]
    ) -> tuple[Offspring, State]:
        train_key, iso_line_key, gradient_key, inject_key = jax.random.split(key, 4)
        td3, counts = self._td3(problem), self.counts
        learner = train(td3, state.learner, state.memory, train_key, critic_steps=self.critic_steps)
        varied, varied_life = iso_line_offspring(archive, iso_line_key, counts[0], self.sigma1, self.sigma2)
        taught, parents = self._climb(problem, archive, state.memory, learner, gradient_key)
        injected, aims = self._inject(problem, archive, learner.actor, inject_key)
        none = jnp.full((counts[0], problem.descriptor_size), jnp.nan)
        offspring = Offspring(
            genotype=jnp.concatenate([varied, taught, injected]),
            operator=jnp.asarray(np.repeat([1, 2, 3], counts), jnp.int32),
            candidate=jnp.ones(self.batch_size, bool),
            life=jnp.concatenate(
                [varied_life, archive.elites.steps[parents], jnp.full(counts[2], problem.episode_length)]
            ),
            target=None if aims is None else jnp.concatenate([none, archive.elites.descriptor[parents], aims]),
            steps=jnp.zeros((), jnp.int32),
        )
        return offspring, State(state.memory, learner)

    def tell(
        self,
        archive: Archive,
        state: State,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> State:
        trajectory, aim = evaluation.trajectory, offspring.target
        assert trajectory is not None and aim is not None  # needs_trajectory; the loop sees to it
        target = jnp.where(jnp.isnan(aim), evaluation.descriptor, aim)  # who aims at nothing has got there
        steps = steps_of(trajectory, self._reward(archive, evaluation, target), self._condition(archive, target))
        alive = trajectory.alive & feedback.valid[:, None]
        first = offspring.operator[0] == 0  # what `policy.init` drew
        learner = state.learner
        actor, target_actor = (
            jnp.where(first, self._first_actor(genotype, offspring.genotype), genotype)
            for genotype in (learner.actor, learner.target_actor)
        )
        learner = dataclasses.replace(learner, actor=actor, target_actor=target_actor)
        return State(add(state.memory, steps, alive.ravel()), learner)

    def _climb(
        self, problem: AbstractProblem, archive: Archive, memory: Buffer, learner: Learner, key: Key[Array, ""]
    ) -> tuple[Float[Array, "rows params"], Int[Array, " rows"]]:
        """Policy-gradient offspring, and the cells of their parents."""
        parent_key, batch_key = jax.random.split(key)
        parents = archive.sample(parent_key, self.counts[1])
        places = sample(memory, batch_key, self.policy_steps * self.minibatch_size)
        seen = memory.items.observation[places].reshape(self.policy_steps, self.minibatch_size, -1)
        rate = self.policy_learning_rate
        climb = partial(policy_gradient, policy=problem.policy, learning_rate=rate)
        rows = archive.elites.genotype[parents], self._condition(archive, archive.elites.descriptor[parents])
        child = lambda row, shared: climb(row[0], shared[0], shared[1], row[1])
        return each_row(child, rows, (seen, learner.critics[0])), parents

    def _dims(self, problem: AbstractProblem) -> int:
        """The size of the condition; 0 where there is none."""
        return self._actor(problem).obs_size - problem.policy.obs_size

    def _td3(self, problem: AbstractProblem) -> TD3:
        policy = problem.policy
        return TD3(
            actor=self._actor(problem),
            critic=critic_network(policy.obs_size, policy.act_size, self._dims(problem), self.critic_hidden),
            minibatch_size=self.minibatch_size,
            delay=self.actor_delay,
            discount=self.discount,
            target_rate=self.target_rate,
            noise=self.policy_noise,
            noise_clip=self.noise_clip,
            reward_scale=self.reward_scale,
            actor_learning_rate=self.actor_learning_rate,
            critic_learning_rate=self.critic_learning_rate,
        )

    def _capacity(self, problem: AbstractProblem, evaluations: int) -> int:
        """Room for the steps of so many evaluations, to the end of the generation, in powers of two."""
        rows = -(-max(evaluations, 1) // self.batch_size) * self.batch_size
        return min(_power_of_two(rows * problem.episode_length), self.replay_size)


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()
