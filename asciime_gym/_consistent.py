"""Whether what a file says fits together: the checks after reading, before anything is made of it."""

import re
from typing import Any

import jax
import numpy as np

from ._buffer import Buffer
from ._loop import OPERATOR_NAME
from ._reading import Reader

DIMENSIONS = 256  # most that a descriptor of ours has
NAME = re.compile(OPERATOR_NAME)
ROWS = {
    "genotype": (np.float32, 2),
    "fitness": (np.float32, 1),
    "descriptor": (np.float32, 2),
    "operator": (np.int32, 1),
    "evaluation": (np.int32, 1),
    "steps": (np.int32, 1),
    "key": (np.uint32, 2),
}


def read_operators(reader: Reader) -> tuple[str, ...]:
    """The names of the operators."""
    names = reader.listing("operators")
    if not 0 < len(names) <= 64 or not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
        raise reader.wrong("the attribute operators should list up to 64 plain names")
    return tuple(names)


def read_rows(reader: Reader) -> dict[str, np.ndarray]:
    """The archive's cells and elites, checked; keepsakes are left where they are."""
    cells = reader.shape("archive/elites/fitness")[0][:1]
    if not cells or not cells[0]:
        raise reader.wrong("the dataset archive/elites/fitness should have a row for each cell; it has none")
    rows = {
        name: reader.array(f"archive/elites/{name}", (cells[0], *(None,) * (ndim - 1)), dtype)
        for name, (dtype, ndim) in ROWS.items()
    }
    rows["first_filled"] = reader.array("archive/first_filled", cells, np.int32)
    if reader.has("archive/elites/source"):
        rows["source"] = reader.array("archive/elites/source", cells, np.int32)
    return rows


def read_space(reader: Reader, cells: int, dims: int) -> dict[str, np.ndarray]:
    """Centroids and bounds, checked."""
    if not 0 < dims <= DIMENSIONS:
        raise reader.wrong(f"descriptors of {dims} dimensions; at least 1 and at most {DIMENSIONS} are known")
    shapes = {"centroids": (cells, dims), "low": (dims,), "high": (dims,)}
    space = {name: reader.array(f"archive/{name}", shape, np.float32) for name, shape in shapes.items()}
    for name, values in space.items():
        check_finite(reader, f"archive/{name}", values)
    if not (space["low"] < space["high"]).all():
        raise reader.wrong("archive/low should be below archive/high in every dimension")
    return space


def check_finite(reader: Reader, name: str, values: np.ndarray):
    """Numbers are finite wherever they are not said to be otherwise."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise reader.wrong(f"{name} holds numbers that are not finite")


def check_archive(
    reader: Reader, rows: dict[str, np.ndarray], space: dict[str, np.ndarray], operators: int, *, thin: bool = False
):
    """An empty cell is empty in every column; an elite stands in the cell of its descriptor.

    `thin`: genotypes of elites may be missing, which are NaN throughout then.
    """
    fitness, filled = rows["fitness"], rows["fitness"] > -np.inf
    check_finite(reader, "archive/elites/fitness", fitness[~np.isneginf(fitness)])
    check_finite(reader, "archive/elites/descriptor", rows["descriptor"])
    check_finite(reader, "archive/elites/genotype", _stored(rows["genotype"], filled) if thin else rows["genotype"])
    limits = {"operator": operators, "evaluation": None, "first_filled": None, "source": None}
    for name in limits.keys() & rows.keys():
        values, most = rows[name], limits[name]
        if ((values >= 0) != filled).any() or (values < -1).any() or (most is not None and (values >= most).any()):
            raise reader.wrong(f"the column {name} of the archive does not fit its fitness")
    if "source" not in rows and (rows["first_filled"] > rows["evaluation"]).any():
        raise reader.wrong("a cell of the archive was filled after its elite came in")
    if (rows["steps"] < 0).any():
        raise reader.wrong("archive/elites/steps should be at least 0")
    low, width = space["low"], space["high"] - space["low"]
    unit = lambda points: np.clip((points.astype(np.float64) - low) / width, 0, 1)
    centres, places = unit(space["centroids"]), unit(rows["descriptor"][filled])
    own = np.linalg.norm(places - centres[filled], axis=1)
    # In many dimensions the search is slow, and the more so the more cells a stranger asks for.
    bearable = len(low) <= 8 or len(centres) * len(places) * len(low) < 2**28
    if not len(own) or not bearable:
        return
    from scipy.spatial import KDTree  # takes a while, and a run that reads no file does not need it

    if (own > KDTree(centres).query(places)[0] + 1e-4).any():
        raise reader.wrong("an elite of the archive does not stand in the cell of its descriptor")


def _stored(genotype: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """The genotypes without those of elites that are NaN throughout."""
    missing = filled & np.isnan(genotype[:, :1]).any(axis=1)
    missing[missing] = np.isnan(genotype[missing]).all(axis=1)
    return genotype[~missing] if missing.any() else genotype


def check_buffers(reader: Reader, state: Any):
    """Positions in the buffers of an algorithm's state are in them."""
    for buffer in jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Buffer)):
        if isinstance(buffer, Buffer):
            capacity = len(jax.tree.leaves(buffer.items)[0])
            if not (0 <= buffer.cursor < capacity and 0 <= buffer.count <= capacity):
                raise reader.wrong(f"cursor and count of a buffer in state should be within its {capacity} rows")


def check_history(reader: Reader, columns: dict[str, np.ndarray]):
    """Totals never fall, and what is not finite is the best of an empty archive."""
    for name, values in columns.items():
        known = values if name != "max_fitness" else values[columns["coverage"] > 0]
        check_finite(reader, f"history/{name}", known)
    if not (columns["generation"] == np.arange(len(columns["generation"]))).all():
        raise reader.wrong("history/generation should count from 0")
    for name in ("evaluations", "steps", "seconds"):
        if (np.diff(columns[name]) < 0).any():
            raise reader.wrong(f"history/{name} is a total and should never fall")


def check_run(reader: Reader, columns: dict[str, np.ndarray], generation: int, evaluations: int, filled: np.ndarray):
    """The counters, the history and the archive tell of the same run."""
    count = len(columns["generation"])
    if count != generation:
        raise reader.wrong(f"{count} rows of history for {generation} generations; the file is not whole")
    last = int(columns["evaluations"][-1]) if count else 0
    if last != evaluations:
        raise reader.wrong(f"the history ends at {last} evaluations, the run at {evaluations}")
    if count and abs(float(columns["coverage"][-1]) - filled.mean()) > 1e-5:
        raise reader.wrong("the history ends with another coverage than the archive has")
