"""The one loop, beside its contract: every algorithm is an `AbstractAlgorithm`, and this is its only caller."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._archive import Archive, Elites, empty_archive
from ._metrics import Record, coverage, max_fitness, qd_score
from ._policy import AbstractPolicy
from ._spread import each_row
from .tasks._task import AbstractProblem, AbstractTask, Evaluation, Trajectory, episode_keys

INITIAL = "initial"  # the operator of the rows that `policy.init` drew
OPERATOR_NAME = "[a-z0-9_]{1,64}"  # history and files name columns after operators
CHUNK = 64  # most generations in one device call
NO_GENERATION = 2**32 - 1  # folded into the key of what happens before the first one


class Offspring(eqx.Module):
    """The rows that a generation evaluates."""

    genotype: Float[Array, "batch params"]
    operator: Int[Array, " batch"]  # position in `operators(algorithm)`
    candidate: Bool[Array, " batch"]  # which rows may enter the archive
    life: Int[Array, " batch"]  # steps each is expected to live: orders the work, never changes a result
    target: Float[Array, "batch dims"] | None  # the descriptor aimed at; NaN where a row aims at none
    steps: Int[Array, ""]  # environment steps spent inside ask


class Feedback(eqx.Module):
    """What the archive made of each row."""

    added: Bool[Array, " batch"]
    gain: Float[Array, " batch"]  # what it added to the QD score
    valid: Bool[Array, " batch"]  # finite throughout


class AbstractAlgorithm(eqx.Module):
    """A frozen record of hyperparameters; the loop keeps everything that changes.

    A new algorithm is one file with one subclass, and one line in `algorithms/__init__.py`.
    """

    batch_size: eqx.AbstractVar[int]  # rows per ask
    name: eqx.AbstractClassVar[str]
    operators: eqx.AbstractClassVar[tuple[str, ...]]  # its own; `initial` comes before them
    needs_trajectory: eqx.AbstractClassVar[bool]  # what nobody asks for is never materialised

    @staticmethod
    @abc.abstractmethod
    def default_policy(obs_size: int, act_size: int) -> AbstractPolicy:
        """The network that the paper gives this method."""

    @abc.abstractmethod
    def keepsake(self, trajectory: Trajectory) -> PyTree:
        """What to keep beside an elite of its one trajectory; `None` where nothing is."""

    @abc.abstractmethod
    def init(self, problem: AbstractProblem, archive: Archive, key: Key[Array, ""]) -> Any:
        """The state before the first generation, when the archive is empty."""

    @abc.abstractmethod
    def room(self, problem: AbstractProblem, state: Any, evaluations: int) -> Any:
        """The state with room for what that many evaluations in all can bring, those spent so far included.

        It may change shapes, so it is called between programs; no result depends on it. `init` makes room for one
        generation.
        """

    @abc.abstractmethod
    def ask(self, problem: AbstractProblem, archive: Archive, state: Any, key: Key[Array, ""]) -> tuple[Offspring, Any]:
        """The next rows to evaluate."""

    @abc.abstractmethod
    def tell(
        self,
        archive: Archive,
        state: Any,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> Any:
        """The state after `offspring` was evaluated and offered to the archive; the initial rows come here, too."""


class Run(eqx.Module):
    """All that changes while an algorithm runs."""

    archive: Archive
    state: Any  # the algorithm's own
    key: Key[Array, ""]  # of the seed; each generation folds its number into it
    generation: Int[Array, ""]
    evaluations: Int[Array, ""]


def operators(algorithm: AbstractAlgorithm) -> tuple[str, ...]:
    """Names of the operators; an elite remembers the position."""
    return (INITIAL, *algorithm.operators)


def keys(run: Run) -> tuple[Array, Array, Array]:
    """This generation's keys for ask, evaluate and tell."""
    ask_key, evaluate_key, tell_key = jax.random.split(jax.random.fold_in(run.key, run.generation), 3)
    return ask_key, evaluate_key, tell_key


