"""Curves over seeds: what runs reached, and which operators added to it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._colours import operator_colour
from ._series import METRICS, Axis, Band, bands, column
from ._sources import Source, by_task, groups_of
from ._style import ALGORITHMS, WORDS, blank, legend, numbers, seeds, shades, time_unit


def history_panels(figure: Any, source: Source):
    """One run's QD score, coverage and best fitness against evaluations, one above the other."""
    history, colour = source.past, ALGORITHMS.get(source.algorithm_name, ALGORITHMS["ascii_me"])
    grid = figure.subplots(len(METRICS), 1, sharex=True)
    for axes, metric in zip(grid, METRICS, strict=True):
        values = column(history, metric)
        marker = "o" if len(history) < 3 else None
        axes.plot(history["evaluations"], values, color=colour, drawstyle="steps-post", marker=marker)
        axes.set_ylabel(WORDS[metric].replace(" (", "\n("))
        _limits(axes, metric)
    grid[-1].set(xlabel=WORDS["evaluations"], xlim=(0, None))
    numbers(grid[-1], "x")


def curves(figure: Any, sources: Sequence[Source], against: Sequence[Axis]):
    """Rows: tasks, against evaluations and against time. Columns: the metrics. One curve per algorithm."""
    tasks = by_task(sources)
    rows: list[tuple[str, Axis]] = [(task, axis) for task in tasks for axis in against]
    figure.set_size_inches(12, 0.7 + 2.75 * len(rows))
    grid = figure.subplots(len(rows), len(METRICS), squeeze=False)
    groups = {task: groups_of(members) for task, members in tasks.items()}
    looks = shades([group for found in groups.values() for group in found])
    entries: dict[str, Any] = {}
    for line, (task, axis) in zip(grid, rows, strict=True):
        latest = max(float(source.past[axis][-1]) for source in tasks[task])
        unit, name = time_unit(latest) if axis == "seconds" else (1.0, "")
        for axes, metric in zip(line, METRICS, strict=True):
            for group in groups[task]:
                for shown in bands([source.past for source in group.members], metric, axis):
                    drawn = _draw_band(axes, shown, *looks[group.label], unit=unit)
                    entries.setdefault(f"{group.label}, {seeds(len(group.members))}", drawn)
            axes.set(xlabel=f"time ({name})" if axis == "seconds" else WORDS["evaluations"], xlim=(0, None))
            axes.set(ylabel=WORDS[metric])
            numbers(axes, "x", bins=4)
            _limits(axes, metric)
        line[0].set_title(task, loc="left", fontweight="bold")
    legend(figure, entries)


def _draw_band(axes: Any, shown: Band, colour: str, dashes: Any, unit: float = 1.0) -> Any:
    at = shown.at / unit
    axes.fill_between(at, shown.lower, shown.upper, step="post", color=colour, alpha=0.2, linewidth=0)
    marker = "o" if len(at) < 3 else None
    (line,) = axes.plot(at, shown.median, drawstyle="steps-post", color=colour, linestyle=dashes, marker=marker)
    return line


def operators(figure: Any, sources: Sequence[Source]):
    """Rows that entered the archive, summed up, by operator: one panel per task and algorithm."""
    panels = [group for members in by_task(sources).values() for group in groups_of(members)]
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure.set_size_inches(max(5.2, 4.3 * columns), 0.7 + 3.2 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    names = tuple(dict.fromkeys(name for group in panels for source in group.members for name in source.past.operators))
    entries: dict[str, Any] = {}
    for axes, group in zip(grid.flat, panels, strict=False):
        histories = [source.past for source in group.members]
        for name in histories[0].operators:
            dashes = "-" if name != "initial" else (0, (1.5, 1.2))
            for shown in bands(histories, f"added_{name}"):
                entries.setdefault(name, _draw_band(axes, shown, operator_colour(name, names), dashes))
        axes.set_title(f"{group.task}: {group.label}, {seeds(len(histories))}")
        axes.set(xlabel=WORDS["evaluations"], ylabel="additions so far (elites)", xlim=(0, None), ylim=(0, None))
        numbers(axes, bins=4)
    blank(list(grid.flat)[len(panels) :])
    legend(figure, entries)


def _limits(axes: Any, metric: str):
    if metric == "coverage":
        axes.set(ylim=(0, 100))
    else:
        low, high = axes.dataLim.intervaly if np.isfinite(axes.dataLim.intervaly).all() else (0, 1)
        axes.set(ylim=(min(0.0, 1.05 * low), 1.05 * high if high > 0 else None))
    numbers(axes, "y", bins=4)
