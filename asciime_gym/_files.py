"""What a run's file holds: an optimizer's run on the way out, an archive or a run on the way in."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import jax.numpy as jnp
import numpy as np

from . import _loop
from ._describe import (
    DescriptionError,
    describe_algorithm,
    describe_policy,
    describe_problem,
    make_algorithm,
    make_policy,
    make_problem,
)
from ._loop import AbstractAlgorithm, Run
from ._metrics import History
from ._policy import AbstractPolicy
from ._storage import FileError, open_file, read_attribute, read_dataset, read_tree, write_file
from ._view import ArchiveView
from .tasks._task import AbstractProblem

_ROWS = {
    "genotype": (np.float32, 2),
    "fitness": (np.float32, 1),
    "descriptor": (np.float32, 2),
    "operator": (np.int32, 1),
    "evaluation": (np.int32, 1),
    "steps": (np.int32, 1),
    "key": (np.uint32, 2),
}


class Saved(NamedTuple):
    """A run as it was stored."""

    algorithm: AbstractAlgorithm
    problem: AbstractProblem
    seed: int
    run: Run
    history: History


def save_run(path: str | os.PathLike, saved: Saved):
    """Stores a run so that it can go on exactly where it stood."""
    run = saved.run
    attributes = {
        "algorithm": describe_algorithm(saved.algorithm),
        "task": describe_problem(saved.problem),
        "policy": describe_policy(saved.problem.policy),
        "operators": json.dumps(_loop.operators(saved.algorithm)),
        "seed": saved.seed,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    counters = {
        "key": jax.random.key_data(run.key),
        "generation": run.generation,
        "evaluations": run.evaluations,
    }
    groups = {"archive": run.archive, "state": run.state, "history": saved.history.to_dict(), "run": counters}
    write_file(path, attributes, groups)


def load_run(
    path: str | os.PathLike,
    algorithm: AbstractAlgorithm | None = None,
    problem: AbstractProblem | None = None,
    policy: AbstractPolicy | None = None,
) -> Saved:
    """Reads a run back; what a file cannot hold is given by the caller, and checked against the file."""
    with open_file(path) as file:
        try:
            made = make_algorithm(read_attribute(file, "algorithm", str), algorithm)
            text = read_attribute(file, "policy", str)
            network = make_policy(text, policy or (problem and problem.policy))
            world = make_problem(read_attribute(file, "task", str), network, problem)
        except DescriptionError as error:
            raise FileError(f"{path}: {error}") from error
        seed = read_attribute(file, "seed", int)
        dims = len(world.descriptor_low)
        centroids = read_dataset(file, "archive/centroids", (None, dims), np.float32)
        like = jax.eval_shape(lambda: _loop.start(made, world, jnp.asarray(centroids), jnp.uint32(seed)))
        run = Run(
            archive=jax.tree.map(jax.device_put, read_tree(file, "archive", like.archive)),
            state=jax.tree.map(jax.device_put, read_tree(file, "state", like.state)),
            key=jax.random.wrap_key_data(jax.device_put(read_dataset(file, "run/key", (2,), np.uint32))),
            generation=jax.device_put(read_dataset(file, "run/generation", (), np.int32)),
            evaluations=jax.device_put(read_dataset(file, "run/evaluations", (), np.int32)),
        )
        history = _read_history(file, _loop.operators(made))
        if len(history) != int(run.generation):
            raise FileError(
                f"{path}: {len(history)} rows of history for {int(run.generation)} generations; the file is not whole"
            )
        return Saved(made, world, seed, run, history)


def load_archive(path: str | os.PathLike, *, policy: AbstractPolicy | None = None) -> ArchiveView:
    """The archive in a file, without the simulator, and without compiling anything.

    **Arguments:**

    - `path`: the file.
    - `policy`: the policy, where it is a module of the user's own; an `MLP` is described in the file.
    """
    with open_file(path) as file:
        elites = _read_rows(file)
        task: dict[str, Any] = read_attribute(file, "task", json.loads)
        text = read_attribute(file, "policy", str)
        try:
            network = make_policy(text, policy)
        except DescriptionError as error:
            if policy is not None:
                raise FileError(f"{path}: {error}") from error
            network = None  # asked for only by archive.policy(…), which then says so
        cells, dims = len(elites["fitness"]), len(task["descriptor_low"])
        names = task.get("descriptor_names")
        return ArchiveView(
            elites,
            centroids=read_dataset(file, "archive/centroids", (cells, dims), np.float32),
            low=read_dataset(file, "archive/low", (dims,), np.float32),
            high=read_dataset(file, "archive/high", (dims,), np.float32),
            operators=tuple(read_attribute(file, "operators", json.loads)),
            policy=network,
            descriptor_names=tuple(names) if names else None,
        )


def load_history(path: str | os.PathLike) -> History:
    """The history in a file."""
    with open_file(path) as file:
        return _read_history(file, tuple(read_attribute(file, "operators", json.loads)))


def file_info(path: str | os.PathLike) -> dict[str, Any]:
    """What a file says of itself: its attributes, parsed."""
    with open_file(path) as file:
        info = {name: read_attribute(file, name, json.loads) for name in ("algorithm", "task", "policy", "versions")}
        info |= {"seed": read_attribute(file, "seed", int), "written": read_attribute(file, "written", str)}
        return info | {"bytes": Path(path).stat().st_size}


def _read_rows(file: h5py.File) -> dict[str, np.ndarray]:
    cells = len(read_dataset(file, "archive/elites/fitness", (None,), np.float32))
    rows = {
        name: read_dataset(file, f"archive/elites/{name}", (cells, *(None,) * (ndim - 1)), dtype)
        for name, (dtype, ndim) in _ROWS.items()
    }
    rows["first_filled"] = read_dataset(file, "archive/first_filled", (cells,), np.int32)
    return rows


def _read_history(file: h5py.File, operators: tuple[str, ...]) -> History:
    history = History(operators)
    rows = len(read_dataset(file, "history/generation", (None,)))
    history.extend({name: read_dataset(file, f"history/{name}", (rows,)) for name in history.columns})
    return history
