"""Archives put together: several runs in one, and descriptors in the cells of an archive."""

import os
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._archive import EMPTY, Archive, Elites, empty_archive
from ._compile import compiled
from ._describe import describe_policy
from ._files import load_archive
from ._policy import AbstractPolicy
from ._view import ArchiveView

LOOKUP = 1024  # descriptors whose cells are found in one device call, always: one program serves any number
Source = str | os.PathLike | ArchiveView


def merge(sources: Iterable[Source], *, policy: AbstractPolicy | None = None) -> ArchiveView:
    """One archive of several: in each cell the best elite of all; of equals that of the earliest source.

    Each elite's row is that of its own run, `evaluation` and `first_filled` included; its `source` tells which.

    **Arguments:**

    - `sources`: files, or archives. Cells, task and policy have to be the same in all of them.
    - `policy`: where it is a module of the user's own, which files cannot hold.
    """
    given = [] if isinstance(sources, (str, os.PathLike, ArchiveView)) else list(sources)
    if not given:
        raise ValueError("merge takes a list of files or archives, of which there is at least one: merge([first, …])")
    rows: dict[str, np.ndarray] = {}
    operators: list[str] = []
    names: list[str] = []
    first, network = None, policy
    for number, source in enumerate(given):  # one after the other: only the best rows so far are kept
        name = f"archive {number}" if isinstance(source, ArchiveView) else os.fspath(source)
        archive = opened(source, policy)
        first = first or (name, archive)
        _need_alike(*first, name, archive)
        _need_size(name, archive, policy)
        more = _renumbered(name, archive, operators, names)
        rows = _best_of(rows, more) if rows else more
        network = archive._policy if network is None else network
    assert first is not None
    merged = ArchiveView(
        rows,
        centroids=first[1].centroids,
        low=first[1].low,
        high=first[1].high,
        operators=tuple(operators),
        policy=network,
        descriptor_names=first[1].descriptor_names,
        problem=first[1].problem,
        about={"made_by": "merge", "sources": names},
    )
    merged.policy_description = first[1].policy_description
    return merged


def opened(source: Any, policy: AbstractPolicy | None = None) -> ArchiveView:
    """An archive that was given as such, or as a file."""
    if isinstance(source, ArchiveView):
        return source
    if isinstance(source, (str, os.PathLike)):
        return load_archive(source, policy=policy)
    raise TypeError(f"expected an archive or the path of its file; got {source!r}")


def cells_of(archive: ArchiveView, descriptor: Float[np.ndarray, "rows dims"]) -> Int[np.ndarray, " rows"]:
    """The cell of each descriptor, found as the archive of a run finds it."""
    real, whole = jnp.zeros((0, 0)), jnp.zeros(0, jnp.int32)
    nobody = Elites(
        genotype=real,
        fitness=jnp.zeros(0),
        descriptor=real,
        operator=whole,
        evaluation=whole,
        steps=whole,
        key=jnp.zeros((0, 0), jnp.uint32),
        keepsake=None,
    )
    low, high = tuple(archive.low.tolist()), tuple(archive.high.tolist())
    cells = empty_archive(jnp.asarray(archive.centroids), low, high, nobody)
    full = np.zeros((-(-len(descriptor) // LOOKUP), LOOKUP, len(low)), np.float32)
    full.reshape(-1, len(low))[: len(descriptor)] = descriptor
    found = [np.asarray(_lookup(cells, part)) for part in full]
    return np.array(found, np.int32).reshape(-1)[: len(descriptor)]


@compiled
def _lookup(cells: Archive, descriptor: Float[Array, "rows dims"]) -> Int[Array, " rows"]:
    return cells.lookup(descriptor)


def _renumbered(name: str, archive: ArchiveView, operators: list[str], names: list[str]) -> dict[str, np.ndarray]:
    """An archive's rows with operators and sources as they are numbered in the merged one, whose lists may grow."""
    operators += [operator for operator in archive.operators if operator not in operators]
    places = np.array([operators.index(operator) for operator in archive.operators], np.int32)
    rows = archive.rows()
    rows["operator"][archive.cell] = places[archive.operator_number]
    origin = 0 if archive.source is None else archive.source  # one that was merged before brings its own sources
    rows["source"] = np.full(archive.cells, EMPTY, np.int32)
    rows["source"][archive.cell] = len(names) + origin
    names += archive.sources if archive.source is not None else [name]
    return rows


def _best_of(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """In each cell the row of higher fitness; of equals the old one."""
    better = new["fitness"] > old["fitness"]
    for name in old:
        old[name][better] = new[name][better]
    return old


def _need_alike(first_name: str, first: ArchiveView, name: str, archive: ArchiveView):
    """Refuses archives that cannot be one."""
    both = f"{first_name} and {name} cannot be merged"
    if len(first.low) != len(archive.low):
        raise ValueError(
            f"{both}: their descriptors have {len(first.low)} and {len(archive.low)} dimensions. Merge runs of one task"
        )
    if not (np.array_equal(first.low, archive.low) and np.array_equal(first.high, archive.high)):
        bounds = [f"{view.low.tolist()} to {view.high.tolist()}" for view in (first, archive)]
        raise ValueError(f"{both}: their descriptors' bounds are {bounds[0]} and {bounds[1]}. Merge runs of one task")
    if not np.array_equal(first.centroids, archive.centroids):
        raise ValueError(
            f"{both}: their cells differ ({first.cells:,} and {archive.cells:,} of them, not at the same places). "
            "Run both with the same centroids=…"
        )
    _need_same_policy(both, first, archive)
    tasks = [_task_of(view) for view in (first, archive)]
    if None not in tasks and tasks[0] != tasks[1]:
        raise ValueError(
            f"{both}: their fitness is of different tasks, {tasks[0]} and {tasks[1]}. Evaluate one of them on the "
            "other's task first: merge([first, reevaluate(second, task).corrected])"
        )


def _need_same_policy(both: str, first: ArchiveView, archive: ArchiveView):
    sizes = first.genotype.shape[1], archive.genotype.shape[1]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{both}: their genotypes have {sizes[0]:,} and {sizes[1]:,} parameters. Run both with the same policy"
        )
    policies = [view._policy and describe_policy(view._policy) for view in (first, archive)]
    if None not in policies and policies[0] != policies[1]:
        raise ValueError(
            f"{both}: the same genotype means different policies in them, {policies[0]} and {policies[1]}. "
            "Run both with the same policy"
        )


def _need_size(name: str, archive: ArchiveView, policy: AbstractPolicy | None):
    size = archive.genotype.shape[1]
    if policy is not None and policy.size != size:
        raise ValueError(
            f"{name} has genotypes of {size:,} parameters, the policy given takes {policy.size:,}. "
            "Give the policy that the runs were made with"
        )


def _task_of(archive: ArchiveView) -> dict[str, Any] | None:
    """What an archive's fitness depends on; `None` where it is not known."""
    if not archive.problem or archive.problem.get("name") == "unknown":
        return None
    how = ("lanes", "descriptor_names")  # it is computed and called: no part of the task
    return {name: value for name, value in archive.problem.items() if name not in how}
