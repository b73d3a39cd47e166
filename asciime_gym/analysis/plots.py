"""Pictures of archives."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from .._metrics import History
from .._view import ArchiveView
from ._optional import pyplot

COLOURS = "viridis"  # perceptually even, and safe for colour-blind eyes


def plot_run(archive: ArchiveView, history: History | None, path: str | os.PathLike, title: str = ""):
    """Draws the archive and, where that is known, how it came about, and writes the picture to a file."""
    if not len(archive):
        raise ValueError("the archive is empty: there is nothing to draw yet")
    plt = pyplot()
    if history is None:
        figure, left = plt.subplots(figsize=(7, 4.8), layout="constrained")
    else:
        figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), width_ratios=(1.35, 1), layout="constrained")
        plot_history(history, right)
    plot_archive(archive, left)
    summary = f"{100 * archive.coverage:.1f} % of {archive.cells:,} cells, QD score {archive.qd_score:,.0f}"
    figure.suptitle(f"{title}: {summary}" if title else summary)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def plot_archive(archive: ArchiveView, axes: Any):
    """The map itself: a strip of bars in one dimension, Voronoi cells in two, the first two axes of more."""
    if len(archive.low) == 1:
        shown = _bars(archive, axes)
    else:
        shown = _cells(archive, axes) if len(archive.low) == 2 else _points(archive, axes)
        axes.set(ylabel=archive.descriptor_names[1], xlim=(archive.low[0], archive.high[0]))
        axes.set(ylim=(archive.low[1], archive.high[1]))
    axes.set_xlabel(archive.descriptor_names[0])
    axes.figure.colorbar(shown, ax=axes, label="fitness", extend="both")


def plot_history(history: History, axes: Any):
    """QD score and coverage against evaluations."""
    evaluations = history["evaluations"]
    axes.plot(evaluations, history["qd_score"], color="#1b5e9b", label="QD score (left)")
    axes.set(xlabel="evaluations", ylabel="QD score", ylim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    other = axes.twinx()
    other.plot(evaluations, 100 * history["coverage"], color="#c4661f", linestyle="--", label="coverage (right)")
    other.set(ylabel="coverage (%)", ylim=(0, 100))
    lines = axes.get_lines() + other.get_lines()
    axes.legend(lines, [line.get_label() for line in lines], loc="lower right")
    axes.grid(alpha=0.3)


def _colours(archive: ArchiveView) -> Any:
    """Fitness as colour; a few elites far from all others do not take the colours from the rest."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    low, high = np.percentile(archive.fitness, (1, 99))
    return ScalarMappable(Normalize(low, max(high, low + 1e-6)), COLOURS)


def _bars(archive: ArchiveView, axes: Any) -> Any:
    """One bar per elite, as wide as its cell; gaps are empty cells."""
    colours = _colours(archive)
    order = np.argsort(archive.centroids[:, 0])
    centres = archive.centroids[order, 0]
    edges = np.concatenate([archive.low, (centres[1:] + centres[:-1]) / 2, archive.high])
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    at = place[archive.cell]
    width = np.diff(edges)[at]
    axes.bar(edges[at], archive.fitness, width, align="edge", color=colours.to_rgba(archive.fitness))
    axes.set(ylabel="fitness", xlim=(archive.low[0], archive.high[0]), ylim=(0, None))
    return colours


def _cells(archive: ArchiveView, axes: Any) -> Any:
    """Every Voronoi cell, coloured where it is filled. Mirroring the centres at the bounds closes the outer cells."""
    from matplotlib.collections import PolyCollection
    from scipy.spatial import Voronoi

    colours, points = _colours(archive), archive.centroids.astype(float)
    low, high = archive.low.astype(float), archive.high.astype(float)
    mirrored = [points]
    for axis in (0, 1):
        for bound in (low, high):
            copy = points.copy()
            copy[:, axis] = 2 * bound[axis] - copy[:, axis]
            mirrored.append(copy)
    diagram = Voronoi(np.concatenate(mirrored))
    polygons = [diagram.vertices[diagram.regions[diagram.point_region[i]]] for i in range(len(points))]
    faces = np.tile(np.array([0xD8, 0xD8, 0xD8, 0xFF]) / 255, (len(points), 1))
    faces[archive.cell] = colours.to_rgba(archive.fitness)
    axes.add_collection(PolyCollection(polygons, facecolors=faces, edgecolors="white", linewidths=0.2))
    axes.set_aspect("equal")
    return colours


def _points(archive: ArchiveView, axes: Any) -> Any:
    colours = _colours(archive)
    axes.scatter(*archive.descriptor[:, :2].T, c=colours.to_rgba(archive.fitness), s=14)
    return colours
