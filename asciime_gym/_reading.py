"""The HDF5 file as it is read: by somebody who does not trust it.

HDF5 protects a reader from nothing: flipped bytes are read as they are or crash the interpreter, links lead to other
files, and a small file may ask for all of the memory. So the digest of a file is checked before HDF5 sees it, and
then only what is plain is touched: names that the caller knows, hard links, numbers and strings of fixed length, three
well-known filters, and sizes that fit the caller's idea of them, the file's own size, and a budget.
"""

import contextlib
import functools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from ._chunks import FILTERS, copy, unpacked
from ._storage import BLOCK, FORMAT, SCHEMA, SEAL, FileError, Kind, contents_digest

LARGEST = 64 * 2**30  # bytes of a file
ROOM = 2**30  # bytes that may be asked for beyond a few times the size of the file
EXPANSION = 8  # times the file's size that may be
DEFLATE = 1100  # the most that deflate can shrink data
CHUNK = 2**26  # bytes of a chunk
SENTENCE = 1000  # letters of an error
TEXT = 2**16  # bytes of an attribute
OBJECTS, DEPTH = 1000, 8  # names in a file, and parts of a name
LAYOUTS = {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED}
SIGNATURE = b"\x89HDF\r\n\x1a\n"
AGAIN = "if it was copied, copy it again; else use an earlier copy of it"
_SEAL = re.compile(SEAL.format(digest="([0-9a-f]{64})", size="([0-9]{1,15})").encode() + rb"\0*")

Shape = tuple[int | None, ...]


def _guarded(method: Callable) -> Callable:
    """A reader's method whose every failure is a `FileError` that names the file and the place in it."""

    @functools.wraps(method)
    def call(self: "Reader", name: str = "", *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, name, *args, **kwargs) if name else method(self)
        except FileError:
            raise
        except Exception as error:  # HDF5 has many ways to stumble
            raise self.wrong(f"{name or 'its contents'} cannot be read ({short(error)}); {AGAIN}") from error

    return call


