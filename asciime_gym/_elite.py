"""One elite of an archive, and its network."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ._policy import AbstractPolicy

if TYPE_CHECKING:
    from ._view import ArchiveView
else:
    ArchiveView = Any  # it imports this module


class ElitePolicy:
    """One elite's network: give it an observation, or a batch of them, and it acts."""

    def __init__(self, policy: AbstractPolicy, genotype: np.ndarray):
        self.policy, self.genotype = policy, genotype
        self._act = jax.jit(policy.act)

    def act(self, observation: Any) -> np.ndarray:
        observation = np.asarray(observation, np.float32)
        if observation.shape[-1:] != (self.policy.obs_size,):
            raise ValueError(
                f"expected an observation whose last axis is {self.policy.obs_size}; got shape {observation.shape}"
            )
        return np.asarray(self._act(jnp.asarray(self.genotype), jnp.asarray(observation)))

    __call__ = act

    def __repr__(self) -> str:
        return f"ElitePolicy({self.policy})"


class Elite:
    """One filled cell."""

    def __init__(self, archive: ArchiveView, index: int):
        self._archive, self.index = archive, index
        self.cell = int(archive.cell[index])
        self.fitness = float(archive.fitness[index])
        self.descriptor = archive.descriptor[index]
        self.genotype = archive.genotype[index]
        self.operator = str(archive.operator[index])
        self.evaluation = int(archive.evaluation[index])
        self.steps = int(archive.steps[index])
        self.key = archive.key[index]
        self.has_policy = bool(archive.has_policy[index])

    @property
    def policy(self) -> ElitePolicy:
        return self._archive.policy(self.index)

    def __repr__(self) -> str:
        place = ", ".join(f"{value:.3g}" for value in self.descriptor)
        return (
            f"Elite(index {self.index}, cell {self.cell}, fitness {self.fitness:,.1f}, descriptor ({place}), "
            f"by {self.operator} at evaluation {self.evaluation:,}{'' if self.has_policy else ', without a policy'})"
        )
