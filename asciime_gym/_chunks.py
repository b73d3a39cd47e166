"""The chunks of a dataset, unpacked within bounds: HDF5 itself would follow a stream of zeros to its end."""

import math
import zlib
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def unpacked(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Rows of a dataset; of a chunked one no other chunks are read than theirs. Raises where one is not as declared."""
    if dataset.chunks is None:
        return dataset[start:stop]
    values = np.empty((stop - start, *dataset.shape[1:]), dataset.dtype)
    inner = tuple(slice(size) for size in dataset.shape[1:])
    rows = dataset.chunks[0]
    for place in _places(dataset, start, stop):
        chunk, first = _unpack(dataset, _packed(dataset, place))[(slice(None), *inner)], place[0]
        begin, end = max(first, start), min(first + rows, stop)
        values[begin - start : end - start] = chunk[begin - first : end - first]
    return values


def copy(dataset: h5py.Dataset, file: h5py.File, name: str):
    """The same dataset in another file: its chunks as they are, without what else may be attached to it."""
    if dataset.chunks is None:
        file.create_dataset(name, data=dataset[()], track_times=False)
        return
    plan = dataset.id.get_create_plist()
    codes = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
    options: dict[str, Any] = {
        "shuffle": h5py.h5z.FILTER_SHUFFLE in codes,
        "fletcher32": h5py.h5z.FILTER_FLETCHER32 in codes,
        "compression": "gzip" if h5py.h5z.FILTER_DEFLATE in codes else None,
    }
    made = file.create_dataset(
        name, dataset.shape, dataset.dtype, chunks=dataset.chunks, maxshape=dataset.maxshape, **options
    )
    plan = made.id.get_create_plist()
    if codes != [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]:
        raise ValueError("its filters should be in HDF5's own order")
    for place in _places(dataset, 0, len(dataset)):
        made.id.write_direct_chunk(place, _packed(dataset, place))


def _places(dataset: h5py.Dataset, start: int, stop: int) -> Iterator[tuple[int, ...]]:
    """Where the chunks of these rows begin."""
    assert dataset.chunks is not None
    rows, *others = dataset.chunks
    if any(chunk < size for chunk, size in zip(others, dataset.shape[1:], strict=True)):
        raise ValueError("it should be in chunks of whole rows")
    for first in range(start // rows * rows, stop, rows):
        yield (first, *(0 for _ in others))


def _packed(dataset: h5py.Dataset, place: tuple[int, ...]) -> bytes:
    """A chunk as it is stored."""
    size = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    info = dataset.id.get_chunk_info_by_coord(place)
    if info.byte_offset is None or info.filter_mask or info.size > size + size // 8 + 2**16:
        raise ValueError("it lacks a chunk, or has one that is not packed like the others")
    return dataset.id.read_direct_chunk(place)[1]


def _unpack(dataset: h5py.Dataset, data: bytes) -> np.ndarray:
    kind, shape = dataset.dtype, dataset.chunks
    assert shape is not None
    size = math.prod(shape) * kind.itemsize
    plan = dataset.id.get_create_plist()
    for i in reversed(range(plan.get_nfilters())):
        code = plan.get_filter(i)[0]
        if code == h5py.h5z.FILTER_FLETCHER32:
            data = data[:-4]  # the digest of the whole file was checked
        elif code == h5py.h5z.FILTER_DEFLATE:
            data = zlib.decompressobj().decompress(data, size + 4)
        elif code == h5py.h5z.FILTER_SHUFFLE:
            data = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1).T.tobytes()
        else:
            raise ValueError(f"it is packed with filter {code}")
    if len(data) != size:
        raise ValueError(f"a chunk holds {len(data):,} bytes instead of {size:,}")
    return np.frombuffer(data, kind).reshape(shape)