class Reader:
    """An open file; every method either returns what it was asked for or raises `FileError`."""

    def __init__(self, path: Path, file: h5py.File, digest: str, size: int):
        self.path, self.digest, self.size = path, digest, size
        self._file = file
        self._room = ROOM + EXPANSION * size

    def allow(self, size: int):
        """Lets that many more bytes be read: what the file's own hyperparameters justify."""
        self._room += size

    def wrong(self, what: str) -> FileError:
        """An error about this file; what the file says may be long."""
        return FileError(f"{self.path}: {what if len(what) < SENTENCE else what[:SENTENCE] + '…'}")

    @_guarded
    def text(self, name: str) -> str:
        """A text that the file says of itself."""
        value = self._attribute(name)
        if not isinstance(value, bytes):
            raise self.wrong(f"the attribute {name} should be text; it is the number {value}")
        return value.decode()

    @_guarded
    def number(self, name: str) -> int:
        """A whole number that the file says of itself."""
        value = self._attribute(name)
        if not isinstance(value, int):
            raise self.wrong(f"the attribute {name} should be a whole number; it is text")
        return value

    def record(self, name: str) -> dict[str, Any]:
        """What a text of JSON says, which is a mapping."""
        return self._json(name, dict)

    def listing(self, name: str) -> list[Any]:
        """What a text of JSON says, which is a list."""
        return self._json(name, list)

    def has(self, name: str) -> bool:
        """Whether there is an attribute, or a dataset or group, of this name."""
        with contextlib.suppress(Exception):
            return name in self._file.attrs or name in self._file
        return False

    @_guarded
    def array(self, name: str, shape: Shape, dtype: Any) -> np.ndarray:
        """A whole dataset, refused unless its shape (None: any length) and type are the expected ones."""
        dataset = self._dataset(name, shape, dtype)
        self._afford(name, dataset.shape, dataset.dtype)
        return self._as(unpacked(dataset, 0, len(dataset)) if dataset.shape else dataset[()], name, dtype)

    @_guarded
    def rows(self, name: str, start: int, stop: int, shape: Shape, dtype: Any) -> np.ndarray:
        """Rows of a dataset; no other chunks are read than theirs."""
        dataset = self._dataset(name, shape, dtype)
        if not 0 <= start <= stop <= len(dataset):
            raise self.wrong(f"{name} has {len(dataset)} rows; there are no rows {start} to {stop}; {AGAIN}")
        self._afford(name, (stop - start, *dataset.shape[1:]), dataset.dtype, once=False)
        return self._as(unpacked(dataset, start, stop), name, dtype)

    @_guarded
    def names(self) -> list[str]:
        """The names of all datasets; hard links only."""
        found: list[str] = []

        def visit(group: h5py.Group, prefix: str, depth: int):
            if len(group) > OBJECTS or depth > DEPTH:
                raise self.wrong(f"{prefix or 'the file'} holds more than a file of asciime_gym would")
            for name in list(group):
                item = self._child(group, name, prefix + name)
                if isinstance(item, h5py.Group):
                    visit(item, f"{prefix}{name}/", depth + 1)
                else:
                    found.append(prefix + name)
                if len(found) > OBJECTS:
                    raise self.wrong("it holds more datasets than a file of asciime_gym would")

        visit(self._file, "", 1)
        return found

    @_guarded
    def shape(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of a dataset."""
        dataset = self._plain(name)
        return dataset.shape, dataset.dtype

    @_guarded
    def copy(self, name: str, file: h5py.File):
        """Puts a dataset into another file, as it is stored."""
        dataset = self._dataset(name, *self.shape(name))
        if dataset.chunks is None:
            self._afford(name, dataset.shape, dataset.dtype)
        copy(dataset, file, name)

    def _json(self, name: str, kind: type) -> Any:
        try:
            value = json.loads(self.text(name))
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"the attribute {name} should be JSON; it is not ({short(error)}); {AGAIN}") from error
        if not isinstance(value, kind):
            raise self.wrong(f"the attribute {name} should be a {kind.__name__}; it is {type(value).__name__}")
        return value

    def _attribute(self, name: str) -> bytes | int:
        if not h5py.h5a.exists(self._file.id, name.encode()):
            raise self.wrong(f"the attribute {name} is missing; {AGAIN}")
        attribute = h5py.h5a.open(self._file.id, name.encode())
        kind = attribute.get_type()
        if attribute.get_space().get_simple_extent_type() != h5py.h5s.SCALAR or kind.get_size() > TEXT:
            raise self.wrong(f"the attribute {name} should be one text or number of a moderate size")
        if isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str():
            value = np.empty((), f"S{kind.get_size()}")
            attribute.read(value, mtype=kind)
            return bytes(value[()])
        if isinstance(kind, h5py.h5t.TypeIntegerID):
            number = np.empty((), np.int64)
            attribute.read(number)
            return int(number)
        raise self.wrong(f"the attribute {name} should be a text of fixed length or a whole number")

    def _child(self, group: h5py.Group, name: str, full: str) -> h5py.Group | h5py.Dataset:
        link = group.get(name, getlink=True)
        if link is None:
            raise self.wrong(f"the dataset {full} is missing; {AGAIN}")
        if not isinstance(link, h5py.HardLink):
            raise self.wrong(f"{full} is a link to somewhere else, which is not followed")
        kind = group.get(name, getclass=True)
        if kind not in (h5py.Group, h5py.Dataset):
            raise self.wrong(f"{full} should be a dataset; {AGAIN}")
        item = group[name]
        assert isinstance(item, (h5py.Group, h5py.Dataset))
        return item

    def _plain(self, name: str) -> h5py.Dataset:
        """A dataset that nothing is hidden in."""
        item: Any = self._file
        parts = name.split("/")
        for place, part in enumerate(parts, 1):
            if not isinstance(item, h5py.Group):
                raise self.wrong(f"the dataset {name} is missing; {AGAIN}")
            item = self._child(item, part, "/".join(parts[:place]))
        if not isinstance(item, h5py.Dataset):
            raise self.wrong(f"{name} should be a dataset, not a group")
        kind, plan = item.id.get_type(), item.id.get_create_plist()
        number = isinstance(kind, (h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID)) and kind.get_size() <= 8
        fixed = isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str() and kind.get_size() <= TEXT
        if not (number or fixed):
            raise self.wrong(f"{name} should hold numbers, or texts of fixed length")
        if plan.get_layout() not in LAYOUTS or plan.get_external_count():
            raise self.wrong(f"{name} is stored outside of the file, which is not followed")
        filters = [plan.get_filter(i)[0] for i in range(min(plan.get_nfilters(), OBJECTS))]
        if not FILTERS.issuperset(filters) or len(filters) > len(set(filters)):
            raise self.wrong(f"{name} is packed otherwise than with deflate, shuffle and fletcher32, each once")
        if item.id.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            raise self.wrong(f"{name} is empty; {AGAIN}")
        return item

    def _dataset(self, name: str, shape: Shape, dtype: Any) -> h5py.Dataset:
        """A plain dataset of the expected shape and type whose sizes fit together."""
        dataset = self._plain(name)
        wanted = np.dtype(np.uint8 if np.dtype(dtype) == bool else dtype)
        fits = len(dataset.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, dataset.shape, strict=True)
        )
        same = dataset.dtype.kind == "S" if wanted.kind == "S" else dataset.dtype == wanted
        if not fits or not same:
            sizes = ", ".join("any" if size is None else str(size) for size in shape)
            raise self.wrong(
                f"the dataset {name} should have shape [{sizes}] and type {wanted}; "
                f"it has shape {list(dataset.shape)} and type {dataset.dtype}"
            )
        size = math.prod(dataset.shape) * dataset.dtype.itemsize
        chunk = math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize
        if size > DEFLATE * dataset.id.get_storage_size() + TEXT or chunk > CHUNK:
            raise self.wrong(f"{name} declares {size:,} bytes, in chunks of {chunk:,}, and does not hold as much")
        return dataset

    def _afford(self, name: str, shape: tuple[int, ...], dtype: np.dtype, once: bool = True):
        """Refuses what would take too much; a dataset that is read once is there to stay, rows come and go."""
        size = math.prod(shape) * dtype.itemsize
        if size > self._room:
            raise self.wrong(f"{name} would take {size:,} bytes, more than a file of {self.size:,} bytes should")
        self._room -= size if once else 0

    def _as(self, values: Any, name: str, dtype: Any) -> np.ndarray:
        array = np.asarray(values)
        if np.dtype(dtype) != bool:
            return array
        if (array > 1).any():
            raise self.wrong(f"{name} should hold zeros and ones")
        return array.astype(bool)


@contextlib.contextmanager
def open_file(path: str | os.PathLike, *kinds: Kind) -> Iterator[Reader]:
    """Opens a file of ours for reading, if it is of one of these kinds and as it was written."""
    path = Path(path)
    with _opened(path) as raw:
        digest, size = _sealed(path, raw)
        try:
            file = h5py.File(raw, "r")
        except Exception as error:
            raise FileError(f"{path}: HDF5 cannot open it ({short(error)}); {AGAIN}") from error
        try:
            reader = Reader(path, file, digest, size)
            _check_format(reader, kinds)
            yield reader
        finally:
            with contextlib.suppress(Exception):
                file.close()


def sealed(path: str | os.PathLike) -> tuple[str, int]:
    """Digest and size of a file of ours, which are what it states; HDF5 does not see it."""
    with _opened(Path(path)) as raw:
        return _sealed(Path(path), raw)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """One open file from the digest to the last dataset, whatever takes its place meanwhile."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise FileError(f"{path}: a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path}: not an ordinary file")
        raw = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise FileError(f"{path}: there is no such file") from error
    except PermissionError as error:
        raise FileError(f"{path}: no permission to read it") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be opened ({short(error)})") from error
    with raw:
        yield raw


