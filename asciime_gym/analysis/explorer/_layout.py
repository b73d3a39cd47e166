"""Where the page draws the cells of an archive: a strip, polygons, slices, or tiles where there are too many axes."""

import base64
from typing import Any

import numpy as np

from ..._view import ArchiveView
from .._cells import PIXELS, levels, polygons, slice_cells, unit


def layout(archive: ArchiveView) -> dict[str, Any]:
    """What the page needs to draw the cells and to find the one under the pointer."""
    dims = len(archive.low)
    if dims == 1:
        return _strip(archive)
    if dims == 2 and archive.cells > 2:  # of fewer there is no diagram
        corners = [np.round(each, 4).ravel().tolist() for each in polygons(archive)]
        return {"kind": "polygons", "polygons": corners}
    return _slices(archive) if dims in (3, 4) else {"kind": "tiles"}


def _strip(archive: ArchiveView) -> dict[str, Any]:
    centres = unit(archive)[:, 0]
    order = np.argsort(centres, kind="stable")
    inner = (centres[order][1:] + centres[order][:-1]) / 2
    edges = np.clip(np.concatenate([[0.0], inner, [1.0]]), 0.0, 1.0)
    return {"kind": "strip", "order": order.tolist(), "edges": np.round(edges, 6).tolist()}


def _slices(archive: ArchiveView) -> dict[str, Any]:
    """Panels, upwards and across; in each the cell of every pixel, upwards and across."""
    count, dims = levels(archive), len(archive.low)
    rows = count if dims == 4 else 1
    fixed = [[column, row][: dims - 2] for row in range(rows) for column in range(count)]
    labels = np.stack([slice_cells(archive, each, count) for each in fixed]).astype("<u4")
    text = base64.b64encode(labels.tobytes()).decode()
    return {"kind": "slices", "levels": count, "rows": rows, "pixels": PIXELS, "labels": text}
