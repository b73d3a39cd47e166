"""Maps of archives: a strip in one dimension, Voronoi cells in two, slices and parallel axes in more."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize, to_rgba
from matplotlib.ticker import MaxNLocator

from .._view import ArchiveView
from ._cells import levels, polygons, slice_cells
from ._style import STEPS, WORDS, Style, numbers, with_unit

COLUMNS = 3  # maps side by side


def fitness_scale(archives: Sequence[ArchiveView], style: Style) -> ScalarMappable:
    """Fitness as colour; a few elites far from all others do not take the colours from the rest."""
    low, high = np.percentile(np.concatenate([archive.fitness for archive in archives]), (1, 99))
    return ScalarMappable(Normalize(low, max(high, low + 1e-6)), style.fitness)


def colour_bar(figure: Any, scale: ScalarMappable, axes: Any):
    """Says which colour is which fitness; its ends are pointed because a few elites may lie beyond."""
    place = {"cax": figure.subplots()} if axes is None else {"ax": axes, "aspect": 28, "pad": 0.02}
    bar = figure.colorbar(scale, label=WORDS["fitness"], extend="both", extendfrac=0.025, **place)
    bar.outline.set_visible(False)
    numbers(bar.ax, "y", bins=6)


def drawer(archive: ArchiveView, kind: str) -> Callable[[Any, ArchiveView, Style, ScalarMappable], Any]:
    """What draws an archive of this many dimensions."""
    dims = len(archive.low)
    if kind == "slices" and dims not in (3, 4):
        raise ValueError(
            f"slices are drawn of descriptors of 3 or 4 numbers; this archive's have {dims}: use kind 'map'"
        )
    if kind == "parallel" and dims < 2:
        raise ValueError("parallel axes need descriptors of 2 numbers or more; this archive's have 1: use kind 'map'")
    if kind == "map":
        return {1: strip, 2: voronoi, 3: slices, 4: slices}.get(dims, parallel)
    return slices if kind == "slices" else parallel


def strip(figure: Any, archive: ArchiveView, style: Style, scale: ScalarMappable) -> Any:
    """One bar per elite, as wide as its cell; below it the line of all cells, where gaps are empty ones."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(8, 1))
    edges, filled = _intervals(archive)
    width = np.diff(edges)
    there = ~np.isnan(filled)
    colours = scale.to_rgba(filled[there])
    bars = {"align": "edge", "color": colours, "edgecolor": colours, "linewidth": 0.25}  # closes gaps between pixels
    above.bar(edges[:-1][there], filled[there], width[there], **bars)
    above.set(
        ylabel=WORDS["fitness"], xlim=(archive.low[0], archive.high[0]), ylim=(min(0, archive.fitness.min()), None)
    )
    above.tick_params(bottom=False)
    numbers(above, "y")
    below.bar(edges[:-1], 1, width, align="edge", color=style.empty, linewidth=0)
    below.bar(edges[:-1][there], 1, width[there], **bars)
    below.set(ylim=(0, 1), yticks=[], ylabel="cells", xlabel=with_unit(archive.descriptor_names[0]))
    below.grid(False)
    below.spines["left"].set_visible(False)
    return [above, below]


def _intervals(archive: ArchiveView) -> tuple[Float[np.ndarray, " edges"], Float[np.ndarray, " cells"]]:
    """The borders of the cells of one dimension, from low to high, and each cell's fitness, NaN where empty."""
    order = np.argsort(archive.centroids[:, 0], kind="stable")
    centres = archive.centroids[order, 0].astype(float)
    edges = np.concatenate([archive.low, (centres[1:] + centres[:-1]) / 2, archive.high]).astype(float)
    fitness = np.full(archive.cells, np.nan)
    fitness[archive.cell] = archive.fitness
    return edges, fitness[order]


def voronoi(figure: Any, archive: ArchiveView, style: Style, scale: ScalarMappable) -> Any:
    """Every cell of two dimensions, coloured where it is filled."""
    axes = figure.subplots()
    faces = _cell_colours(archive, style, scale)
    low, high = archive.low, archive.high
    corners = [low + each * (high - low) for each in polygons(archive)]
    axes.add_collection(PolyCollection(corners, facecolors=faces, edgecolors=style.edge, linewidths=0.25))
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), box_aspect=1)
    axes.set(xlabel=with_unit(archive.descriptor_names[0]), ylabel=with_unit(archive.descriptor_names[1]))
    axes.grid(False)
    return axes


