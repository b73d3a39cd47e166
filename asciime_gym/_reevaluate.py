"""Elites looked at again: what further episodes say of an archive."""

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ._archive import EMPTY
from ._combine import Source, cells_of, opened
from ._compile import compiled
from ._describe import describe_policy, describe_problem
from ._progress import LINE_EVERY
from ._spread import first_process
from ._view import COLUMNS, ArchiveView, full_length
from .tasks._task import AbstractProblem, AbstractTask, Evaluation

BATCH = 512  # episodes in a device call, always: one program serves every archive of a task
APART = 2**32 - 1  # no generation has this number: keys made from it are not those of a run with the same seed


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Reevaluation:
    """What further episodes of every elite gave; row i belongs to elite i of `archive`.

    `corrected` is the archive that the means make: each elite is in the cell of its mean descriptor with its mean
    fitness, if no other does better there. Elites that were only lucky move or drop.
    """

    archive: ArchiveView  # as it was
    corrected: ArchiveView
    fitness: Float[np.ndarray, "elites episodes"]
    descriptor: Float[np.ndarray, "elites episodes dims"]
    fitness_mean: Float[np.ndarray, " elites"]
    fitness_std: Float[np.ndarray, " elites"]  # spread of the episodes, not error of the mean
    descriptor_mean: Float[np.ndarray, "elites dims"]
    descriptor_std: Float[np.ndarray, "elites dims"]
    cell: Int[np.ndarray, " elites"]  # of the mean descriptor; -1 where a mean is not finite
    kept: Bool[np.ndarray, " elites"]  # whether the elite is in `corrected`

    @property
    def stayed(self) -> int:
        """Elites that kept their cell."""
        return int((self.kept & (self.cell == self.archive.cell)).sum())

    @property
    def moved(self) -> int:
        """Elites that are in another cell now."""
        return int((self.kept & (self.cell != self.archive.cell)).sum())

    @property
    def dropped(self) -> int:
        """Elites that lost to a better one, or that are not finite."""
        return int((~self.kept).sum())

    @property
    def not_finite(self) -> int:
        """Elites of which an episode was not finite; they are dropped."""
        return int((self.cell == EMPTY).sum())

    def to_dataframe(self):
        """A pandas DataFrame (extra `analysis`), one row per elite: before, mean, spread, and where it went."""
        from .analysis._optional import pandas

        columns = {"cell": self.archive.cell, "objective": self.archive.fitness}
        columns |= {"objective_mean": self.fitness_mean, "objective_std": self.fitness_std}
        for d in range(self.descriptor.shape[2]):
            columns[f"measures_{d}"] = self.archive.descriptor[:, d]
            columns[f"measures_{d}_mean"] = self.descriptor_mean[:, d]
            columns[f"measures_{d}_std"] = self.descriptor_std[:, d]
        return pandas().DataFrame(columns | {"new_cell": self.cell, "kept": self.kept})

    def __repr__(self) -> str:
        before, after = self.archive, self.corrected
        nan = f" ({self.not_finite:,} of them not finite)" if self.not_finite else ""
        return (
            f"Reevaluation({len(before):,} elites, {self.fitness.shape[1]:,} episodes each: "
            f"QD score {before.qd_score:,.0f} → {after.qd_score:,.0f}, "
            f"coverage {100 * before.coverage:.1f} % → {100 * after.coverage:.1f} %; "
            f"{self.stayed:,} stayed, {self.moved:,} moved, {self.dropped:,} dropped{nan})"
        )


