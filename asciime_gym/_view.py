"""An archive as people read it: the filled cells, in NumPy, ordered by cell."""

import functools
import os
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from . import _tables
from ._archive import EMPTY, Archive
from ._elite import Elite, ElitePolicy
from ._policy import AbstractPolicy

COLUMNS = ("genotype", "fitness", "descriptor", "operator", "evaluation", "first_filled", "steps", "key")
_BLANKS = {"fitness": -np.inf, "operator": EMPTY, "evaluation": EMPTY, "first_filled": EMPTY, "source": EMPTY}


class ArchiveView:
    """The elites of an archive, filled cells only, ordered by `cell`.

    Columns of the same length: `cell`, `fitness`, `descriptor`, `genotype`, `operator` (name), `evaluation` (at which
    the elite came in), `first_filled` (at which its cell was), `steps` (that its episode lasted) and `key` (of its
    episode: `jax.random.wrap_key_data(archive.key[i])` for `task.replay`). Where several archives were put together,
    `source` is each elite's place in `sources`, the names of the archives; else it is `None`.

    A small archive may have been stored with the policies of some elites only (`thinned`): `has_policy` says of which.
    The genotypes of the others are NaN; all else is there.

    Besides: `centroids`, `low`, `high`, `operators` (all names), `descriptor_names`, `problem` (the task's description,
    where it is known) and `about` (where the archive comes from, if not straight from a run).
    """

    def __init__(
        self,
        rows: dict[str, np.ndarray],
        *,
        centroids: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        operators: tuple[str, ...],
        policy: AbstractPolicy | None,
        descriptor_names: tuple[str, ...] | None = None,
        problem: dict[str, Any] | None = None,
        about: dict[str, Any] | None = None,
    ):
        filled = rows["fitness"] > -np.inf
        self.cell = np.flatnonzero(filled)
        self.genotype: np.ndarray = rows["genotype"][filled]
        self.fitness: np.ndarray = rows["fitness"][filled]
        self.descriptor: np.ndarray = rows["descriptor"][filled]
        self.evaluation: np.ndarray = rows["evaluation"][filled]
        self.first_filled: np.ndarray = rows["first_filled"][filled]
        self.steps: np.ndarray = rows["steps"][filled]
        self.key: np.ndarray = rows["key"][filled]
        self.operator_number: np.ndarray = rows["operator"][filled]
        self.operator = np.array(operators, str)[self.operator_number]
        self.source: np.ndarray | None = rows["source"][filled] if "source" in rows else None
        self.operators, self.problem, self.about = operators, problem, about
        self.centroids, self.low, self.high = centroids, low, high
        self.descriptor_names = descriptor_names or tuple(f"descriptor {i}" for i in range(len(low)))
        self._policy = policy
        self.policy_description: str | None = None  # as its file says it

    @property
    def cells(self) -> int:
        """Number of cells, filled or not."""
        return len(self.centroids)

    @property
    def coverage(self) -> float:
        return len(self) / self.cells

    @property
    def qd_score(self) -> float:
        return float(self.fitness.sum(dtype=np.float64))

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the archives that this one was put together from; none for the archive of one run."""
        return tuple((self.about or {}).get("sources", ()))

    @functools.cached_property
    def has_policy(self) -> Bool[np.ndarray, " elites"]:
        """Which rows have a genotype; the others' are NaN throughout."""
        missing = np.asarray(np.isnan(self.genotype[:, :1]).any(axis=1))  # else there is no need to look at the rest
        missing[missing] = np.isnan(self.genotype[missing]).all(axis=1)
        return ~missing

    def policy(self, index: int) -> ElitePolicy:
        """The network of row `index`, ready to act."""
        if not self[index].has_policy:
            raise ValueError(
                f"row {index} has no policy: this archive holds those of {self.has_policy.sum():,} of its "
                f"{len(self):,} elites, the rows in archive.has_policy; archive.nearest(…, with_policy=True) looks "
                "among them"
            )
        if self._policy is None:
            raise ValueError(
                "this archive's policy is a module of the user's own, which a file cannot hold: "
                "give it again, load_archive(path, policy=…)"
            )
        return ElitePolicy(self._policy, self.genotype[index])

    def best(self, *, with_policy: bool = False) -> Elite:
        """The elite of highest fitness; `with_policy`: of those that have one."""
        rows = self._candidates(with_policy)
        return self[int(rows[np.argmax(self.fitness[rows])])]

    def nearest(self, descriptor: Any, *, with_policy: bool = False) -> Elite:
        """The elite whose descriptor is nearest, in units of the bounds; `with_policy`: of those that have one."""
        rows = self._candidates(with_policy)
        wanted = np.atleast_1d(np.asarray(descriptor, np.float64))
        if wanted.shape != self.low.shape or not np.isfinite(wanted).all():
            raise ValueError(f"expected a descriptor of {len(self.low)} finite numbers; got {descriptor!r}")
        offset = (self.descriptor[rows] - wanted) / (self.high - self.low)
        return self[int(rows[np.argmin((offset**2).sum(axis=1))])]

    def thinned(self, policies: int) -> "ArchiveView":
        """The archive with the policies of so many elites only, the best and others far apart: small when saved."""
        from ._thin import thinned  # which imports this module

        return thinned(self, policies)

    def with_policies(self) -> "ArchiveView":
        """The elites that have a policy; the cells of the others are empty."""
        from ._thin import with_policies  # which imports this module

        return with_policies(self)

    def to_dataframe(self, genotype: bool = False):
        """A pandas DataFrame (extra `analysis`), one row per elite.

        Columns: `cell`, `objective`, `measures_0…`, `operator`, `evaluation`, `first_filled`, `steps`, where there is
        one `source`, and with `genotype=True` also `solution_0…`.
        """
        from .analysis._optional import pandas

        return pandas().DataFrame(_tables.columns(self, genotype))

    def to_xarray(self):
        """An xarray Dataset (extra `analysis`) with the dimensions `elite`, `dimension` and `parameter`."""
        return _tables.dataset(self)

    def to_csv(self, path: str | os.PathLike, genotype: bool = False):
        """Writes the columns of `to_dataframe` to a CSV file; needs no extra."""
        _tables.write_csv(path, self, genotype)

    def plot(
        self,
        kind: Literal["map", "slices", "parallel", "ccdf"] = "map",
        *,
        out: str | os.PathLike | None = None,
        style: Literal["light", "dark", "transparent"] = "light",
    ) -> Any:
        """Draws the archive (extra `analysis`): a matplotlib figure, which a notebook shows; `out` is a file for it."""
        from .analysis import plot  # which imports this module

        return plot(self, kind, out=out, style=style)

    def save(self, path: str | os.PathLike, *, overwrite: bool = False):
        """Stores the archive in an HDF5 file that `load_archive` reads; `overwrite`: even in the place of another."""
        from ._files import save_archive  # which imports this module

        save_archive(path, self, overwrite)

    def rows(self) -> dict[str, np.ndarray]:
        """Every column at full length, a row per cell, filled or not; `operator` by its number in `operators`."""
        columns = {name: getattr(self, name) for name in COLUMNS} | {"operator": self.operator_number}
        if self.source is not None:
            columns["source"] = self.source
        return full_length(columns, self.cell, self.cells)

    def _candidates(self, with_policy: bool) -> Int[np.ndarray, " rows"]:
        """The rows to choose from, of which there is at least one."""
        if not len(self):
            raise ValueError("the archive is empty: no evaluation has entered it yet")
        if with_policy and not self.has_policy.any():
            raise ValueError(
                f"none of the archive's {len(self):,} elites has a policy: take the file of the run itself"
            )
        return np.flatnonzero(self.has_policy) if with_policy else np.arange(len(self))

    def __len__(self) -> int:
        return len(self.cell)

    def __getitem__(self, index: int) -> Elite:
        if not -len(self) <= index < len(self):
            raise IndexError(f"the archive has {len(self)} elites; there is no row {index}")
        return Elite(self, index % len(self))

    def __iter__(self) -> Iterator[Elite]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        best = f"{self.fitness.max():,.1f}" if len(self) else "none"
        kept = int(self.has_policy.sum())
        policies = f", {kept:,} of {len(self):,} elites with a policy" if kept < len(self) else ""
        return (
            f"ArchiveView({len(self):,} of {self.cells:,} cells filled ({100 * self.coverage:.1f} %), "
            f"QD score {self.qd_score:,.0f}, best {best}{policies})"
        )


def full_length(columns: dict[str, np.ndarray], cell: np.ndarray, cells: int) -> dict[str, np.ndarray]:
    """Columns of elites, each put into the row of its cell; the other rows are those of empty cells."""
    rows = {}
    for name, column in columns.items():
        rows[name] = np.full((cells, *column.shape[1:]), _BLANKS.get(name, 0), column.dtype)
        rows[name][cell] = column
    return rows


def view(
    archive: Archive,
    operators: tuple[str, ...],
    policy: AbstractPolicy | None,
    descriptor_names: tuple[str, ...] | None = None,
    *,
    problem: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
) -> ArchiveView:
    """A device archive, copied to the host; keepsakes stay where they are."""
    elites = archive.elites
    rows = {name: np.asarray(getattr(elites, name)) for name in COLUMNS if name != "first_filled"}
    rows["first_filled"] = np.asarray(archive.first_filled)
    return ArchiveView(
        rows,
        centroids=np.asarray(archive.centroids),
        low=np.asarray(archive.low),
        high=np.asarray(archive.high),
        operators=operators,
        policy=policy,
        descriptor_names=descriptor_names,
        problem=problem,
        about=about,
    )
