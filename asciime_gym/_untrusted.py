"""A file is parsed by a process that may crash, hang or eat its memory, and that hands back a clean copy.

A right digest says that a file is as somebody wrote it, not who that was, and HDF5 can be crashed by what it reads. So
HDF5 sees a file in this process only if this process wrote it. Any other is read in a small process with limits; it
copies plain attributes and datasets into a new file, which whoever loads it then checks as any other.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np

from ._reading import EXPANSION, LARGEST, ROOM, open_file, sealed
from ._storage import BLOCK, FileError, Kind, seal, written_here

SECONDS = 60  # and one for every 10 MB
TEXTS = ("format", "versions", "algorithm", "task", "policy", "operators", "written", "about", "record")
NUMBERS = ("schema", "seed")
# This package without its `__init__`: what is imported for HDF5 alone takes a fraction of a second.
_START = (
    "import sys, types; package = types.ModuleType('asciime_gym'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['asciime_gym'] = package; from asciime_gym._untrusted import main; sys.exit(main(*sys.argv[2:]))"
)


@contextlib.contextmanager
def trusted(path: str | os.PathLike, untrusted: bool | None, only: Sequence[str] = ("",)) -> Iterator[Path]:
    """The file itself, or a clean copy of it, of names that begin so, that lives as long as the context.

    `untrusted=None`: the file itself only if this process wrote it.
    """
    path = Path(path)
    digest, size = sealed(path)
    if untrusted is False or (untrusted is None and written_here(digest)):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "clean.h5"
        _parse_elsewhere(path, copy, size, only)
        try:
            yield copy
        except FileError as error:
            raise FileError(str(error).replace(str(copy), str(path))) from None


def _parse_elsewhere(path: Path, copy: Path, size: int, only: Sequence[str]):
    seconds = SECONDS + min(size, LARGEST) // 10**7
    arguments = [str(Path(__file__).parent), str(path.resolve()), str(copy), str(seconds), *only]
    # -P: nothing is imported from the folder that we happen to be in, which may be the stranger's, too.
    command = [sys.executable, "-P", "-c", _START, *arguments]
    options: Any = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, timeout=2 * seconds, **options)
    except subprocess.TimeoutExpired:
        raise FileError(f"{path}: reading it took over {2 * seconds} s and was ended; do not use it") from None
    except (OSError, TypeError, ValueError) as error:
        raise FileError(
            f"{path}: the process that would parse it cannot be started ({error}); if you trust whoever wrote it, "
            "untrusted=False parses it here"
        ) from error
    if done.returncode == 2:
        raise FileError(done.stderr.strip().splitlines()[-1].replace(str(path.resolve()), str(path)))
    if done.returncode:
        raise FileError(f"{path}: reading it crashed the process that tried to (exit {done.returncode}); do not use it")


def limit(size: int, seconds: int):
    """Bounds the memory and the time of this process from now on, where the system can."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = taken + ROOM + 2 * EXPANSION * size
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def clean_copy(path: Path, copy: Path, only: Sequence[str] = ("",)):
    """Writes what is plain in a file to another: the datasets whose names begin so."""
    image = io.BytesIO()
    with open_file(path, *get_args(Kind)) as reader, h5py.File(image, "w", userblock_size=BLOCK) as file:
        for name in filter(reader.has, TEXTS):
            file.attrs[name] = np.bytes_(reader.text(name).encode())
        for name in filter(reader.has, NUMBERS):
            file.attrs[name] = np.int64(reader.number(name))
        for name in (name for name in reader.names() if name.startswith(tuple(only))):
            reader.copy(name, file)
    seal(image)
    copy.write_bytes(image.getbuffer())


def main(path: str, copy: str, seconds: str, *only: str) -> int:
    try:
        limit(max(os.path.getsize(path) - BLOCK, 0), int(seconds))
        clean_copy(Path(path), Path(copy), only or ("",))
    except FileError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, MemoryError) as error:
        print(f"{path}: cannot be read within bounds ({type(error).__name__}: {error})", file=sys.stderr)
        return 2
    return 0
