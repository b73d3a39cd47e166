"""The chunks of a dataset, unpacked within bounds: HDF5 itself would follow a stream of zeros to its end."""

import math
import zlib

import h5py
import numpy as np

FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def unpacked(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Rows of a dataset; of a chunked one no other chunks are read than theirs. Raises where one is not as declared."""
    if dataset.chunks is None:
        return dataset[start:stop]
    rows, *others = dataset.chunks
    if any(chunk < size for chunk, size in zip(others, dataset.shape[1:], strict=True)):
        raise ValueError("it should be in chunks of whole rows")
    values = np.empty((stop - start, *dataset.shape[1:]), dataset.dtype)
    inner = tuple(slice(size) for size in dataset.shape[1:])
    for first in range(start // rows * rows, stop, rows):
        chunk = _chunk(dataset, (first, *(0 for _ in others)))[(slice(None), *inner)]
        begin, end = max(first, start), min(first + rows, stop)
        values[begin - start : end - start] = chunk[begin - first : end - first]
    return values


def _chunk(dataset: h5py.Dataset, place: tuple[int, ...]) -> np.ndarray:
    kind, shape = dataset.dtype, dataset.chunks
    assert shape is not None
    size = math.prod(shape) * kind.itemsize
    info = dataset.id.get_chunk_info_by_coord(place)
    if info.byte_offset is None or info.filter_mask or info.size > size + size // 8 + 2**16:
        raise ValueError("it lacks a chunk, or has one that is not packed like the others")
    _, data = dataset.id.read_direct_chunk(place)
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
