"""Bars over batch sizes, and how fitness is distributed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ._series import quartiles, seconds_at, thinned, value_at
from ._sources import Group, Source, along_batch_sizes, by_task, groups_of, read_archives
from ._style import WORDS, Style, blank, legend, numbers, seeds, shades, time_unit

HATCHES = ("", "//", "..", "\\\\", "xx", "++")


def batch_sizes(figure: Any, sources: Sequence[Source], style: Style):
    """QD score and time of each batch size, after as many evaluations as all runs of the task have spent."""
    tasks = by_task(sources)
    sizes = sorted({_size(source) for source in sources})
    if len(sizes) < 2:
        raise ValueError(f"bars over batch sizes need runs of two batch sizes or more; all have {sizes[0]:,}")
    figure.set_size_inches(11, 0.7 + 3.0 * len(tasks))
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    entries: dict[str, Any] = {}
    for line, (task, members) in zip(grid, tasks.items(), strict=True):
        budget = min(int(source.past["evaluations"][-1]) for source in members)
        groups = along_batch_sizes(groups_of(members))
        qd_score = [[value_at(s.past, "qd_score", "evaluations", budget) for s in group.members] for group in groups]
        seconds = [[seconds_at(s.past, budget) for s in group.members] for group in groups]
        unit, name = time_unit(max(max(values) for values in seconds))
        time = [[value / unit for value in values] for values in seconds]
        for axes, label, values in zip(line, (WORDS["qd_score"], f"time ({name})"), (qd_score, time), strict=True):
            entries |= _bars(axes, groups, sizes, values, style)
            axes.set(ylabel=label, xlabel="batch size (episodes per generation)")
            numbers(axes, "y")
        line[0].set_title(f"{task} after {budget:,} evaluations", loc="left", fontweight="bold")
    legend(figure, entries)


def _size(source: Source) -> int:
    source.past  # noqa: B018 (an archive without a run is told so)
    if source.batch_size is None:
        raise ValueError(f"{source.name} does not say what its batch size was")
    return source.batch_size


def _bars(axes: Any, groups: list[Group], sizes: list[int], figures: list[list[float]], style: Style) -> dict[str, Any]:
    """A bar per algorithm and batch size: the median, its quartiles as a line, each run as a dot."""
    labels = list(dict.fromkeys(group.label_without_batch_size for group in groups))
    looks = shades(_without_batch_size(groups))
    width = 0.8 / len(labels)
    for group, values in zip(groups, map(np.array, figures), strict=True):
        number = labels.index(group.label_without_batch_size)
        low, middle, high = (float(value) for value in quartiles(values))
        assert group.batch_size is not None
        place = sizes.index(group.batch_size) + (number - (len(labels) - 1) / 2) * width
        axes.bar(place, middle, 0.9 * width, **_fill(looks, labels, number, style))
        axes.errorbar(place, middle, [[middle - low], [high - middle]], color=style.ink, capsize=2.5, linewidth=1)
        if len(values) > 1:
            axes.plot(np.full(len(values), place), values, "o", color=style.ink, markersize=2.4, alpha=0.55)
    axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    axes.grid(False, axis="x")
    return {label: Patch(**_fill(looks, labels, number, style)) for number, label in enumerate(labels)}


def _fill(looks: dict[str, Any], labels: list[str], number: int, style: Style) -> dict[str, Any]:
    """A bar's colour, and hatching that tells it from the others without colours."""
    paper = style.paper if style.paper != "none" else "#FFFFFF"
    colour, hatch = looks[labels[number]][0], HATCHES[number % len(HATCHES)]
    return {"facecolor": colour, "edgecolor": paper, "hatch": hatch, "linewidth": 0}


def _without_batch_size(groups: list[Group]) -> list[Group]:
    rest = lambda group: tuple(pair for pair in group.settings if pair[0] != "batch_size")
    found = {group.label_without_batch_size: dataclasses.replace(group, settings=rest(group)) for group in groups}
    return list(found.values())


def ccdf(figure: Any, sources: Sequence[Source]):
    """How much of the archive is at least so fit: at the left it begins with the coverage. One panel per task."""
    tasks = by_task(sources)
    read_archives(sources)
    columns = min(len(tasks), 3)
    rows = -(-len(tasks) // columns)
    figure.set_size_inches(max(6.4, 4.6 * columns), 0.7 + 3.6 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    groups = {task: groups_of(members) for task, members in tasks.items()}
    looks = shades([group for found in groups.values() for group in found])
    entries: dict[str, Line2D] = {}
    for axes, task in zip(grid.flat, tasks, strict=False):
        archives = [source.archive for source in tasks[task]]
        thresholds = np.unique(np.concatenate([archive.fitness for archive in archives]))
        thresholds = thinned(np.concatenate([[min(0.0, float(thresholds[0]))], thresholds]).astype(float))
        for group in groups[task]:
            colour, dashes = looks[group.label]
            shares = np.stack([share_above(source, thresholds) for source in group.members])
            low, middle, high = quartiles(shares)
            axes.fill_between(thresholds, low, high, step="pre", color=colour, alpha=0.2, linewidth=0)
            (line,) = axes.plot(thresholds, middle, drawstyle="steps-pre", color=colour, linestyle=dashes)
            entries.setdefault(f"{group.label}, {seeds(len(group.members))}", line)
        axes.set(xlabel=WORDS["fitness"], ylabel="cells at least so fit (%)", ylim=(0, 100), xlim=(thresholds[0], None))
        axes.set_title(task, loc="left", fontweight="bold")
        numbers(axes)
    blank(list(grid.flat)[len(tasks) :])
    legend(figure, entries)


def share_above(source: Source, thresholds: np.ndarray) -> np.ndarray:
    """Percent of all cells that hold an elite of at least this fitness, for each threshold."""
    fitness = np.sort(source.archive.fitness.astype(float))
    return 100 * (len(fitness) - np.searchsorted(fitness, thresholds, side="left")) / source.cells
