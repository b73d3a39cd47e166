"""What a run is measured by, generation after generation."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._archive import Archive


def qd_score(archive: Archive) -> Float[Array, ""]:
    """The sum of fitness over filled cells."""
    return jnp.sum(archive.elites.fitness, where=archive.filled)


def coverage(archive: Archive) -> Float[Array, ""]:
    """The fraction of cells that are filled."""
    return jnp.mean(archive.filled)


def max_fitness(archive: Archive) -> Float[Array, ""]:
    """The best elite's fitness; -inf in an empty archive."""
    return jnp.max(archive.elites.fitness)


class Record(eqx.Module):
    """The scalars of one generation, or of several with a leading axis, as they leave the device."""

    evaluations: Int[Array, "*generations"]  # spent so far
    steps: Int[Array, "*generations"]  # of this generation
    qd_score: Float[Array, "*generations"]
    coverage: Float[Array, "*generations"]
    max_fitness: Float[Array, "*generations"]
    added: Int[Array, "*generations operators"]  # rows that entered the archive, by operator
    refused: Int[Array, "*generations"]  # rows that were not finite


class History:
    """One row per generation; `history["qd_score"]` is a NumPy column.

    `evaluations`, `steps` and `seconds` are totals up to that generation, `refused` and `added_…` (rows that
    entered the archive, by operator) belong to the generation alone. Under `fit`, `seconds` leave compilation out;
    by hand they run from `ask` to the end of `tell`.
    """

    _TYPES = {  # noqa: RUF012
        "generation": np.int64,
        "evaluations": np.int64,
        "steps": np.int64,
        "seconds": np.float64,
        "qd_score": np.float32,
        "coverage": np.float32,
        "max_fitness": np.float32,
        "refused": np.int64,
    }

    def __init__(self, operators: tuple[str, ...]):
        self.operators = operators
        self._rows: list[tuple] = []

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self._TYPES, *(f"added_{name}" for name in self.operators))

    def kind(self, column: str) -> type:
        """The type of a column's numbers."""
        return self._TYPES.get(column, np.int64)

    def append(self, record: Record, seconds: float):
        """Adds a generation that ended `seconds` after the run's first began."""
        before = self._rows[-1][2] if self._rows else 0
        self._rows.append(
            (
                len(self._rows),
                int(record.evaluations),
                before + int(record.steps),
                float(seconds),
                np.float32(record.qd_score),
                np.float32(record.coverage),
                np.float32(record.max_fitness),
                int(record.refused),
                *(int(n) for n in np.asarray(record.added)),
            )
        )

    def extend(self, columns: dict[str, np.ndarray]):
        """Adds stored rows, given as columns."""
        self._rows += zip(*(columns[name].tolist() for name in self.columns), strict=True)

    def copy(self) -> "History":
        """The rows so far; it does not grow with the run."""
        copied = History(self.operators)
        copied._rows = list(self._rows)
        return copied

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in self.columns:
            raise KeyError(f"history has no column {column!r}; it has {list(self.columns)}")
        place = self.columns.index(column)
        return np.array([row[place] for row in self._rows], self.kind(column))

    def last(self) -> dict[str, float]:
        """The newest row by column name; empty before the first generation."""
        return dict(zip(self.columns, self._rows[-1], strict=True)) if self._rows else {}

    def to_dict(self) -> dict[str, np.ndarray]:
        return {column: self[column] for column in self.columns}

    def to_dataframe(self):
        """The history as a pandas DataFrame (extra `analysis`)."""
        from .analysis._optional import pandas

        return pandas().DataFrame(self.to_dict())

    def __repr__(self) -> str:
        if not self._rows:
            return "History(no generation yet)"
        last = self.last()
        return (
            f"History({len(self)} generations, {last['evaluations']:,} evaluations, "
            f"QD score {last['qd_score']:,.0f}, coverage {100 * last['coverage']:.1f} %, "
            f"best {last['max_fitness']:,.1f})"
        )
