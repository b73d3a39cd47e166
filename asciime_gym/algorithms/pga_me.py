"""PGA-ME: Nilsson & Cully (2021), Policy Gradient Assisted MAP-Elites."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._archive import Archive
from .._checks import between
from .._policy import AbstractPolicy
from ..tasks._task import AbstractProblem, Evaluation
from ._actor_critic import ARGUMENTS, AbstractActorCritic


class PgaME(AbstractActorCritic):
    __doc__ = f"""MAP-Elites with offspring that climb the critic of TD3, and with its greedy actor among them.

    **Arguments:**

    - `batch_size`: offspring per generation.
    - `iso_line_share`: fraction of them made by iso+line; the rest by policy gradient, but for the injected actor.
    - `injected`: 1 if the greedy actor itself is among them, 0 if not.{ARGUMENTS}"""

    name: ClassVar[str] = "pga_me"

    injected: int = 1

    def __check_init__(self):
        between(self, 0, 1, "injected")

    @property
    def counts(self) -> tuple[int, int, int]:
        iso_line = round(self.batch_size * self.iso_line_share)
        injected = min(self.injected, self.batch_size - iso_line)
        return iso_line, self.batch_size - iso_line - injected, injected

    def _actor(self, problem: AbstractProblem) -> AbstractPolicy:
        return problem.policy

    def _condition(self, archive: Archive, descriptor: Float[Array, "rows dims"]) -> None:
        return None

    def _reward(
        self, archive: Archive, evaluation: Evaluation, target: Float[Array, "batch dims"]
    ) -> Float[Array, "batch time"]:
        assert evaluation.trajectory is not None  # needs_trajectory
        return evaluation.trajectory.reward

    def _inject(
        self, problem: AbstractProblem, archive: Archive, actor: Float[Array, " weights"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "rows params"], None]:
        return jnp.tile(actor, (self.counts[2], 1)), None

    def _first_actor(
        self, actor: Float[Array, " weights"], initial: Float[Array, "batch params"]
    ) -> Float[Array, " weights"]:
        return initial[0]
