"""MAP-Elites: Mouret & Clune (2015), arXiv:1504.04909; iso+line: Vassiliades & Mouret (2018), arXiv:1804.03906."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._archive import Archive
from .._checks import at_least, whole
from .._loop import AbstractAlgorithm, Feedback, Offspring
from .._policy import AbstractPolicy, baseline_mlp
from .._spread import spread
from .._variation import iso_line
from ..tasks._task import AbstractProblem, Evaluation, Trajectory


class MapElites(AbstractAlgorithm):
    """Random variation of random elites, and nothing else.

    **Arguments:**

    - `batch_size`: offspring per generation.
    - `sigma1`: standard deviation of the isotropic noise of iso+line.
    - `sigma2`: standard deviation, relative to the distance of the two parents, of its step along their line.
    """

    name: ClassVar[str] = "map_elites"
    operators: ClassVar[tuple[str, ...]] = ("iso_line",)
    needs_trajectory: ClassVar[bool] = False

    batch_size: int = 512
    sigma1: float = 0.005
    sigma2: float = 0.05

    def __check_init__(self):
        whole(self, "batch_size")
        at_least(self, 0, "sigma1", "sigma2")

    @staticmethod
    def default_policy(obs_size: int, act_size: int) -> AbstractPolicy:
        return baseline_mlp(obs_size, act_size)

    def keepsake(self, trajectory: Trajectory) -> None:
        return None

    def init(self, problem: AbstractProblem, archive: Archive, key: Key[Array, ""]) -> None:
        return None

    def room(self, problem: AbstractProblem, state: None, evaluations: int) -> None:
        return state

    def ask(
        self, problem: AbstractProblem, archive: Archive, state: None, key: Key[Array, ""]
    ) -> tuple[Offspring, None]:
        genotype, life = iso_line_offspring(archive, key, self.batch_size, self.sigma1, self.sigma2)
        offspring = Offspring(
            genotype=genotype,
            operator=jnp.ones(self.batch_size, jnp.int32),
            candidate=jnp.ones(self.batch_size, bool),
            life=life,
            target=None,
            steps=jnp.zeros((), jnp.int32),
        )
        return offspring, state

    def tell(
        self,
        archive: Archive,
        state: None,
        offspring: Offspring,
        evaluation: Evaluation,
        feedback: Feedback,
        key: Key[Array, ""],
    ) -> None:
        return None


def iso_line_offspring(
    archive: Archive, key: Key[Array, ""], count: int, sigma1: float, sigma2: float
) -> tuple[Float[Array, "count params"], Array]:
    """`count` iso+line offspring of uniformly drawn elites, and how long their parents lived."""
    parent_key, mate_key, noise_key = jax.random.split(key, 3)
    parent, mate = archive.sample(parent_key, count), archive.sample(mate_key, count)
    vary = lambda row, genotype: iso_line(genotype[row[0]], genotype[row[1]], row[2], sigma1=sigma1, sigma2=sigma2)
    rows = parent, mate, jax.random.split(noise_key, count)
    # All at once, on a CPU too: XLA shares random numbers out to threads, which pays for many only.
    varied = spread(jax.vmap(vary, (0, None)), rows, archive.elites.genotype)
    return varied, archive.elites.steps[parent]
