"""Histories on common axes: step functions, medians and quartiles over seeds."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .._metrics import History

Axis = Literal["evaluations", "seconds"]
METRICS = ("qd_score", "coverage", "max_fitness")
MOST_POINTS = 2000  # of a curve: more than a picture can show


class Band(NamedTuple):
    """Median and quartiles over runs, at points of a common axis."""

    at: Float[np.ndarray, " points"]
    lower: Float[np.ndarray, " points"]
    median: Float[np.ndarray, " points"]
    upper: Float[np.ndarray, " points"]


def quartiles(values: Float[np.ndarray, "runs *points"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower quartile, median and upper quartile over the first axis; linear between two runs."""
    levels = (0.25, 0.5, 0.75)
    with np.errstate(invalid="ignore"):
        found = np.quantile(values, levels, axis=0)
    # Between minus infinity, the best of an empty archive, and anything else there is nothing but minus infinity.
    found = np.where(np.isneginf(np.quantile(values, levels, axis=0, method="lower")), -np.inf, found)
    return found[0, ...], found[1, ...], found[2, ...]


def held(at: np.ndarray, values: np.ndarray, points: np.ndarray, before: float = np.nan) -> np.ndarray:
    """A step function: at each point the last value at or before it. An archive does not change between generations."""
    place = np.searchsorted(at, points, side="right") - 1
    return np.where(place >= 0, np.asarray(values, float)[np.maximum(place, 0)], before)


def thinned(points: np.ndarray) -> np.ndarray:
    """Evenly chosen ones of very many points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    return points[np.linspace(0, len(points) - 1, MOST_POINTS).astype(int)]


def column(history: History, name: str) -> Float[np.ndarray, " generations"]:
    """A column as people see it: coverage in percent, no best where the archive is empty, additions summed up."""
    values = history[name].astype(float)
    if name == "coverage":
        return 100 * values
    if name.startswith("added_"):
        return np.cumsum(values)
    return np.where(np.isfinite(values), values, np.nan)


def band(histories: Sequence[History], metric: str, axis: Axis = "evaluations") -> Band:
    """Median and quartiles of several runs, whose generations need not end at the same points.

    Each run is a step function, the last value carried forward. The axis is restricted to the range that all runs
    cover, so that every point is a median of all of them.
    """
    axes = [history[axis].astype(float) for history in histories]
    start, end = max(at[0] for at in axes), min(at[-1] for at in axes)
    if start > end:
        raise ValueError(
            f"the runs have no {axis} in common: one begins at {start:,.6g} where another ends at {end:,.6g}"
        )
    points = np.unique(np.concatenate(axes))
    points = points[(points >= start) & (points <= end)]
    points = thinned(points)
    values = [held(at, column(history, metric), points) for at, history in zip(axes, histories, strict=True)]
    return Band(points, *quartiles(np.stack(values)))


def bands(histories: Sequence[History], metric: str, axis: Axis = "evaluations") -> list[Band]:
    """The band of several runs; or each by itself, where one ends before another has begun."""
    start, end = max(history[axis][0] for history in histories), min(history[axis][-1] for history in histories)
    return [band(histories, metric, axis)] if start <= end else [band([history], metric, axis) for history in histories]


def value_at(history: History, metric: str, axis: Axis, point: float) -> float:
    """A run's figure when so much was spent; nothing was found before the first generation ended."""
    nothing = -np.inf if metric == "max_fitness" else 0.0
    return float(held(history[axis], history[metric], np.array([point]), nothing)[0])


def seconds_at(history: History, evaluations: float) -> float:
    """The time by which so many evaluations were spent; linear within a generation."""
    spent, seconds = history["evaluations"].astype(float), history["seconds"]
    return float(np.interp(evaluations, np.concatenate([[0.0], spent]), np.concatenate([[0.0], seconds])))
