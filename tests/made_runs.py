"""Files of runs that nobody ran: whatever history and archive a test wants them to have."""

import json
from pathlib import Path

import numpy as np

import asciime_gym as ag
from asciime_gym._archive import cvt_centroids
from asciime_gym._metrics import History
from asciime_gym._storage import write_file

OPERATORS = {"ascii_me": ("initial", "iso_line", "ascii"), "map_elites": ("initial", "iso_line")}
BOUNDS = {1: (0.0, 1.0), 2: (-30.0, 30.0), 3: (0.0, 1.0), 4: (0.0, 1.0), 5: (0.0, 1.0)}
NAMES = {2: ["final x (m)", "final y (m)"]}
_CENTROIDS: dict = {}


def centroids_of(cells: int, dims: int) -> np.ndarray:
    """The centres that an optimizer would use, made once."""
    if (cells, dims) not in _CENTROIDS:
        low, high = BOUNDS[dims]
        _CENTROIDS[cells, dims] = cvt_centroids(cells, (low,) * dims, (high,) * dims)
    return _CENTROIDS[cells, dims]


def rows_of(cells: int, dims: int, fitness=None, seed: int = 0, operators: int = 3) -> dict[str, np.ndarray]:
    """Rows of an archive whose cells have these fitnesses (-inf: empty), each elite at its cell's centre."""
    random = np.random.default_rng(seed)
    if fitness is None:
        fitness = random.gamma(8, 40, cells)
        fitness[random.random(cells) < 0.25] = -np.inf
    fitness = np.float32(fitness)
    return {
        "genotype": random.normal(size=(cells, 2)).astype(np.float32),
        "fitness": fitness,
        "descriptor": centroids_of(cells, dims),
        "operator": np.where(fitness > -np.inf, random.integers(0, operators, cells), -1).astype(np.int32),
        "evaluation": np.where(fitness > -np.inf, 1, -1).astype(np.int32),
        "first_filled": np.where(fitness > -np.inf, 1, -1).astype(np.int32),
        "steps": np.full(cells, 250, np.int32),
        "key": np.zeros((cells, 2), np.uint32),
    }


def archive_of(dims: int, cells: int = 64, fitness=None, seed: int = 0, **options) -> ag.ArchiveView:
    """An archive of so many dimensions."""
    low, high = BOUNDS[dims]
    return ag.ArchiveView(
        rows_of(cells, dims, fitness, seed),
        centroids=centroids_of(cells, dims),
        low=np.full(dims, low, np.float32),
        high=np.full(dims, high, np.float32),
        operators=OPERATORS["ascii_me"],
        policy=None,
        descriptor_names=tuple(NAMES.get(dims) or [f"contact rate of foot {i + 1}" for i in range(dims)]),
        **options,
    )


def history_of(operators=OPERATORS["ascii_me"], **columns) -> History:
    """A history with these columns, the others filled with what fits."""
    evaluations = np.asarray(columns["evaluations"], np.int64)
    count = len(evaluations)
    filled = {
        "generation": np.arange(count),
        "evaluations": evaluations,
        "steps": 250 * evaluations,
        "seconds": evaluations / 100,
        "qd_score": np.linspace(0, 1000, count),
        "coverage": np.linspace(0.1, 0.9, count),
        "max_fitness": np.linspace(1, 100, count),
        "refused": np.zeros(count),
    }
    filled |= {f"added_{name}": np.full(count, 2 + i) for i, name in enumerate(operators)} | columns
    history = History(operators)
    history.extend({name: np.asarray(filled[name]).astype(history.kind(name)) for name in history.columns})
    return history


def write_run(
    path: Path,
    task: str = "hopper_uni",
    algorithm: str = "ascii_me",
    seed: int = 0,
    batch_size: int = 64,
    dims: int = 1,
    cells: int = 64,
    fitness=None,
    settings: dict | None = None,
    world: dict | None = None,
    **columns,
) -> Path:
    """Writes the file of a run, without the state that going on would need."""
    operators = OPERATORS.get(algorithm, ("initial", "iso_line", "policy_gradient", "actor_injection"))
    low, high = BOUNDS[dims]
    about = {"kind": "custom", "name": task, "backend": "spring", "episode_length": 250}
    about |= {"descriptor_low": [low] * dims, "descriptor_high": [high] * dims}
    about["descriptor_names"] = NAMES.get(dims) or [f"contact rate of foot {i + 1}" for i in range(dims)]
    attributes = {
        "algorithm": json.dumps({"name": algorithm, "batch_size": batch_size, **(settings or {})}),
        "task": json.dumps(about | (world or {})),
        "policy": json.dumps({"kind": "custom", "type": "made", "size": 2}),
        "operators": json.dumps(operators),
        "seed": seed,
        "written": "2026-01-01T00:00:00+00:00",
    }
    history = history_of(operators, **columns) if columns else None
    if history is None:
        del attributes["algorithm"], attributes["seed"]
    rows = rows_of(cells, dims, fitness, seed, len(operators))
    arrays = {f"archive/elites/{name}": values for name, values in rows.items() if name != "first_filled"}
    arrays |= {"archive/first_filled": rows["first_filled"], "archive/centroids": centroids_of(cells, dims)}
    arrays |= {"archive/low": np.full(dims, low, np.float32), "archive/high": np.full(dims, high, np.float32)}
    arrays |= {f"history/{name}": values for name, values in (history.to_dict() if history else {}).items()}
    write_file(path, "archive" if history is None else "run", attributes, arrays)
    return path
