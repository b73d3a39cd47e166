"""DCRL-ME: Faldor, Chalumeau, Flageat & Cully (2024), Synergizing Quality-Diversity with Descriptor-Conditioned
Reinforcement Learning."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._archive import Archive
from .._checks import between
from .._policy import MLP
from ..tasks._task import AbstractProblem, Evaluation
from ._actor_critic import ARGUMENTS, AbstractActorCritic


class DcrlME(AbstractActorCritic):
    __doc__ = f"""MAP-Elites with an actor and critics that are told which descriptor to aim at.

    The closer an episode came to its target, the more of its reward counts, so rewards should be at least 0. Injected
    actors aim at the descriptors of random elites, which are folded into the first layer: the policy has to be an MLP.

    **Arguments:**

    - `batch_size`: offspring per generation.
    - `iso_line_share`: fraction of them made by iso+line.
    - `injection_share`: fraction of them that are the actor, each for a descriptor of its own; the rest by policy
      gradient.
    - `length_scale`: distance of descriptors, scaled to ±1, at which 1/e of the reward counts.{ARGUMENTS}"""

    name: ClassVar[str] = "dcrl_me"

    batch_size: int = 2048
    replay_size: int = 8_000_000
    injection_share: float = 0.25
    length_scale: float = 0.1

    def __check_init__(self):
        between(self, 0, 1, "injection_share")
        if not 0 < self.length_scale < float("inf"):
            raise ValueError(f"DcrlME: length_scale must be above 0; got {self.length_scale}")

    @property
    def counts(self) -> tuple[int, int, int]:
        iso_line, injected = (round(self.batch_size * share) for share in (self.iso_line_share, self.injection_share))
        return iso_line, self.batch_size - iso_line - injected, injected

    def _actor(self, problem: AbstractProblem) -> MLP:
        policy = problem.policy
        if not isinstance(policy, MLP):
            raise TypeError(
                "DcrlME folds descriptors into the first layer of the policy, which has to be an asciime_gym.MLP for "
                f"that; got {type(policy).__name__}: use DcrlME.default_policy, or PgaME, which takes any module"
            )
        return dataclasses.replace(policy, obs_size=policy.obs_size + problem.descriptor_size)

    def _condition(self, archive: Archive, descriptor: Float[Array, "rows dims"]) -> Float[Array, "rows dims"]:
        """The descriptor in units of the bounds, from -1 to 1."""
        return jnp.clip(2 * (descriptor - archive.low) / (archive.high - archive.low) - 1, -1.0, 1.0)

    def _reward(
        self, archive: Archive, evaluation: Evaluation, target: Float[Array, "batch dims"]
    ) -> Float[Array, "batch time"]:
        """Scaled by how near the descriptor came to the target. It is stored so: neither will ever change."""
        assert evaluation.trajectory is not None  # needs_trajectory
        offset = self._condition(archive, evaluation.descriptor) - self._condition(archive, target)
        similarity = jnp.exp(-jnp.linalg.norm(offset, axis=1) / self.length_scale)
        return similarity[:, None] * evaluation.trajectory.reward

    def _inject(
        self, problem: AbstractProblem, archive: Archive, actor: Float[Array, " weights"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "rows params"], Float[Array, "rows dims"]]:
        aims = archive.elites.descriptor[archive.sample(key, self.counts[2])]
        network = self._actor(problem)
        return jax.vmap(lambda aim: fold(network, actor, aim))(self._condition(archive, aims)), aims

    def _first_actor(
        self, actor: Float[Array, " weights"], initial: Float[Array, "batch params"]
    ) -> Float[Array, " weights"]:
        return actor  # an initial policy has no weights for a descriptor: drawn like one of them


def fold(network: MLP, actor: Float[Array, " weights"], condition: Float[Array, " dims"]) -> Float[Array, " params"]:
    """The genotype of a policy that does what the actor does under this condition: what the condition adds to the
    first layer becomes part of its biases."""
    (weights, biases), *rest = network.unpack(actor)
    own = len(weights) - len(condition)
    layers = [(weights[:own], biases + condition @ weights[own:]), *rest]
    return jnp.concatenate([part.ravel() for layer in layers for part in layer])