def reevaluate(
    archive: Source, task: AbstractProblem, *, episodes: int = 32, seed: int = 0, progress: bool | None = None
) -> Reevaluation:
    """Evaluates every elite of an archive again, in fresh episodes, and corrects the archive by what they give.

    Episode j of the elite in a cell is the same whatever else is evaluated beside it.

    **Arguments:**

    - `archive`: the archive, or its file.
    - `task`: what to evaluate on: the task that the archive was made on, or another that takes the same policies.
    - `episodes`: of each elite.
    - `seed`: a whole number from 0 to 2³² − 1. No episode of a run has the key of one of these.
    - `progress`: show progress; by default on a terminal only.
    """
    archive = opened(archive)
    _need_fitting(archive, task)
    if int(episodes) != episodes or episodes < 1:
        raise ValueError(f"episodes must be a whole number, at least 1; got {episodes}")
    if int(seed) != seed or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to {2**32 - 1:,}; got {seed}")
    fitness, descriptor = _episodes(archive, task, int(episodes), int(seed), progress)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is dropped, and counted
        fitness_mean, descriptor_mean = (samples.mean(axis=1, dtype=np.float64) for samples in (fitness, descriptor))
        fitness_std, descriptor_std = (samples.std(axis=1, dtype=np.float64) for samples in (fitness, descriptor))
        means = fitness_mean.astype(np.float32), descriptor_mean.astype(np.float32)
    cell, kept = _settle(archive, *means)
    about = {"made_by": "reevaluate", "task": getattr(task, "name", None), "episodes": int(episodes), "seed": int(seed)}
    return Reevaluation(
        archive=archive,
        corrected=_corrected(archive, task, *means, cell, kept, about),
        fitness=fitness,
        descriptor=descriptor,
        fitness_mean=fitness_mean,
        fitness_std=fitness_std,
        descriptor_mean=descriptor_mean,
        descriptor_std=descriptor_std,
        cell=cell,
        kept=kept,
    )


@compiled
def _play(
    task: AbstractTask,
    seed: UInt32[Array, ""],
    genotype: Float[Array, "batch params"],
    cell: Int[Array, " batch"],
    episode: Int[Array, " batch"],
    life: Int[Array, " batch"],
) -> Evaluation:
    """Episodes of elites; an episode's key is made of the elite's cell and the episode's number."""
    root = jax.random.fold_in(jax.random.key(seed), APART)
    keys = jax.vmap(lambda c, j: jax.random.fold_in(jax.random.fold_in(root, c), j))(cell, episode)
    return task.episodes(genotype, keys, life=life, trajectory=False)


def _episodes(
    archive: ArchiveView, task: Any, episodes: int, seed: int, progress: bool | None
) -> tuple[Float[np.ndarray, "elites episodes"], Float[np.ndarray, "elites episodes dims"]]:
    """Fitness and descriptor of so many episodes of every elite."""
    total, dims = len(archive) * episodes, len(archive.low)
    fitness, descriptor = np.empty(total, np.float32), np.empty((total, dims), np.float32)
    cell, steps = archive.cell.astype(np.int32), archive.steps.astype(np.int32)
    with _display(progress, f"reevaluate on {task.name}", total) as show:
        for start in range(0, total, BATCH):
            end = min(start + BATCH, total)
            # A program has one size, and rows beyond the last are played in vain; environments on the host have none.
            stop = end if task.on_host else start + BATCH
            row, episode = np.divmod(np.minimum(np.arange(start, stop), total - 1), episodes)
            rows = (archive.genotype[row], cell[row], episode.astype(np.int32), steps[row])
            play = _play.__wrapped__ if task.on_host else _play
            played = play(task, jnp.uint32(seed), *(jnp.asarray(column) for column in rows))
            fitness[start:end] = np.asarray(played.fitness)[: end - start]
            descriptor[start:end] = np.asarray(played.descriptor)[: end - start]
            show(end)
    return fitness.reshape(-1, episodes), descriptor.reshape(-1, episodes, dims)


def _settle(
    archive: ArchiveView, fitness: Float[np.ndarray, " elites"], descriptor: Float[np.ndarray, "elites dims"]
) -> tuple[Int[np.ndarray, " elites"], Bool[np.ndarray, " elites"]]:
    """The cell that each elite belongs to, and whether it is the best there; of equals that of the lowest old cell."""
    finite = np.flatnonzero(np.isfinite(fitness) & np.isfinite(descriptor).all(axis=1))
    cell, kept = np.full(len(fitness), EMPTY, np.int32), np.zeros(len(fitness), bool)
    cell[finite] = cells_of(archive, descriptor[finite])
    order = finite[np.lexsort((-fitness[finite], cell[finite]))]  # stable, and rows are in the order of old cells
    kept[order[np.unique(cell[order], return_index=True)[1]]] = True
    return cell, kept


