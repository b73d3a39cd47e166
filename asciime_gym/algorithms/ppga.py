"""PPGA: Batra, Tjanaka, Fontaine, Petrenko, Tsipras, Sukhatme & Nikolaidis (2024), Proximal Policy Gradient
Arborescence for Quality Diversity Reinforcement Learning, arXiv:2305.13795.

A search point θ walks, and branches on its way:

- walk: PPO moves θ up the weighted sum of fitness and descriptor that has lately improved the archive;
- branch: copies of θ are trained by PPO, one on the fitness and one on each dimension of the descriptor; the ways they
  went are directions, and each offspring is θ plus a mixture of them;
- tell: xNES learns from what the offspring improved which mixtures to try next.

PPO needs observations that are normalised by what it has seen. That normaliser is folded into the first layer of
whatever leaves this file, θ as well as offspring: a genotype alone is a policy, here as everywhere.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._archive import Archive
from .._checks import at_least, between, whole
from .._loop import AbstractAlgorithm, Feedback, Offspring
from .._policy import MLP, AbstractPolicy
from .._spread import apart, each_row
from ..learning.es import Xnes, xnes, xnes_points, xnes_update
from ..learning.normalise import Normaliser, normalised, plain, unseen
from ..learning.ppo import PPO, Agents, train
from ..tasks._task import AbstractProblem, AbstractSimulator, Evaluation, Trajectory
from ..tasks.locomotion import TASKS
from ._soft_archive import improvement, raised


class State(eqx.Module):
    """The search point, what it has learnt, and where it looks next."""

    theta: Float[Array, " params"]
    log_std: Float[Array, " act"]  # of its actions while it learns
    critics: Float[Array, "agents values"]  # of the walk, of fitness, and of each dimension of the descriptor
    returns: Normaliser  # of each of them
    seen: Normaliser  # of observations
    search: Xnes  # over mixtures
    draws: Float[Array, "batch mixed"]  # that the offspring asked for were made with
    threshold: Float[Array, " cells"]  # of the soft archive


class Ppga(AbstractAlgorithm):
    """A search point that PPO moves through the space of behaviours, and offspring that branch off it.

    Needs a task that can be stepped, and an `MLP` as its policy. The steps that PPO takes are counted as evaluations,
    an episode's worth of them as one: with these defaults a generation costs 46,000 to 92,000.

    **Arguments:**

    - `batch_size`: offspring that branch off in a generation.
    - `walk_iterations`: of PPO, to move the search point.
    - `gradient_iterations`: of PPO, to find each direction to branch in.
    - `environments`: that each agent learns in; a multiple of 64 is fastest.
    - `rollout`: steps of each environment per iteration.
    - `minibatches`: that the steps of an iteration are divided into.
    - `epochs`: times that they are learnt from.
    - `clip`: ε, how far from 1 the ratio of the new to the old probability of an action counts.
    - `value_coefficient`: weight of the value function's error.
    - `max_gradient_norm`: longest gradient of policy or value function; longer ones are shortened.
    - `learning_rate`: of both, with Adam.
    - `discount`: γ of rewards and of the descriptor's part in each step.
    - `trace`: λ of the generalised advantages.
    - `normalise_observations`: by what was seen so far.
    - `normalise_returns`: that the value functions learn, likewise.
    - `critic_hidden`: sizes of the value functions' hidden layers.
    - `sigma0`: standard deviation of the mixtures at the beginning and after a restart.
    - `archive_learning_rate`: share of the way to a fitness above it that a cell's threshold goes.
    - `threshold_min`: threshold of a cell at the beginning.
    """

    name: ClassVar[str] = "ppga"
    operators: ClassVar[tuple[str, ...]] = ("branch",)
    needs_trajectory: ClassVar[bool] = False

    batch_size: int = 300
    walk_iterations: int = 10
    gradient_iterations: int = 10
    environments: int = 6000
    rollout: int = 64
    minibatches: int = 8
    epochs: int = 4
    clip: float = 0.2
    value_coefficient: float = 2.0
    max_gradient_norm: float = 1.0
    learning_rate: float = 1e-3
    discount: float = 0.99
    trace: float = 0.95
    normalise_observations: bool = True
    normalise_returns: bool = True
    critic_hidden: tuple[int, ...] = eqx.field(default=(256, 256), converter=tuple)
    sigma0: float = 1.0
    archive_learning_rate: float = 0.1
    threshold_min: float = -500.0

    def __check_init__(self):
        whole(self, "batch_size", "walk_iterations", "gradient_iterations", "environments", "rollout")
        whole(self, "minibatches", "epochs")
        at_least(self, 0, "clip", "value_coefficient", "max_gradient_norm", "learning_rate")
        between(self, 0, 1, "discount", "trace", "archive_learning_rate")
        if not 0 < self.sigma0 < float("inf"):
            raise ValueError(f"Ppga: sigma0 must be above 0; got {self.sigma0}")
        if not abs(self.threshold_min) < float("inf"):
            raise ValueError(f"Ppga: threshold_min must be finite; got {self.threshold_min}")
        if self.environments * self.rollout % self.minibatches:
            raise ValueError(
                f"Ppga: the {self.environments * self.rollout:,} steps of an iteration, environments times rollout, "
                f"must divide into {self.minibatches} minibatches"
            )

    @staticmethod
    def for_task(name: str, *, small: bool = False, **fields: Any) -> "Ppga":
        """The paper's settings for one of the five tasks; `small`: with those for a CPU."""
        if name not in TASKS:
            raise ValueError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}")
        names = "archive_learning_rate", "threshold_min", "sigma0"
        values = (0.1, -500.0, 3.0) if name.startswith("ant") else (0.5, 200.0, 1.0)
        given: dict[str, Any] = dict(zip(names, values, strict=True)) | fields
        return Ppga.small(**given) if small else Ppga(**given)

    @staticmethod
    def small(**fields: Any) -> "Ppga":
        """Settings for a CPU: a generation costs 800 to 1300 evaluations."""
        return Ppga(**{"environments": 64, "critic_hidden": (64, 64)} | fields)

    @staticmethod
    def default_policy(obs_size: int, act_size: int) -> AbstractPolicy:
        return MLP(obs_size, act_size)

    def keepsake(self, trajectory: Trajectory) -> None:
        return None

    def init(self, problem: AbstractProblem, archive: Archive, key: Key[Array, ""]) -> State:
        _, policy = _needed(problem)
        directions = 1 + problem.descriptor_size
        critic = self._critic(policy)
        return State(
            theta=jnp.zeros(policy.size),
            log_std=jnp.zeros(policy.act_size),
            critics=each_row(lambda key, _: critic.init(key), jax.random.split(key, 1 + directions)),
            returns=unseen(1 + directions, 1),
            seen=unseen(policy.obs_size),
            search=self._first_search(directions),
            draws=jnp.zeros((self.batch_size, directions)),
            threshold=jnp.full(len(archive.centroids), self.threshold_min, jnp.float32),
        )

    def room(self, problem: AbstractProblem, state: State, evaluations: int) -> State:
        return state

    def ask(
        self, problem: AbstractProblem, archive: Archive, state: State, key: Key[Array, ""]
    ) -> tuple[Offspring, State]:
        """Walk, then branch."""
        walk_key, gradient_key, draw_key = jax.random.split(key, 3)
        state = self._walk(problem, state, walk_key)
        directions, state = self._directions(problem, state, gradient_key)
        draws = jax.random.normal(draw_key, state.draws.shape)
        offspring = Offspring(
            genotype=self._branch(problem, state, directions, apart(xnes_points)(state.search, draws)),
            operator=jnp.ones(self.batch_size, jnp.int32),
            candidate=jnp.ones(self.batch_size, bool),
            life=jnp.full(self.batch_size, problem.episode_length),
            target=None,
            steps=jnp.int32(self._steps(len(directions))),
        )
        return offspring, dataclasses.replace(state, draws=draws)

    def tell(
        self,
        archive: Archive,
        state: State,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> State:
        cell = archive.lookup(evaluation.descriptor)
        gain = jnp.where(feedback.valid, improvement(state.threshold, cell, evaluation.fitness), -jnp.inf)
        initial = offspring.operator[0] == 0  # random rows: the search begins
        again = initial | ~(gain > 0).any()
        threshold = raised(
            state.threshold, cell, evaluation.fitness, feedback.valid & ~initial, self.archive_learning_rate
        )
        elite = archive.elites.genotype[archive.sample(key, 1)[0]]
        anew = elite, jnp.zeros_like(state.log_std), self._first_search(state.draws.shape[1])
        on = state.theta, state.log_std, xnes_update(state.search, state.draws, gain)
        theta, log_std, search = jax.tree.map(lambda new, old: jnp.where(again, new, old), anew, on)
        return dataclasses.replace(state, theta=theta, log_std=log_std, search=search, threshold=threshold)

    def _walk(self, problem: AbstractProblem, state: State, key: Key[Array, ""]) -> State:
        """The search point moved along the mean mixture."""
        walker, state = self._trained(problem, state, state.search.mean[None], 0, key, self.walk_iterations)
        return dataclasses.replace(state, theta=walker.actor[0], log_std=walker.log_std[0])

    def _directions(
        self, problem: AbstractProblem, state: State, key: Key[Array, ""]
    ) -> tuple[Float[Array, "mixed params"], State]:
        """Where fitness and each dimension of the descriptor rise: the ways, of length 1 and among normalised
        observations, that copies of the search point go when they are trained for it."""
        _, policy = _needed(problem)
        copies, state = self._trained(problem, state, jnp.eye(state.draws.shape[1]), 1, key, self.gradient_iterations)

        def ways(actor: Array, theta: Array, seen: Normaliser) -> Array:
            into = lambda actor: normalised(policy, actor, seen)
            way = jax.vmap(into)(actor) - into(theta)
            return way / (jnp.sqrt(jnp.sum(way**2, axis=1, keepdims=True)) + 1e-8)

        return apart(ways)(copies.actor, state.theta, state.seen), state

    def _trained(
        self,
        problem: AbstractProblem,
        state: State,
        weights: Float[Array, "agents mixed"],
        first: int,
        key: Key[Array, ""],
        iterations: int,
    ) -> tuple[Agents, State]:
        """Copies of the search point, each trained for its own weights of the rewards, with the critics from `first`
        on; and the state with what these have learnt."""
        simulator, policy = _needed(problem)
        own = slice(first, first + len(weights))
        copy = lambda leaf: jnp.tile(leaf, (len(weights), 1))
        learnt = state.critics, state.returns
        agents = Agents(copy(state.theta), copy(state.log_std), *jax.tree.map(lambda leaf: leaf[own], learnt))
        agents, seen = train(self._ppo(policy), simulator, agents, weights, state.seen, key, iterations=iterations)
        now = agents.critic, agents.returns
        critics, returns = jax.tree.map(lambda old, new: old.at[own].set(new), learnt, now)
        return agents, dataclasses.replace(state, critics=critics, returns=returns, seen=seen)

    def _branch(
        self,
        problem: AbstractProblem,
        state: State,
        directions: Float[Array, "mixed params"],
        mixtures: Float[Array, "batch mixed"],
    ) -> Float[Array, "batch params"]:
        _, policy = _needed(problem)
        point = apart(lambda theta, seen: normalised(policy, theta, seen))(state.theta, state.seen)

        def child(mixture: Array, shared: tuple[Array, Array, Normaliser]) -> Array:
            point, directions, seen = shared
            return plain(policy, point + jnp.matmul(mixture, directions, precision="highest"), seen)

        return each_row(child, mixtures, (point, directions, state.seen))

    def _steps(self, directions: int) -> int:
        """That PPO takes in a generation."""
        return self.environments * self.rollout * (self.walk_iterations + directions * self.gradient_iterations)

    def _first_search(self, directions: int) -> Xnes:
        """Up the fitness."""
        return xnes(jnp.zeros(directions).at[0].set(1.0), self.sigma0)

    def _critic(self, policy: MLP) -> MLP:
        return MLP(policy.obs_size, 1, self.critic_hidden)

    def _ppo(self, policy: MLP) -> PPO:
        return PPO(
            actor=policy,
            critic=self._critic(policy),
            environments=self.environments,
            rollout=self.rollout,
            minibatches=self.minibatches,
            epochs=self.epochs,
            clip=self.clip,
            value_coefficient=self.value_coefficient,
            max_gradient_norm=self.max_gradient_norm,
            learning_rate=self.learning_rate,
            discount=self.discount,
            trace=self.trace,
            normalise_observations=self.normalise_observations,
            normalise_returns=self.normalise_returns,
        )


def _needed(problem: AbstractProblem) -> tuple[AbstractSimulator, MLP]:
    """The problem as a simulator, and its policy as the network that can be trained; refuses others."""
    if not isinstance(problem, AbstractSimulator):
        raise TypeError(
            "Ppga trains policies with PPO while it is asked, and needs a task whose reset and step are part of a JAX "
            "program, make_task(…) say. A Problem has none, and a GymnasiumTask steps outside of it. Other algorithms "
            "do without"
        )
    policy = problem.policy
    if not isinstance(policy, MLP):
        raise TypeError(
            "Ppga folds a normaliser into the first layer of its policies, which have to be MLPs, "
            f"make_task(…, policy=Ppga.default_policy) say; got a {type(policy).__name__}"
        )
    return problem, policy
