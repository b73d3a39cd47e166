"""A file from a stranger, parsed by a process that may crash, hang or eat its memory, and that hands back a clean copy.

The copy holds the same plain attributes and datasets, written by this package; whoever loads it then makes the same
checks as of any other file.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from ._reading import EXPANSION, LARGEST, ROOM, open_file
from ._storage import BLOCK, FORMAT, FileError, Kind, write_file

SECONDS = 60  # and one for every 10 MB
TEXTS = ("algorithm", "task", "policy", "operators", "written", "about", "record")
NUMBERS = ("seed",)


@contextlib.contextmanager
def trusted(path: str | os.PathLike, untrusted: bool, only: Sequence[str] = ("",)) -> Iterator[Path]:
    """The file itself, or a clean copy of it, of names that begin so, that lives as long as the context."""
    path = Path(path)
    if not untrusted:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "clean.h5"
        _parse_elsewhere(path, copy, only)
        try:
            yield copy
        except FileError as error:
            raise FileError(str(error).replace(str(copy), str(path))) from None


def _parse_elsewhere(path: Path, copy: Path, only: Sequence[str]):
    try:
        size = path.stat().st_size
    except OSError as error:
        raise FileError(f"{path}: there is no such file, or it cannot be read ({error.strerror})") from error
    seconds = SECONDS + min(size, LARGEST) // 10**7
    # -P: nothing is imported from the folder that we happen to be in, which may be the stranger's, too.
    command = [
        sys.executable,
        "-P",
        "-m",
        "asciime_gym._untrusted",
        str(path.resolve()),
        str(copy),
        str(seconds),
        *only,
    ]
    home = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    options: Any = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, timeout=2 * seconds, env={**os.environ, "PYTHONPATH": home}, **options)
    except subprocess.TimeoutExpired:
        raise FileError(f"{path}: reading it took over {2 * seconds} s and was ended; do not use it") from None
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
    kinds = get_args(Kind)
    with open_file(path, *kinds) as reader:
        kind = next(kind for kind in kinds if FORMAT.format(kind) == reader.text("format"))
        attributes: dict[str, str | int] = {name: reader.text(name) for name in TEXTS if reader.has(name)}
        attributes |= {name: reader.number(name) for name in NUMBERS if reader.has(name)}
        arrays = {}
        for name in (name for name in reader.names() if name.startswith(tuple(only))):
            shape, dtype = reader.shape(name)
            arrays[name] = reader.array(name, shape, dtype)
        write_file(copy, kind, attributes, arrays)


def main() -> int:
    path, copy, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    try:
        limit(max(path.stat().st_size - BLOCK, 0), seconds)
        clean_copy(path, copy, sys.argv[4:] or ("",))
    except FileError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, MemoryError) as error:
        print(f"{path}: cannot be read within bounds ({type(error).__name__})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
