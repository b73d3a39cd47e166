"""The HDF5 file as it is written: whole or not at all, sealed with a digest, and explaining itself."""

import hashlib
import io
import os
from typing import Any, Literal

import h5py
import numpy as np

from ._atomic import replacing
from ._layout import SCALES, entry
from ._versions import versions

Kind = Literal["run", "archive", "trajectories"]
FORMAT = "asciime_gym {}"  # of each kind
SCHEMA = 2
BLOCK = 512  # bytes before HDF5's own, which state the digest of all the others
SEAL = "asciime_gym HDF5 file\nsha256 {digest} of the {size} bytes after this block of 512\n"
CHUNK = 2**18  # bytes, about
STEPS = 1024  # rows of a chunk of a dataset that may grow, at most: a few episodes
SMALL = 1024  # entries up to which a dataset is not compressed
_COMPRESSION: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}
_written: set[str] = set()  # digests of what this process wrote


class FileError(Exception):
    """A file that cannot be used; the message names it, says what is wrong and what to do."""


def write_file(
    path: str | os.PathLike,
    kind: Kind,
    attributes: dict[str, str | int],
    arrays: dict[str, np.ndarray],
    *,
    resizable: bool = False,
) -> str:
    """Writes a file that takes the place of an old one in one step; returns its digest.

    **Arguments:**

    - `attributes`: text or whole numbers that the file says of itself.
    - `arrays`: by full name, `archive/centroids` for example.
    - `resizable`: whether the datasets may grow along their first axis, for whoever opens the file with h5py.
    """
    image = io.BytesIO()  # not on the disk: HDF5 crashes the interpreter after a write that failed
    with h5py.File(image, "w", userblock_size=BLOCK) as file:
        said = {"format": FORMAT.format(kind), "schema": SCHEMA, "versions": versions(), **attributes}
        for name, value in said.items():
            file.attrs[name] = np.bytes_(value.encode()) if isinstance(value, str) else np.int64(value)
        for name, array in arrays.items():
            _write_array(file, name, array, resizable)
        _explain(file)
    digest = seal(image)
    with replacing(path) as temporary, open(temporary, "r+b") as file:
        file.write(image.getbuffer())
    _written.add(digest)
    return digest


def written_here(digest: str) -> bool:
    """Whether this process wrote a file with just these contents."""
    return digest in _written


def seal(file: Any) -> str:
    """States the digest of a file's contents, by path or open, in its first block; returns it."""
    if not hasattr(file, "read"):
        with open(file, "r+b") as opened:
            return seal(opened)
    digest, size = contents_digest(file)
    file.seek(0)
    file.write(SEAL.format(digest=digest, size=size).encode().ljust(BLOCK, b"\0"))
    return digest


def contents_digest(file: Any) -> tuple[str, int]:
    """SHA-256 of everything after the first block of a file, by path or open, and how many bytes that is."""
    if not hasattr(file, "read"):
        with open(file, "rb") as opened:
            return contents_digest(opened)
    file.seek(BLOCK)
    sum_, size = hashlib.sha256(), 0
    while piece := file.read(2**20):
        sum_.update(piece)
        size += len(piece)
    return sum_.hexdigest(), size


def _write_array(file: h5py.File, name: str, array: np.ndarray, resizable: bool):
    array = np.asarray(array)
    array = array.astype(np.uint8) if array.dtype == bool else array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    options: dict[str, Any] = {}
    if array.ndim and (array.size > SMALL or resizable):
        row = max(1, array.dtype.itemsize * int(np.prod(array.shape[1:])))
        rows = max(1, min(CHUNK // row, STEPS if resizable else len(array)))
        options = {"chunks": (rows, *(max(1, size) for size in array.shape[1:])), **_COMPRESSION}
        options |= {"maxshape": (None, *array.shape[1:])} if resizable else {}
    file.create_dataset(name, data=array, track_times=False, **options)


def _explain(file: h5py.File):
    """Descriptions, units, names of axes, and the datasets that number them."""
    items: list[h5py.Group | h5py.Dataset] = []
    file.visititems(lambda _, item: items.append(item))
    for scale in SCALES.values():
        if scale in file:
            dataset = file[scale]
            assert isinstance(dataset, h5py.Dataset)
            dataset.make_scale(scale.rpartition("/")[2])
    for item in items:
        name = str(item.name).strip("/")
        said = entry(name)
        item.attrs["description"] = np.bytes_(said.description.encode())
        if said.units:
            item.attrs["units"] = np.bytes_(said.units.encode())
        if isinstance(item, h5py.Dataset):
            _label(file, item, name, said.axes)


def _label(file: h5py.File, dataset: h5py.Dataset, name: str, axes: tuple[str, ...]):
    for place, axis in enumerate(axes[: len(dataset.shape)]):
        scale = SCALES.get(axis, "")
        if scale == name:
            continue
        dataset.dims[place].label = axis
        if scale in file and len(file[scale]) == dataset.shape[place]:  # type: ignore
            dataset.dims[place].attach_scale(file[scale])