def _cell_colours(archive: ArchiveView, style: Style, scale: ScalarMappable) -> Float[np.ndarray, "cells 4"]:
    faces = np.tile(np.array(to_rgba(style.empty)), (archive.cells, 1))
    faces[archive.cell] = scale.to_rgba(archive.fitness)
    return faces


def slices(figure: Any, archive: ArchiveView, style: Style, scale: ScalarMappable) -> Any:
    """Cuts through the cells of three or four dimensions: each panel a plane of the first two, the others fixed."""
    count = levels(archive)
    rows = count if len(archive.low) == 4 else 1
    grid = figure.subplots(rows, count, sharex=True, sharey=True, squeeze=False)
    faces, names = _cell_colours(archive, style, scale), [with_unit(name) for name in archive.descriptor_names]
    extent = (archive.low[0], archive.high[0], archive.low[1], archive.high[1])
    for (row, column), axes in np.ndenumerate(grid):
        fixed = [column] if rows == 1 else [column, rows - 1 - row]  # upwards, as on any axis
        image = faces[slice_cells(archive, fixed, count)]
        axes.imshow(image, extent=extent, origin="lower", interpolation="nearest", aspect="auto")
        axes.set(box_aspect=1)
        axes.grid(False)
        numbers(axes, bins=2)
        if row == 0:
            axes.set_title(f"{_level(archive, 2, fixed[0], count):.3g}", fontsize=9, pad=3)
        if rows > 1 and column == count - 1:
            axes.yaxis.set_label_position("right")
            height = _level(archive, 3, fixed[1], count)
            axes.set_ylabel(f"{height:.3g}", rotation=0, ha="left", va="center", fontsize=9)
    across, up = f"panels across: {names[2]}", f"\npanels up: {names[3]}" if rows > 1 else ""
    figure.suptitle(across + up, fontsize=10)
    figure.supxlabel(f"in each panel across: {names[0]}", fontsize=10)
    upwards = f"in each panel up: {names[1]}"
    figure.supylabel(upwards if rows > 1 else upwards.replace(": ", ":\n").replace(" (", "\n("), fontsize=10)
    return list(grid.flat)


def _level(archive: ArchiveView, axis: int, level: int, levels: int) -> float:
    """Where along an axis a slice is cut."""
    return float(archive.low[axis] + (archive.high[axis] - archive.low[axis]) * (level + 0.5) / levels)


def parallel(figure: Any, archive: ArchiveView, style: Style, scale: ScalarMappable) -> Any:
    """Each elite a line across its descriptor and its fitness; the best are drawn last, on top."""
    axes = figure.subplots()
    order = np.argsort(archive.fitness, kind="stable")
    low, high = float(min(0, archive.fitness.min())), float(archive.fitness.max())
    unit = (archive.descriptor - archive.low) / (archive.high - archive.low)
    heights = np.column_stack([unit, (archive.fitness - low) / max(high - low, 1e-9)])[order]
    places = np.arange(heights.shape[1])
    lines = np.stack([np.broadcast_to(places, heights.shape), heights], axis=-1)
    opacity = float(np.clip(60 / len(archive), 0.25, 0.9))
    colours = scale.to_rgba(archive.fitness[order], alpha=opacity)
    axes.add_collection(LineCollection(list(lines), colors=colours, linewidths=0.9))
    axes.set(xlim=(-0.12, places[-1] + 0.12), ylim=(-0.02, 1.02), yticks=[])
    names = [*map(with_unit, archive.descriptor_names), WORDS["fitness"]]
    axes.set_xticks(places, [name.replace(" (", "\n(") for name in names])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    bounds = [*zip(archive.low, archive.high, strict=True), (low, high)]
    for place, (least, most) in zip(places, bounds, strict=True):
        axes.axvline(place, color=style.ink, linewidth=0.8)
        ticks = MaxNLocator(5, steps=STEPS).tick_values(least, most)
        for value in ticks[(ticks >= least) & (ticks <= most)]:
            _tick(axes, float(place), float((value - least) / (most - least)), float(value), style)
    return axes


def _tick(axes: Any, place: float, height: float, value: float, style: Style):
    """A tick and its number, which stands on a patch of paper; where there is none, on a patch of ink."""
    none = style.paper == "none"
    box = {"facecolor": style.ink if none else style.paper, "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
    axes.plot([place - 0.015, place + 0.015], [height, height], color=style.ink, linewidth=0.8)
    look: dict[str, Any] = {"fontsize": 8, "bbox": box, "zorder": 5, "color": "#FFFFFF" if none else style.ink}
    axes.text(place + 0.03, height, f"{value:,.4g}", va="center", ha="left", **look)