def start(
    algorithm: AbstractAlgorithm, problem: AbstractProblem, centroids: Float[Array, "cells dims"], seed: Array
) -> Run:
    """A run before its first generation."""
    key = jax.random.key(seed)

    def first(key):
        """Only its shapes are used: what the first generation will put where."""
        zero = jnp.zeros((), jnp.int32)
        evaluation = _blank_evaluation(algorithm, problem)
        return _newcomers(algorithm, _initial(algorithm, problem, key), evaluation, key, zero)

    newcomers = eqx.filter_eval_shape(first, key)
    archive = empty_archive(centroids, problem.descriptor_low, problem.descriptor_high, newcomers)
    state = algorithm.init(problem, archive, jax.random.fold_in(key, NO_GENERATION))
    return Run(archive, state, key, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def ask(algorithm: AbstractAlgorithm, problem: AbstractProblem, run: Run) -> tuple[Offspring, Any]:
    """The next rows, and the algorithm's state after making them; random ones while the archive is empty."""
    key, _, _ = keys(run)

    def vary():
        offspring, state = algorithm.ask(problem, run.archive, run.state, key)
        aim = _no_target(algorithm, problem) if offspring.target is None else offspring.target
        return dataclasses.replace(offspring, target=aim), state

    return jax.lax.cond(run.archive.filled.any(), vary, lambda: (_initial(algorithm, problem, key), run.state))


def tell(
    algorithm: AbstractAlgorithm,
    problem: AbstractProblem,
    run: Run,
    offspring: Offspring,
    state: Any,
    evaluation: Evaluation,
) -> tuple[Run, Feedback, Record]:
    """Offers evaluated rows to the archive and lets the algorithm learn; `state` is what `ask` returned."""
    _, evaluate_key, key = keys(run)
    valid = finite_rows(evaluation) & jnp.isfinite(offspring.genotype).all(axis=1)
    extra = -(-offspring.steps // problem.episode_length)  # episodes' worth of steps spent inside ask
    newcomers = _newcomers(algorithm, offspring, evaluation, evaluate_key, run.evaluations + extra)
    archive, added, gain = run.archive.add(newcomers, offspring.candidate & valid)
    feedback = Feedback(added, gain, valid)
    state = algorithm.tell(archive, state, offspring, evaluation, feedback, key)
    evaluations = run.evaluations + algorithm.batch_size + extra
    record = Record(
        evaluations=evaluations,
        steps=evaluation.steps.sum() + offspring.steps,
        qd_score=qd_score(archive),
        coverage=coverage(archive),
        max_fitness=max_fitness(archive),
        added=jnp.zeros(len(operators(algorithm)), jnp.int32).at[offspring.operator].add(added),
        refused=(~valid).sum(),
    )
    return Run(archive, state, run.key, run.generation + 1, evaluations), feedback, record


def generation(algorithm: AbstractAlgorithm, task: AbstractTask, run: Run) -> tuple[Run, Record]:
    """One ask, evaluate, tell."""
    # The barriers keep the compiler from fusing across the three, so that they round as they do when driven by hand.
    offspring, state = jax.lax.optimization_barrier(ask(algorithm, task, run))
    evaluation = task.evaluate(
        offspring.genotype, keys(run)[1], life=offspring.life, trajectory=algorithm.needs_trajectory
    )
    evaluation = jax.lax.optimization_barrier(evaluation)
    run, _, record = tell(algorithm, task, run, offspring, state, evaluation)
    return run, record


def generations(
    algorithm: AbstractAlgorithm,
    task: AbstractTask,
    count: Int[Array, ""],
    budget: Int[Array, ""],
    run: Run,
) -> tuple[Run, Record, Int[Array, ""]]:
    """Generations in one device call: at most `count`, itself at most `CHUNK`, and none once `budget` evaluations
    are spent. One program serves every count and budget.

    **Returns:** the run, a record whose first rows are the generations', and how many there were.
    """

    def going(carry):
        run, _, done = carry
        return (done < count) & (run.evaluations < budget)

    def body(carry):
        run, records, done = carry
        run, record = generation(algorithm, task, run)
        return run, jax.tree.map(lambda rows, row: rows.at[done].set(row), records, record), done + 1

    return jax.lax.while_loop(going, body, (run, no_records(algorithm), jnp.zeros((), jnp.int32)))


def no_records(algorithm: AbstractAlgorithm) -> Record:
    """Room for the records of a chunk of generations."""
    whole, real = jnp.zeros(CHUNK, jnp.int32), jnp.zeros(CHUNK)
    return Record(
        evaluations=whole,
        steps=whole,
        qd_score=real,
        coverage=real,
        max_fitness=real,
        added=jnp.zeros((CHUNK, len(operators(algorithm))), jnp.int32),
        refused=whole,
    )


def finite_rows(evaluation: Evaluation) -> Bool[Array, " batch"]:
    """Which rows are finite throughout: fitness, descriptor and trajectory."""
    floats = eqx.filter((evaluation.fitness, evaluation.descriptor, evaluation.trajectory), eqx.is_inexact_array)
    flags = [jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in jax.tree.leaves(floats)]
    return jnp.stack(flags).all(axis=0)


def _initial(algorithm: AbstractAlgorithm, problem: AbstractProblem, key: Key[Array, ""]) -> Offspring:
    batch = algorithm.batch_size
    # Row by row on a CPU also because XLA's batched QR, which orthogonal weights need, can deadlock on few cores.
    return Offspring(
        genotype=each_row(lambda key, _: problem.policy.init(key), jax.random.split(key, batch)),
        operator=jnp.zeros(batch, jnp.int32),
        candidate=jnp.ones(batch, bool),
        life=jnp.full(batch, problem.episode_length),
        target=_no_target(algorithm, problem),
        steps=jnp.zeros((), jnp.int32),
    )


def _no_target(algorithm: AbstractAlgorithm, problem: AbstractProblem) -> Float[Array, "batch dims"]:
    return jnp.full((algorithm.batch_size, problem.descriptor_size), jnp.nan)


def _newcomers(
    algorithm: AbstractAlgorithm,
    offspring: Offspring,
    evaluation: Evaluation,
    evaluate_key: Key[Array, ""],
    evaluations: Int[Array, ""],
) -> Elites:
    batch = algorithm.batch_size
    trajectory = evaluation.trajectory if algorithm.needs_trajectory else None
    return Elites(
        genotype=offspring.genotype,
        fitness=evaluation.fitness,
        descriptor=evaluation.descriptor,
        operator=offspring.operator,
        evaluation=evaluations + jnp.arange(batch),
        steps=evaluation.steps if trajectory is None else trajectory.alive.sum(axis=1, dtype=jnp.int32),
        key=jax.vmap(jax.random.key_data)(episode_keys(evaluate_key, batch)),
        keepsake=None if trajectory is None else jax.vmap(algorithm.keepsake)(trajectory),
    )


def _blank_evaluation(algorithm: AbstractAlgorithm, problem: AbstractProblem) -> Evaluation:
    batch, time = algorithm.batch_size, problem.episode_length
    trajectory = Trajectory(
        observation=jnp.zeros((batch, time, problem.policy.obs_size)),
        action=jnp.zeros((batch, time, problem.policy.act_size)),
        reward=jnp.zeros((batch, time)),
        alive=jnp.zeros((batch, time), bool),
        terminated=jnp.zeros((batch, time), bool),
    )
    return Evaluation(
        fitness=jnp.zeros(batch),
        descriptor=jnp.zeros((batch, problem.descriptor_size)),
        trajectory=trajectory if algorithm.needs_trajectory else None,
        steps=jnp.zeros(batch, jnp.int32),
    )
