"""Archives that keep the policies of a few elites far apart: small enough to be handed round."""

import numpy as np
from jaxtyping import Float, Int

from ._view import COLUMNS, ArchiveView, full_length


def spread(archive: ArchiveView, count: int) -> Int[np.ndarray, " rows"]:
    """Rows of so many elites with a policy: the best one, then each time the one farthest from all that were taken."""
    if int(count) != count or count < 1:
        raise ValueError(f"expected a whole number of policies, at least 1; got {count}")
    first = archive.best(with_policy=True).index
    rows = np.flatnonzero(archive.has_policy)
    if count >= len(rows):
        return rows
    return rows[_farthest(_places(archive, rows), int(np.searchsorted(rows, first)), int(count))]


def good_and_spread(archive: ArchiveView, count: int) -> Int[np.ndarray, " rows"]:
    """Rows of so many elites with a policy: of all that are nearest to one of `spread`'s, the best."""
    rows, middles = np.flatnonzero(archive.has_policy), spread(archive, count)
    away = ((_places(archive, rows)[:, None] - _places(archive, middles)) ** 2).sum(axis=2)
    region = np.argmin(away, axis=1)
    region[np.searchsorted(rows, middles)] = np.arange(len(middles))  # even where several are in the same place
    order = rows[np.lexsort((-archive.fitness[rows], region))]  # stable: of equals the first
    return np.sort(order[np.unique(np.sort(region), return_index=True)[1]])


def thinned(archive: ArchiveView, policies: int) -> ArchiveView:
    """The archive with these many policies; everything else stays."""
    kept = np.zeros(len(archive), bool)
    kept[spread(archive, policies)] = True
    columns = _columns(archive)
    columns["genotype"] = np.where(kept[:, None], archive.genotype, np.float32(np.nan))
    return _like(archive, columns, archive.cell)


def with_policies(archive: ArchiveView) -> ArchiveView:
    """The archive of those elites alone that have a policy."""
    has = archive.has_policy
    return _like(archive, {name: column[has] for name, column in _columns(archive).items()}, archive.cell[has])


def _farthest(place: Float[np.ndarray, "points dims"], first: int, count: int) -> Int[np.ndarray, " count"]:
    """Points far apart, in ascending order; of equally far ones the first."""
    taken, away = [first], np.full(len(place), np.inf)
    while len(taken) < count:
        away = np.minimum(away, ((place - place[taken[-1]]) ** 2).sum(axis=1))
        away[taken[-1]] = -1.0  # never again, even where others are in the same place
        taken.append(int(np.argmax(away)))
    return np.sort(np.array(taken))


def _places(archive: ArchiveView, rows: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows dims"]:
    """Descriptors in units of the bounds."""
    return (archive.descriptor[rows].astype(np.float64) - archive.low) / (archive.high - archive.low)


def _columns(archive: ArchiveView) -> dict[str, np.ndarray]:
    columns = {name: getattr(archive, name) for name in COLUMNS} | {"operator": archive.operator_number}
    return columns if archive.source is None else columns | {"source": archive.source}


def _like(archive: ArchiveView, columns: dict[str, np.ndarray], cell: np.ndarray) -> ArchiveView:
    """Other rows, in the same cells."""
    made = ArchiveView(
        full_length(columns, cell, archive.cells),
        centroids=archive.centroids,
        low=archive.low,
        high=archive.high,
        operators=archive.operators,
        policy=archive._policy,
        descriptor_names=archive.descriptor_names,
        problem=archive.problem,
        about=archive.about,
    )
    made.policy_description = archive.policy_description
    return made
