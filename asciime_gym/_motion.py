"""How elites move: their episodes again, as poses of the robot's links."""

import dataclasses
import json
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ._compile import compiled
from ._describe import make_problem
from ._view import ArchiveView
from .tasks._task import Evaluation
from .tasks.locomotion import TASKS, Locomotion
from .tasks.rollout import rollout

BATCH = 64  # episodes in a device call, always: one program serves every archive of a task


@dataclasses.dataclass(frozen=True)
class Motion:
    """Poses after every step of each episode; zero after its end."""

    task: Locomotion
    position: Float[np.ndarray, "elites time links 3"]  # metres
    rotation: Float[np.ndarray, "elites time links 4"]  # quaternions, w first
    steps: Int[np.ndarray, " elites"]


def task_of(archive: ArchiveView) -> Locomotion:
    """The robot that an archive was made with."""
    policy, problem = archive.best(with_policy=True).policy.policy, archive.problem or {}
    if problem.get("kind") != "task":
        raise ValueError(
            f"only the robots of make_task(…) can be shown moving ({', '.join(TASKS)}); this archive is of "
            f"{problem.get('name', 'an unknown task')}"
        )
    try:
        task = make_problem(json.dumps(problem), policy)
    except Exception as error:  # whatever a file may say of its task
        raise ValueError(f"the archive's robot cannot be made here: {error}") from error
    assert isinstance(task, Locomotion)
    return task


def motion(archive: ArchiveView, rows: Sequence[int], task: Locomotion | None = None) -> Motion:
    """The episodes that made these elites what they are, bit for bit on the machine that they were played on."""
    if missing := [row for row in rows if not archive[row].has_policy]:
        archive.policy(missing[0])  # which says why there is none
    if not len(rows):
        raise ValueError("expected at least one row of the archive to be shown moving; got none")
    task = task or task_of(archive)
    parts = list(_played(task, archive.genotype[list(rows)], archive.key[list(rows)]))
    evaluations, poses = zip(*parts, strict=True)
    whole = lambda *leaves: np.concatenate(leaves)[: len(rows)]
    position, rotation = jax.tree.map(whole, *poses)
    return Motion(task, position, rotation, whole(*(evaluation.steps for evaluation in evaluations)))


def _played(task: Locomotion, genotype: np.ndarray, key: np.ndarray) -> Iterator[tuple[Evaluation, tuple]]:
    for begin in range(0, len(genotype), BATCH):
        part = [leaf[begin : begin + BATCH] for leaf in (genotype, key)]
        genotypes, keys = (np.concatenate([leaf, np.repeat(leaf[:1], BATCH - len(leaf), axis=0)]) for leaf in part)
        yield jax.device_get(_play(task, jnp.asarray(genotypes), jax.random.wrap_key_data(jnp.asarray(keys))))


@compiled
def _play(task: Locomotion, genotypes: Float[Array, "batch params"], keys: Key[Array, " batch"]):
    """Evaluations, and where every link was."""
    evaluation, poses = rollout(
        task, genotypes, keys, trajectory=False, keep=lambda state: (state.physics.x.pos, state.physics.x.rot)
    )
    return evaluation, poses
