"""MEMES: Flageat, Lim & Cully (2023), Enhancing MAP-Elites with Multiple Parallel Evolution Strategies,
arXiv:2303.06137."""

from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from .._archive import Archive
from .._buffer import Buffer, add, empty_buffer
from .._checks import at_least, between, whole
from .._loop import AbstractAlgorithm, Feedback, Offspring
from .._policy import AbstractPolicy, baseline_mlp
from .._spread import each_row
from ..learning.adam import Moments, adam, no_moments
from ..learning.es import centred_ranks, es_gradient, mirrored
from ..learning.novelty import novelty
from ..tasks._task import AbstractProblem, Evaluation, Trajectory

EXPLORE, EXPLOIT, PROBE = 1, 2, 3  # operators


class State(eqx.Module):
    """The lineages, and what they have been through."""

    centre: Float[Array, "lineages params"]  # where each stands
    moments: Moments  # of each one's Adam
    stale: Int[Array, " lineages"]  # generations since a centre of it entered the archive
    life: Int[Array, " lineages"]  # steps that the last centre lived
    seen: Buffer  # descriptors of the centres so far


class Memes(AbstractAlgorithm):
    """Evolution strategies side by side, of which one half climbs fitness and the other novelty.

    A generation asks for the centre of every lineage and for probes around it. Only centres may enter the archive;
    every probe is an evaluation.

    **Arguments:**

    - `batch_size`: rows per generation, centres and probes. Whole lineages of `samples` + 1 rows are made of it, two at
      least, and what is left over is dropped: 8192 becomes 8008, the rows of 8 lineages.
    - `samples`: probes around each centre, in mirrored pairs.
    - `sigma`: standard deviation of the probes.
    - `learning_rate`: of the step that each lineage takes a generation, with its own Adam.
    - `explore_share`: fraction of the lineages that climb novelty; the rest climb fitness.
    - `neighbours`: nearest earlier centres that novelty is the mean distance to, in units of the descriptor's bounds.
    - `novelty_capacity`: earlier centres that are remembered for that; the oldest are forgotten first.
    - `patience`: generations without an addition to the archive after which a lineage restarts from a random elite.
    """

    name: ClassVar[str] = "memes"
    operators: ClassVar[tuple[str, ...]] = ("explore", "exploit", "probe")
    needs_trajectory: ClassVar[bool] = False

    batch_size: int = 8192
    samples: int = 1000
    sigma: float = 0.02
    learning_rate: float = 0.01
    explore_share: float = 0.5
    neighbours: int = 10
    novelty_capacity: int = 50_000
    patience: int = 32

    def __post_init__(self):
        whole(self, "batch_size", "samples", "neighbours", "novelty_capacity", "patience")
        rows = self.samples + 1
        if self.samples % 2:
            raise ValueError(f"Memes: samples come in mirrored pairs and must be even; got {self.samples}")
        if self.lineages < 2:
            raise ValueError(
                f"Memes: batch_size must be at least {2 * rows}, two lineages of {self.samples} samples and a centre; "
                f"got {self.batch_size}. Take a larger batch or fewer samples"
            )
        self.batch_size = self.lineages * rows

    def __check_init__(self):
        at_least(self, 0, "learning_rate")
        between(self, 0, 1, "explore_share")
        if not 0 < self.sigma < float("inf"):
            raise ValueError(f"Memes: sigma must be above 0; got {self.sigma}")

    @staticmethod
    def small(**fields: Any) -> "Memes":
        """Settings for a CPU: 8 lineages of 62 samples, 504 rows."""
        return Memes(**{"batch_size": 504, "samples": 62} | fields)

    @property
    def lineages(self) -> int:
        return self.batch_size // (self.samples + 1)

    @property
    def explorers(self) -> int:
        """The first lineages, which climb novelty."""
        return round(self.lineages * self.explore_share)

    @staticmethod
    def default_policy(obs_size: int, act_size: int) -> AbstractPolicy:
        return baseline_mlp(obs_size, act_size)

    def keepsake(self, trajectory: Trajectory) -> None:
        return None

    def init(self, problem: AbstractProblem, archive: Archive, key: Key[Array, ""]) -> State:
        none = jnp.zeros(self.lineages, jnp.int32)
        centre = jnp.zeros((self.lineages, problem.policy.size))
        seen = empty_buffer(self.novelty_capacity, jnp.zeros((1, problem.descriptor_size)))
        return State(centre, jax.vmap(no_moments)(centre), none, none, seen)

    def room(self, problem: AbstractProblem, state: State, evaluations: int) -> State:
        return state

    def ask(
        self, problem: AbstractProblem, archive: Archive, state: State, key: Key[Array, ""]
    ) -> tuple[Offspring, State]:
        """The centres, then the probes of each."""
        lineages, probes = self.lineages, self.lineages * self.samples

        def around(row: tuple[Array, Array], shared: None) -> Array:
            centre, key = row
            return centre + self.sigma * mirrored(key, self.samples, centre.size)

        genotype = each_row(around, (state.centre, jax.random.split(key, lineages)))
        climbs = [EXPLORE] * self.explorers + [EXPLOIT] * (lineages - self.explorers)
        offspring = Offspring(
            genotype=jnp.concatenate([state.centre, genotype.reshape(probes, -1)]),
            operator=jnp.array(climbs + [PROBE] * probes, jnp.int32),
            candidate=jnp.arange(self.batch_size) < lineages,
            life=jnp.concatenate([state.life, jnp.repeat(state.life, self.samples)]),
            target=None,
            steps=jnp.zeros((), jnp.int32),
        )
        return offspring, state

    def tell(
        self,
        archive: Archive,
        state: State,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> State:
        initial = offspring.operator[0] == 0  # random rows: no lineage has begun yet
        return jax.lax.cond(
            initial,
            lambda: self._restarted(archive, state, jnp.ones(self.lineages, bool), key),
            lambda: self._stepped(archive, state, offspring, evaluation, feedback, key),
        )

    def _stepped(
        self,
        archive: Archive,
        state: State,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> State:
        """Each lineage a step up its gradient; those that have long brought nothing begin anew."""
        count = self.lineages
        seen = add(state.seen, evaluation.descriptor[:count], feedback.valid[:count])
        weight = jax.vmap(centred_ranks)(self._worth(archive, seen, evaluation, feedback))

        def gradient(row: tuple[Array, Array, Array], genotype: Array) -> Array:
            lineage, centre, weight = row
            # What was evaluated says what the noise was.
            probes = jax.lax.dynamic_slice_in_dim(genotype, count + lineage * self.samples, self.samples)
            return es_gradient((probes - centre) / self.sigma, weight, self.sigma)

        uphill = each_row(gradient, (jnp.arange(count), state.centre, weight), offspring.genotype)
        step = partial(adam, learning_rate=self.learning_rate)
        centre, moments = jax.vmap(step)(state.centre, -uphill, state.moments)
        stale = jnp.where(feedback.added[:count], 0, state.stale + 1)
        moved = State(centre, moments, stale, evaluation.steps[:count], seen)
        return self._restarted(archive, moved, stale >= self.patience, key)

    def _worth(
        self, archive: Archive, seen: Buffer, evaluation: Evaluation, feedback: Feedback
    ) -> Float[Array, "lineages samples"]:
        """What each probe is worth to its lineage: its novelty, or its fitness; one that is not finite, nothing."""
        shape, scale = (self.lineages, self.samples), archive.high - archive.low
        descriptor, fitness, valid = (
            leaf[self.lineages :] for leaf in (evaluation.descriptor, evaluation.fitness, feedback.valid)
        )
        explored, worth = self.explorers * self.samples, fitness
        if explored:
            novel = novelty(descriptor[:explored] / scale, seen.items / scale, seen.count, self.neighbours)
            worth = jnp.concatenate([novel, fitness[explored:]])
        return jnp.where(valid, worth, -jnp.inf).reshape(shape)

    def _restarted(self, archive: Archive, state: State, which: Array, key: Key[Array, ""]) -> State:
        """Some lineages at a random elite, with a fresh Adam."""
        elite = archive.sample(key, self.lineages)
        choose = lambda new, old: jnp.where(which.reshape(-1, *(1,) * (old.ndim - 1)), new, old)
        fresh = (
            archive.elites.genotype[elite],
            jax.vmap(no_moments)(state.centre),
            jnp.zeros_like(state.stale),
            archive.elites.steps[elite],
        )
        kept = state.centre, state.moments, state.stale, state.life
        return State(*jax.tree.map(choose, fresh, kept), seen=state.seen)
