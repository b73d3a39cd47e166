"""An archive as a page: the map of its cells, and its elites moving."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ... import _files
from ..._atomic import replacing
from ..._combine import opened
from ..._view import ArchiveView
from .._cells import unit
from ._colours import FITNESS, operator_colours
from ._layout import layout
from ._moves import moves
from ._page import page
from ._progress import Steps

SUFFIXES = (".html", ".htm")


def explore(
    archive: ArchiveView | str | os.PathLike,
    out: str | os.PathLike,
    *,
    title: str | None = None,
    motion: bool = True,
    progress: bool | None = None,
) -> Path:
    """Writes a page for the browser that shows the archive, works without a network, and lets its elites move.

    **Arguments:**

    - `archive`: an archive, or the path of its file.
    - `out`: the page, an .html file; it replaces one that is there.
    - `title`: at the top of the page; by default the task, and where the file says so the algorithm and seed.
    - `motion`: whether elites can be watched. Their episodes are played again for that, which takes up to a minute to
      compile. Of a task that is not one of `make_task`'s the page has the map alone, and says so.
    - `progress`: whether to tell how far it is; by default on a terminal only.
    """
    if Path(out).suffix.lower() not in SUFFIXES:
        raise ValueError(f"expected the name of a page, which ends in .html; got {os.fspath(out)!r}")
    view = opened(archive)
    if not len(view):
        raise ValueError("the archive is empty: there is nothing to explore yet")
    title = title or _title(archive, view)
    with Steps(progress, title) as steps:
        data = {"title": title, **_about(view), "layout": layout(view), "elites": _elites(view)}
        moving, poses = moves(view, steps) if motion else ({"why_not": "the page was made without it."}, [])
        steps.say("writing the page")
        text = page(title, data | {"motion": moving}, poses)
        with replacing(out) as temporary:
            temporary.write_bytes(text.encode())
    return Path(out)


def _title(given: Any, archive: ArchiveView) -> str:
    name = str((archive.problem or {}).get("name", "unknown task"))
    if isinstance(given, ArchiveView):
        return name
    info = _files.file_info(given)
    algorithm = (info.get("algorithm") or {}).get("name")
    return " · ".join([name, *([f"{algorithm}, seed {info.get('seed')}"] if algorithm else [])])


def _about(archive: ArchiveView) -> dict[str, Any]:
    low, high = np.percentile(archive.fitness, (1, 99))  # a few far from all others do not take the colours from them
    return {
        "cells": archive.cells,
        "names": list(archive.descriptor_names),
        "low": _numbers(archive.low),
        "high": _numbers(archive.high),
        "centres": np.round(unit(archive), 5).tolist(),
        "operators": list(archive.operators),
        "colours": {"operators": operator_colours(archive.operators), "fitness": FITNESS},
        "scale": [float(low), float(max(high, low + 1e-6))],
        "qd_score": archive.qd_score,
        "sources": [Path(name).name for name in archive.sources],
    }


def _elites(archive: ArchiveView) -> dict[str, Any]:
    """Columns, a row per elite; numbers as short as they can be and still be the same."""
    first = np.where(archive.first_filled < 0, archive.evaluation, archive.first_filled)
    return {
        "cell": archive.cell.tolist(),
        "fitness": _numbers(archive.fitness),
        "descriptor": [_numbers(row) for row in archive.descriptor],
        "operator": archive.operator_number.tolist(),
        "evaluation": archive.evaluation.tolist(),
        "first": np.minimum(first, archive.evaluation).tolist(),
        "steps": archive.steps.tolist(),
        "source": None if archive.source is None else archive.source.tolist(),
    }


def _numbers(values: np.ndarray) -> list[float]:
    return [float(str(value)) for value in values]
