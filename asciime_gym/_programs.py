"""Traced programs, kept between processes: what was traced once starts again without its simulator being imported.

JAX keeps what it has compiled, but finds it by the program, which has to be traced first; with a robot in it that is
most of a start. So the program itself is kept, too, under a name made of all that tracing depends on: the arguments'
shapes and plain values, the devices, the settings of JAX, and the files of this package and of the simulator. Other
things that every start would make anew are kept beside them.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import export

from ._versions import version

PACKAGES = ("asciime_gym", "brax")  # whose files make a program
LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "mujoco", "mujoco-mjx")  # whose versions do
SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_threefry_partitionable",
)
_folder: Path | None = None  # where programs are kept, if they are


class Unnameable(Exception):
    """An argument that has no name that would mean the same in another process."""


def keep_in(folder: Path | None):
    """Keeps programs in this folder from now on; `None`: no longer."""
    global _folder
    _folder = folder


def name_of(function: Callable, args: tuple, target: str) -> str | None:
    """The name that a program of these arguments is kept under; `None` where programs are not, or this one cannot."""
    if _folder is None or jax.process_count() > 1:
        return None
    try:
        parts = [f"{function.__module__}.{function.__qualname__}", target, _describe(args), _surroundings()]
    except Unnameable:
        return None
    return f"{function.__name__}-{hashlib.sha256('|'.join(parts).encode()).hexdigest()}"


def program(name: str, function: Callable, args: tuple, like: Any, target: str, **options: Any) -> Callable:
    """A compiled `function` of arguments like `args` that returns a tree like `like`, traced only if none is kept."""
    assert _folder is not None
    file = _folder / f"{name}.program"
    exported = _read(file)
    if exported is None:
        exported = _trace(function, args, target)
        _write(file, exported)
    structure = jax.tree.structure(like)
    call = jax.jit(exported.call, **options)
    return lambda *args: jax.tree.unflatten(structure, call(*arrays(args)))


def is_array(x: Any) -> bool:
    """Whether an argument is data to a program, rather than part of it."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic))


def arrays(args: tuple) -> list[Any]:
    """The data among a program's arguments."""
    return [leaf for leaf in jax.tree.leaves(args) if is_array(leaf)]


def _trace(function: Callable, args: tuple, target: str) -> export.Exported:
    arrays, rest = eqx.partition(args, is_array)
    leaves, structure = jax.tree.flatten(arrays)

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(function(*eqx.combine(jax.tree.unflatten(structure, leaves), rest)))

    return export.export(jax.jit(flat), platforms=[target])(*leaves)


def _describe(x: Any) -> str:
    """What an argument is to a program: plain values themselves, shape and kind of arrays."""
    if is_array(x):
        return f"{x.dtype}{list(x.shape)}{getattr(x, 'weak_type', False)}"
    if x is None or type(x) in (bool, int, float, str):
        return repr(x)
    if isinstance(x, eqx.Module) and type(x).__module__.split(".")[0] == __package__:
        parts: dict[Any, Any] = {field.name: getattr(x, field.name) for field in dataclasses.fields(x)}
    elif isinstance(x, tuple) and hasattr(x, "_fields"):
        parts = x._asdict()  # type: ignore
    elif isinstance(x, dict) and type(x) is dict:
        parts = x
    elif isinstance(x, (tuple, list)) and type(x) in (tuple, list):
        parts = dict(enumerate(x))
    else:
        raise Unnameable(type(x).__name__)
    inside = ",".join(f"{name}={_describe(part)}" for name, part in parts.items())
    return f"{type(x).__module__}.{type(x).__qualname__}({inside})"


def _surroundings() -> str:
    settings = [f"{name}={getattr(jax.config, name)}" for name in SETTINGS]
    devices = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
    return f"{settings}{devices}{_sources()}"


@functools.cache
def _sources() -> str:
    """The code that makes programs: files by size and time, libraries by version."""
    files = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(place).rglob("*")):
                if path.suffix in (".py", ".xml"):
                    status = path.stat()
                    files.append(f"{package}/{path.relative_to(place)} {status.st_size} {status.st_mtime_ns}")
    return f"{files}{[f'{name} {version(name)}' for name in LIBRARIES]}"


def kept_bytes(name: str, make: Callable[[], bytes]) -> bytes:
    """What `make` returns, which depends on its name and the code alone: made once where programs are kept."""
    if _folder is None:
        return make()
    file = _folder / f"{name}-{hashlib.sha256(_sources().encode()).hexdigest()}.bytes"
    blob = _read_bytes(file)
    if blob is None:
        blob = make()
        _write_bytes(file, blob)
    return blob


def _read(file: Path) -> export.Exported | None:
    """The program in a file; `None` where there is none, or it is not as it was written."""
    try:
        blob = _read_bytes(file)
        return None if blob is None else export.deserialize(bytearray(blob))
    except Exception:  # whatever is wrong with a cache: do without
        return None


def _write(file: Path, exported: export.Exported):
    """Keeps a program; that it cannot be kept is no reason not to run it."""
    with contextlib.suppress(ImportError):
        _write_bytes(file, bytes(exported.serialize()))


def _read_bytes(file: Path) -> bytes | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    digest, blob = data[:32], data[32:]
    return blob if hashlib.sha256(blob).digest() == digest else None


def _write_bytes(file: Path, blob: bytes):
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with open(handle, "wb") as temporary:
                temporary.write(hashlib.sha256(blob).digest() + blob)
            os.replace(name, file)
        finally:
            Path(name).unlink(missing_ok=True)