def _corrected(
    archive: ArchiveView,
    task: AbstractProblem,
    fitness: Float[np.ndarray, " elites"],
    descriptor: Float[np.ndarray, "elites dims"],
    cell: Int[np.ndarray, " elites"],
    kept: Bool[np.ndarray, " elites"],
    about: dict[str, Any],
) -> ArchiveView:
    """The elites that were kept, each in its new cell, with its means."""
    names = [*COLUMNS, "source"] if archive.source is not None else COLUMNS
    columns = {name: getattr(archive, name) for name in names}
    columns |= {"fitness": fitness, "descriptor": descriptor, "operator": archive.operator_number}
    columns = {name: column[kept] for name, column in columns.items()}
    # A cell that was empty is filled from the moment at which its new elite came in.
    filled_at = archive.rows()["first_filled"][cell[kept]]
    earlier = np.minimum(filled_at, columns["evaluation"])
    columns["first_filled"] = np.where(filled_at == EMPTY, columns["evaluation"], earlier)
    if archive.about:
        about = about | {"sources": list(archive.sources), "of": archive.about}
    return ArchiveView(
        full_length(columns, cell[kept], archive.cells),
        centroids=archive.centroids,
        low=archive.low,
        high=archive.high,
        operators=archive.operators,
        policy=task.policy,
        descriptor_names=getattr(task, "descriptor_names", archive.descriptor_names),
        problem=json.loads(describe_problem(task)),
        about=about,
    )


def _need_fitting(archive: ArchiveView, task: AbstractProblem):
    """Refuses a task that cannot evaluate the archive's elites."""
    if not isinstance(task, AbstractTask):
        raise TypeError(
            f"reevaluate needs a task that can evaluate policies; a {type(task).__name__} has no evaluator: "
            "give make_task(…), or an AbstractTask of your own with a method `episodes`"
        )
    if not archive.has_policy.all():
        raise ValueError(
            f"only {archive.has_policy.sum():,} of the archive's {len(archive):,} elites have a policy to evaluate: "
            "give the archive of the whole run, or those alone, reevaluate(archive.with_policies(), task)"
        )
    size = archive.genotype.shape[1]
    described = describe_policy(task.policy)
    own = archive._policy and describe_policy(archive._policy)
    if task.policy.size != size or (own is not None and own != described):
        raise ValueError(
            f"the task's policy is not the archive's: {described} of {task.policy.size:,} parameters, where the "
            f"archive has {own or 'a policy of its own'} of {size:,}. Make the task with the policy of the run, "
            "make_task(…, policy=PgaME.default_policy) say"
        )
    bounds = [np.asarray(bound, np.float32) for bound in (task.descriptor_low, task.descriptor_high)]
    if not (np.array_equal(bounds[0], archive.low) and np.array_equal(bounds[1], archive.high)):
        raise ValueError(
            f"the task's descriptors are from {bounds[0].tolist()} to {bounds[1].tolist()}, the archive's from "
            f"{archive.low.tolist()} to {archive.high.tolist()}. Give the task that the archive was made on"
        )


@contextlib.contextmanager
def _display(wanted: bool | None, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A live bar on a terminal; elsewhere, only if wanted, a line now and then. Yields what shows the episodes done."""
    terminal = sys.stderr.isatty()
    if wanted is False or not first_process() or not (wanted or terminal):
        yield lambda done: None
    elif terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        times = (TextColumn("episodes"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        with Progress(*columns, *times, console=Console(stderr=True)) as bar:
            task = bar.add_task(f"{title} (compiling, up to a minute the first time)", total=total)
            yield lambda done: bar.update(task, completed=done, description=title)
    else:
        last = float("-inf")
        print(f"{title}: compiling (up to a minute the first time)", file=sys.stderr, flush=True)

        def line(done: int):
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY or done == total:
                last = time.monotonic()
                print(f"{title}: {done:,} of {total:,} episodes", file=sys.stderr, flush=True)

        yield line