def _sealed(path: Path, raw: BinaryIO) -> tuple[str, int]:
    """Digest and size of the contents, which are as they were when they were written."""
    try:
        block, size = raw.read(BLOCK), os.fstat(raw.fileno()).st_size
        match = _SEAL.fullmatch(block)
        if not match:
            raise FileError(f"{path}: {_foreign(block)}")
        if size > LARGEST:
            raise FileError(f"{path}: {size:,} bytes are more than the {LARGEST:,} that are read")
        if size - BLOCK != int(match[2]):
            raise FileError(
                f"{path}: not a complete file of asciime_gym: {size - BLOCK:,} bytes where there should be "
                f"{int(match[2]):,}; {AGAIN}"
            )
        digest, _ = contents_digest(raw)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({short(error)})") from error
    if digest != match[1].decode():
        raise FileError(f"{path}: not as it was written: its contents do not have the digest it states; {AGAIN}")
    raw.seek(0)
    return digest, size


def _foreign(block: bytes) -> str:
    if block.startswith(SIGNATURE):
        return (
            "an HDF5 file, but not one of asciime_gym's (it does not begin with a digest of its contents), or one of "
            "a version before 0.1.0 was released: make it again"
        )
    return f"not a complete file of asciime_gym; {AGAIN}"


def _check_format(reader: Reader, kinds: tuple[Kind, ...]):
    found = reader.text("format")
    if found not in [FORMAT.format(kind) for kind in kinds]:
        wanted = " or ".join(FORMAT.format(kind) for kind in kinds)
        raise reader.wrong(f"its format is {found[:80]!r}; {wanted!r} is needed here")
    schema = reader.number("schema")
    if schema != SCHEMA:
        newer = "upgrade asciime_gym to read it" if schema > SCHEMA else "open it with the version that wrote it"
        raise reader.wrong(
            f"written with schema {schema}, and this version of asciime_gym reads schema {SCHEMA}; {newer}: "
            f"{reader.text('versions')[:300]}"
        )


def short(error: BaseException) -> str:
    """An error in a few words."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
