"""What a file holds: an optimizer's run or an archive on the way out, the same or a part of it on the way in."""

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _loop
from ._atomic import Lock
from ._consistent import (
    ROWS,
    check_archive,
    check_buffers,
    check_finite,
    check_history,
    check_run,
    read_operators,
    read_rows,
    read_space,
)
from ._describe import (
    CUSTOM,
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
from ._reading import Reader, open_file, sealed, short
from ._storage import FORMAT, write_file
from ._trajectories import Part, parts_from, parts_to_arrays
from ._untrusted import trusted
from ._versions import versions
from ._view import ArchiveView
from .tasks._task import AbstractProblem

ARCHIVE = ("archive/centroids", "archive/low", "archive/high", "archive/first_filled", "archive/elites/")


class Origin(NamedTuple):
    """The run that an archive comes from."""

    algorithm: str  # its description
    seed: int
    history: History


class Saved(NamedTuple):
    """A run as it was stored."""

    algorithm: AbstractAlgorithm
    problem: AbstractProblem
    seed: int
    run: Run
    history: History
    parts: tuple[Part, ...] = ()  # files of recorded trajectories


def trimmed(saved: Saved) -> Saved:
    """The run with no more room in it than what was spent so far needs: so it is stored."""
    run = saved.run
    state = saved.algorithm.room(saved.problem, run.state, int(run.evaluations))
    return saved._replace(run=dataclasses.replace(run, state=state))


def save_run(path: str | os.PathLike, saved: Saved):
    """Stores a run so that it can go on exactly where it stood."""
    run = saved.run
    names = getattr(saved.problem, "descriptor_names", None)
    attributes: dict[str, str | int] = {
        "algorithm": describe_algorithm(saved.algorithm),
        "task": describe_problem(saved.problem),
        "policy": describe_policy(saved.problem.policy),
        "operators": json.dumps(_loop.operators(saved.algorithm)),
        "seed": saved.seed,
        "written": _now(),
    }
    counters = {"key": run.key, "generation": run.generation, "evaluations": run.evaluations}
    groups = {"archive": run.archive, "state": run.state, "history": saved.history.to_dict(), "run": counters}
    arrays = {name: leaf for group, tree in groups.items() for name, leaf in _named(group, tree)}
    scales = _scales(len(arrays["archive/centroids"]), saved.problem.descriptor_size, names)
    write_file(path, "run", attributes, arrays | scales | parts_to_arrays(saved.parts))


def save_archive(path: str | os.PathLike, archive: ArchiveView, overwrite: bool = False, origin: Origin | None = None):
    """Stores an archive alone, as merging or evaluating again makes one, or with the past of the run that made it;
    `load_archive` reads it like any other."""
    if Path(path).exists() and not overwrite:
        raise FileExistsError(
            f"{path} is there already, perhaps with a run in it; choose another name, or overwrite=True"
        )
    policy = archive._policy
    size = archive.genotype.shape[1]
    custom = archive.policy_description or json.dumps({"kind": CUSTOM, "type": "unknown", "size": size})
    problem = archive.problem or {
        "kind": CUSTOM,
        "name": "unknown",
        "descriptor_low": archive.low.tolist(),
        "descriptor_high": archive.high.tolist(),
    }
    attributes: dict[str, str | int] = {
        "task": json.dumps({**problem, "descriptor_names": archive.descriptor_names}, sort_keys=True),
        "policy": custom if policy is None else describe_policy(policy),
        "operators": json.dumps(archive.operators),
        "about": json.dumps(archive.about or {}, sort_keys=True),
        "written": _now(),
    }
    past: list[tuple[str, np.ndarray]] = []
    if origin is not None:
        attributes |= {"algorithm": origin.algorithm, "seed": origin.seed}
        past = _named("history", origin.history.to_dict())
    rows = archive.rows()
    arrays = {f"archive/elites/{name}": rows[name] for name in (*ROWS, "source") if name in rows}
    arrays["archive/first_filled"] = rows["first_filled"]
    arrays |= {f"archive/{name}": getattr(archive, name) for name in ("centroids", "low", "high")}
    scales = _scales(archive.cells, len(archive.low), archive.descriptor_names)
    with Lock(path):
        write_file(path, "archive", attributes, arrays | scales | dict(past))


def load_run(
    path: str | os.PathLike,
    algorithm: AbstractAlgorithm | None = None,
    problem: AbstractProblem | None = None,
    policy: AbstractPolicy | None = None,
    allow_changes: bool = False,
    untrusted: bool | None = None,
) -> Saved:
    """Reads a run back; what a file cannot hold is given by the caller, and checked against the file."""
    with trusted(path, untrusted) as file, open_file(file, "run") as reader:
        make = lambda maker, name, *args: _described(reader, maker, name, *args)
        made = make(make_algorithm, "algorithm", algorithm, allow_changes)
        network = make(make_policy, "policy", policy or (problem and problem.policy))
        world = make(make_problem, "task", network, problem, allow_changes)
        _same_versions(reader)
        seed = reader.number("seed")
        if not 0 <= seed < 2**32:
            raise reader.wrong(f"the attribute seed should be from 0 to {2**32 - 1}; it is {seed}")
        operators = _loop.operators(made)
        if read_operators(reader) != operators:
            raise reader.wrong(f"its operators should be those of {made.name}: {', '.join(operators)}")
        rows = read_rows(reader)
        space = read_space(reader, len(rows["fitness"]), world.descriptor_size)
        check_archive(reader, rows, space, len(operators))
        run = _read_run(reader, made, world, rows | space)
        if not np.array_equal(run_key(run), run_key(jax.random.key(seed))):
            raise reader.wrong(f"run/key is not the key of its seed, {seed}")
        history = _read_history(reader, operators)
        filled = rows["fitness"] > -np.inf
        check_run(reader, history.to_dict(), int(run.generation), int(run.evaluations), filled)
        return Saved(made, world, seed, run, history, tuple(parts_from(reader)))


def load_archive(
    path: str | os.PathLike, *, policy: AbstractPolicy | None = None, untrusted: bool | None = None
) -> ArchiveView:
    """The archive in a file, without the simulator, and without compiling anything.

    Small files have the policies of some elites only: `archive.has_policy` says of which rows.

    **Arguments:**

    - `path`: the file.
    - `policy`: the policy, where it is a module of the user's own; an `MLP` is described in the file.
    - `untrusted`: whether the file is parsed by another process, with limits on memory and time, so that nothing in
      it can harm this one; by default any file is that this process did not write. `False` spares a fraction of a
      second.
    """
    with trusted(path, untrusted, ARCHIVE) as file, open_file(file, "run", "archive") as reader:
        task, text, operators = reader.record("task"), reader.text("policy"), read_operators(reader)
        rows = read_rows(reader)
        network = _network(reader, policy, rows["genotype"].shape[1])
        space = read_space(reader, len(rows["fitness"]), rows["descriptor"].shape[1])
        alone = reader.text("format") == FORMAT.format("archive")  # a run needs all of its policies to go on
        check_archive(reader, rows, space, len(operators), thin=alone)
        names = task.get("descriptor_names")
        known = isinstance(names, list) and len(names) == len(space["low"]) and all(isinstance(n, str) for n in names)
        archive = ArchiveView(
            rows,
            **space,
            operators=operators,
            policy=network,
            descriptor_names=tuple(map(str, names or ())) if known else None,
            problem=task,
            about=reader.record("about") if reader.has("about") else None,
        )
        archive.policy_description = text
        return archive


def load_history(path: str | os.PathLike, *, untrusted: bool | None = None) -> History:
    """The history in a run's file, or in a small one that `shrink` made of it."""
    with trusted(path, untrusted, ("history/",)) as file, open_file(file, "run", "archive") as reader:
        return _past(reader)


def load_origin(path: str | os.PathLike, *, untrusted: bool | None = None) -> Origin:
    """The algorithm, seed and history of a run's file, or of a small one."""
    with trusted(path, untrusted, ("history/",)) as file, open_file(file, "run", "archive") as reader:
        history = _past(reader)
        reader.record("algorithm")
        return Origin(reader.text("algorithm"), reader.number("seed"), history)


def file_info(path: str | os.PathLike) -> dict[str, Any]:
    """What a file says of itself: its attributes, parsed, and the sizes of its parts."""
    only = ("trajectories/", "history/generation")
    with trusted(path, None, only) as file, open_file(file, "run", "archive") as reader:
        records = ("algorithm", "task", "policy", "versions", "about")
        info: dict[str, Any] = {name: reader.record(name) for name in records if reader.has(name)}
        info |= {"seed": reader.number("seed")} if reader.has("seed") else {}
        return info | {
            "format": reader.text("format"),
            "schema": reader.number("schema"),
            "written": reader.text("written"),
            "digest": sealed(path)[0],
            "bytes": Path(path).stat().st_size,
            "history": reader.has("history"),
            "parts": parts_from(reader),
        }


def run_key(key: Any) -> np.ndarray:
    """The data of a random key, or of a run's."""
    return np.asarray(jax.random.key_data(getattr(key, "key", key)))


def _read_run(
    reader: Reader, algorithm: AbstractAlgorithm, world: AbstractProblem, known: dict[str, np.ndarray]
) -> Run:
    """The run, each part of it shaped as this algorithm and problem would make it."""
    centroids, seed = jnp.asarray(known["centroids"]), jnp.uint32(0)
    spent = int(reader.array("run/evaluations", (), np.int32))

    def blank() -> Run:
        run = _loop.start(algorithm, world, centroids, seed)
        return dataclasses.replace(run, state=algorithm.room(world, run.state, spent))

    try:
        like = jax.eval_shape(blank)
    except Exception as error:
        raise reader.wrong(f"its algorithm and task do not go together ({short(error)})") from error

    def read(place: tuple, leaf: Any) -> np.ndarray:
        name = _name(place)
        shape, dtype = (like_key.shape, np.uint32) if _is_key(leaf) else (leaf.shape, leaf.dtype)
        values = known.get(name.rpartition("/")[2]) if name.startswith("archive/") and "keepsake" not in name else None
        if values is None or values.shape != tuple(shape):
            values = reader.array(name, tuple(shape), np.dtype(dtype))
        check_finite(reader, name, values) if not name.endswith("/fitness") else None
        return values

    like_key = jax.eval_shape(jax.random.key_data, like.key)
    reader.allow(sum(leaf.size * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves((like.archive, like.state))))
    run = jax.tree_util.tree_map_with_path(read, _Groups(like.archive, like.state, _counters(like)))
    key, generation, evaluations = (run.run[name] for name in ("key", "generation", "evaluations"))
    if min(generation, evaluations) < 0:
        raise reader.wrong("its counters should be at least 0")
    check_buffers(reader, run.state)
    put = lambda tree: jax.tree.map(jax.device_put, tree)
    return Run(
        archive=put(run.archive),
        state=put(run.state),
        key=jax.random.wrap_key_data(jax.device_put(key)),
        generation=put(generation),
        evaluations=put(evaluations),
    )


class _Groups(NamedTuple):
    """The groups of a file that make a run."""

    archive: Any
    state: Any
    run: Any


def _counters(run: Run) -> dict[str, Any]:
    return {"key": run.key, "generation": run.generation, "evaluations": run.evaluations}


def _same_versions(reader: Reader):
    """Warns where the same seed need not give the same bits any more."""
    stored, now = reader.record("versions"), json.loads(versions())
    changed = [f"{name} {stored.get(name)} → {now[name]}" for name in ("jax", "brax") if stored.get(name) != now[name]]
    if changed:
        text = f"{reader.path}: written with other versions ({', '.join(changed)}): it goes on, but may round otherwise"
        warnings.warn(text, UserWarning, stacklevel=4)


def _described(reader: Reader, maker: Callable, name: str, *args: Any) -> Any:
    text = reader.text(name)
    reader.record(name)
    try:
        return maker(text, *args)
    except DescriptionError as error:
        raise reader.wrong(str(error)) from error
    except Exception as error:  # whatever a description may contain
        raise reader.wrong(f"the attribute {name} does not describe what it should ({short(error)})") from error


def _network(reader: Reader, given: AbstractPolicy | None, size: int) -> AbstractPolicy | None:
    if given is None and reader.record("policy").get("kind") == CUSTOM:
        return None  # asked for only by archive.policy(…), which then says so
    network = _described(reader, make_policy, "policy", given)
    if network.size != size:
        raise reader.wrong(f"its genotypes have {size:,} parameters, its policy needs {network.size:,}")
    return network


def _past(reader: Reader) -> History:
    if not reader.has("history"):
        raise reader.wrong("it holds no history; take the file of a run, or one that `shrink` made of it")
    return _read_history(reader, read_operators(reader))


def _read_history(reader: Reader, operators: tuple[str, ...]) -> History:
    history = History(operators)
    rows = reader.shape("history/generation")[0]
    if len(rows) != 1:
        raise reader.wrong("history/generation should be a column")
    columns = {name: reader.array(f"history/{name}", rows, history.kind(name)) for name in history.columns}
    check_history(reader, columns)
    history.extend(columns)
    return history


def _named(group: str, tree: Any) -> list[tuple[str, np.ndarray]]:
    """The leaves of a tree with their places in a file."""
    pairs = jax.tree_util.tree_leaves_with_path({group: tree})
    return [(_name(place), np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)) for place, leaf in pairs]


def _name(place: Sequence[Any]) -> str:
    return "/".join(str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part)))) for part in place)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _scales(cells: int, dims: int, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """The numbers and names along the archive's axes."""
    words = [name.encode() for name in names or [f"descriptor {i}" for i in range(dims)]]
    return {"archive/cell": np.arange(cells, dtype=np.int32), "archive/dimension": np.array(words, "S")}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
