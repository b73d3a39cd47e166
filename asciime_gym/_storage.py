"""The HDF5 file: one file per run, written whole or not at all, and explaining itself."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np

from ._programs import version

FORMAT = "asciime_gym run"
SCHEMA = 1
_COMPRESSION: dict[str, Any] = {
    "compression": "gzip",
    "compression_opts": 1,
    "shuffle": True,
    "fletcher32": True,
}
_VERSIONS = ("asciime_gym", "jax", "brax", "equinox", "optax", "numpy", "h5py")
_DESCRIPTIONS = {
    "archive": "the map of elites; row i of every dataset belongs to cell i",
    "archive/centroids": "centre of each cell in descriptor space",
    "archive/low": "lower bound of the descriptor space",
    "archive/high": "upper bound of the descriptor space",
    "archive/first_filled": "evaluation at which the cell was first filled; -1: still empty",
    "archive/elites/genotype": "flat policy parameters; the attribute `policy` of the file gives them meaning",
    "archive/elites/fitness": "undiscounted return of the elite's episode; -inf: the cell is empty",
    "archive/elites/descriptor": "descriptor of the elite's episode",
    "archive/elites/operator": "what made the elite: position in the file's attribute `operators`; -1: empty",
    "archive/elites/evaluation": "evaluation at which the elite came in; -1: empty",
    "archive/elites/steps": "environment steps that the elite's episode lasted",
    "archive/elites/key": "random key of the elite's episode, as key data",
    "archive/elites/keepsake": "what the algorithm keeps of each elite's episode",
    "state": "the algorithm's own state, its buffer among it",
    "history": "one row per generation; evaluations, steps and seconds are totals",
    "run": "where the random numbers and the counters stand",
}


class FileError(Exception):
    """A file that cannot be used; the message names it, says what is wrong and what to do."""


def write_file(path: str | os.PathLike, attributes: dict[str, Any], groups: dict[str, Any]):
    """Writes trees of arrays, one group each, to a new file that takes the place of an old one in one step."""
    path = Path(path)
    with _replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["format"] = FORMAT
        file.attrs["schema"] = SCHEMA
        versions = {name: version(name) for name in _VERSIONS}
        file.attrs["versions"] = json.dumps(versions, sort_keys=True)
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, tree in groups.items():
            _write_tree(file.create_group(name), tree)
        file.visititems(_explain)


def _write_tree(group: h5py.Group, tree: Any):
    for place, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        options = _COMPRESSION if array.size > 1024 else {}
        group.create_dataset(_name(place), data=array, track_times=False, **options)


def _name(place: tuple) -> str:
    return "/".join(str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part)))) for part in place)


def _explain(name: str, item: h5py.Group | h5py.Dataset):
    if name in _DESCRIPTIONS:
        item.attrs["description"] = _DESCRIPTIONS[name]


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file in the same folder that is renamed to `path` if all goes well, and removed if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def open_file(path: str | os.PathLike) -> Iterator[h5py.File]:
    """Opens a file of ours for reading, and turns every way in which that fails into a `FileError`."""
    path = Path(path)
    if not path.exists():
        raise FileError(f"{path}: there is no such file")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise FileError(f"{path}: an HDF5 file, but not one of asciime_gym's (no format {FORMAT!r} in it)")
            if file.attrs.get("schema") != SCHEMA:
                raise FileError(
                    f"{path}: written with schema {file.attrs.get('schema')}; this version of asciime_gym reads "
                    f"schema {SCHEMA}. Open it with the version that wrote it: {file.attrs.get('versions')}"
                )
            yield file
    except FileError:
        raise
    except IsADirectoryError as error:
        raise FileError(f"{path}: a folder, not a file") from error
    except PermissionError as error:
        raise FileError(f"{path}: no permission to read it") from error
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise FileError(
            f"{path}: not a complete file of asciime_gym ({error}). If it was copied, copy it again; if a run was "
            "writing it, the last complete version is what the run's checkpoint path holds"
        ) from error


def read_tree(file: h5py.File, group: str, like: Any) -> Any:
    """A tree shaped like `like` from a group; shapes and kinds must agree."""

    def read(place, leaf):
        name = f"{group}/{_name(place)}"
        return read_dataset(file, name, tuple(leaf.shape), np.dtype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(read, like)


def read_dataset(
    file: h5py.File, name: str, shape: tuple[int | None, ...], dtype: np.dtype | type | None = None
) -> np.ndarray:
    """One dataset, refused unless its shape (None: any length) and kind are the expected ones."""
    item = file.get(name)
    if not isinstance(item, h5py.Dataset):
        raise FileError(f"{file.filename}: the dataset {name} is missing")
    fits = len(item.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, item.shape, strict=True)
    )
    if not fits or (dtype is not None and item.dtype != dtype):
        raise FileError(
            f"{file.filename}: the dataset {name} should have shape {shape} and type {dtype or 'any'}; "
            f"it has shape {item.shape} and type {item.dtype}"
        )
    return np.asarray(item[()])


def read_attribute(file: h5py.File, name: str, check: Callable[[Any], Any]) -> Any:
    """One attribute of the file, passed through `check`."""
    if name not in file.attrs:
        raise FileError(f"{file.filename}: the attribute {name} is missing")
    try:
        return check(file.attrs[name])
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{file.filename}: the attribute {name} is not usable ({error})") from error
