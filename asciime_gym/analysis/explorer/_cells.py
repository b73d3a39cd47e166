"""Where the page draws the cells of an archive: a strip, polygons, slices, or tiles where there are too many axes."""

import base64
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree, Voronoi

from ..._view import ArchiveView

MOST_LEVELS = 5  # slices along an axis
PIXELS = 48  # along the side of a slice


def layout(archive: ArchiveView) -> dict[str, Any]:
    """What the page needs to draw the cells and to find the one under the pointer."""
    dims = len(archive.low)
    if dims == 1:
        return _strip(archive)
    if dims == 2 and archive.cells > 2:  # of fewer there is no diagram
        corners = [np.round(each, 4).ravel().tolist() for each in polygons(archive)]
        return {"kind": "polygons", "polygons": corners}
    return _slices(archive) if dims in (3, 4) else {"kind": "tiles"}


def unit(archive: ArchiveView) -> Float[np.ndarray, "cells dims"]:
    """The centres in units of the bounds."""
    return (archive.centroids.astype(float) - archive.low) / (archive.high.astype(float) - archive.low)


def _strip(archive: ArchiveView) -> dict[str, Any]:
    centres = unit(archive)[:, 0]
    order = np.argsort(centres, kind="stable")
    inner = (centres[order][1:] + centres[order][:-1]) / 2
    edges = np.clip(np.concatenate([[0.0], inner, [1.0]]), 0.0, 1.0)
    return {"kind": "strip", "order": order.tolist(), "edges": np.round(edges, 6).tolist()}


def polygons(archive: ArchiveView) -> list[Float[np.ndarray, "corners 2"]]:
    """The corners of each cell, in units of the bounds. Mirroring the centres at the bounds closes the outer cells."""
    points = unit(archive)
    mirrored = [points]
    for axis in (0, 1):
        for bound in (0.0, 1.0):
            copy = points.copy()
            copy[:, axis] = 2 * bound - copy[:, axis]
            mirrored.append(copy)
    diagram = Voronoi(np.concatenate(mirrored))
    return [diagram.vertices[diagram.regions[diagram.point_region[i]]] for i in range(len(points))]


def _slices(archive: ArchiveView) -> dict[str, Any]:
    """Panels, upwards and across; in each the cell of every pixel, upwards and across."""
    dims = len(archive.low)
    levels = int(np.clip(round(archive.cells ** (1 / dims)), 3, MOST_LEVELS))
    rows = levels if dims == 4 else 1
    tree, middles = KDTree(unit(archive)), (np.arange(PIXELS) + 0.5) / PIXELS
    across, up = np.meshgrid(middles, middles)
    panels = []
    for row in range(rows):
        for column in range(levels):
            fixed = [(level + 0.5) / levels for level in ([column, row] if dims == 4 else [column])]
            points = np.stack([across, up, *(np.full_like(across, level) for level in fixed)], axis=-1)
            panels.append(tree.query(points)[1])
    labels = np.stack(panels).astype("<u4")
    text = base64.b64encode(labels.tobytes()).decode()
    return {"kind": "slices", "levels": levels, "rows": rows, "pixels": PIXELS, "labels": text}
