"""Where the cells of an archive are, for whatever draws them; lengths are in units of the bounds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import KDTree, Voronoi

from .._view import ArchiveView

MOST_LEVELS = 5  # slices along an axis
PIXELS = 48  # along the side of a slice


def unit(archive: ArchiveView) -> Float[np.ndarray, "cells dims"]:
    """The centres."""
    return (archive.centroids.astype(float) - archive.low) / (archive.high.astype(float) - archive.low)


def polygons(archive: ArchiveView) -> list[Float[np.ndarray, "corners 2"]]:
    """The corners of each cell of two dimensions. Mirroring the centres at the bounds closes the outer cells."""
    points = unit(archive)
    mirrored = [points]
    for axis in (0, 1):
        for bound in (0.0, 1.0):
            copy = points.copy()
            copy[:, axis] = 2 * bound - copy[:, axis]
            mirrored.append(copy)
    diagram = Voronoi(np.concatenate(mirrored))
    return [diagram.vertices[diagram.regions[diagram.point_region[i]]] for i in range(len(points))]


def levels(archive: ArchiveView) -> int:
    """About as many slices along an axis as there are cells."""
    return int(np.clip(round(archive.cells ** (1 / len(archive.low))), 3, MOST_LEVELS))


def slice_cells(archive: ArchiveView, fixed: Sequence[int], count: int) -> Int[np.ndarray, "up across"]:
    """The cell that each pixel of a slice belongs to; `fixed`: which of `count` levels of the other axes."""
    middles = (np.arange(PIXELS) + 0.5) / PIXELS
    across, up = np.meshgrid(middles, middles)
    others = [np.full_like(across, (level + 0.5) / count) for level in fixed]
    return np.asarray(KDTree(unit(archive)).query(np.stack([across, up, *others], axis=-1))[1])
