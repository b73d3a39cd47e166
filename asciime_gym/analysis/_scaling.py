"""What another batch size changes: the paper's efficiency score, and the coefficient of variation."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ._series import seconds_at, value_at
from ._sources import Group, Source, along_batch_sizes, groups_of
from ._statistics import efficiency, variation


@dataclasses.dataclass(frozen=True)
class BatchSize:
    """The efficiency score of one batch size of an algorithm, mean over tasks; the best of them is chosen."""

    algorithm: str
    batch_size: int
    tasks: int
    efficiency: float
    best: bool


@dataclasses.dataclass(frozen=True)
class Variation:
    """How much the QD score of an algorithm depends on its batch size: coefficient of variation, mean over tasks."""

    algorithm: str
    batch_sizes: int
    tasks: int
    variation: float


def scaling(
    tasks: dict[str, list[Source]], evaluations: float | None = None
) -> tuple[tuple[BatchSize, ...], tuple[Variation, ...], tuple[str, ...]]:
    """Efficiency scores, variations and cautions, for every algorithm that was run with two batch sizes or more.

    Per task: medians over seeds of the QD score and of the runtime, when all runs of the task had spent the same
    evaluations (the runtime is linear within a generation); both are scaled from 0 to 1 over the batch sizes.
    """
    scores: dict[str, dict[int, list[float]]] = {}
    variations: dict[str, list[float]] = {}
    doubts: list[str] = []
    for task, members in tasks.items():
        spent = evaluations or min(float(source.past["evaluations"][-1]) for source in members)
        series = _by_algorithm(along_batch_sizes(groups_of(members)))
        doubts += _alone(task, series)
        for label, groups in series.items():
            if len(groups) < 2:
                continue
            sizes = [group.batch_size for group in groups if group.batch_size is not None]
            qd_score = [
                _median([value_at(s.past, "qd_score", "evaluations", spent) for s in g.members]) for g in groups
            ]
            runtime = [_median([seconds_at(s.past, spent) for s in g.members]) for g in groups]
            each = efficiency(qd_score, runtime)
            if np.isnan(each).any():
                doubts.append(f"{task}: all batch sizes of {label} have the same QD score or runtime: no efficiency")
                continue
            for size, score in zip(sizes, each, strict=True):
                scores.setdefault(label, {}).setdefault(size, []).append(float(score))
            variations.setdefault(label, []).append(variation(qd_score))
    doubts += _uneven(scores)
    return _batch_sizes(scores), _variations(variations, scores), tuple(doubts)


def _by_algorithm(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups that differ in their batch size alone."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.batch_size is not None:
            found.setdefault(group.label_without_batch_size, []).append(group)
    return found


def _alone(task: str, series: dict[str, list[Group]]) -> list[str]:
    """Settings with one batch size only, where their algorithm has several."""
    sizes: dict[str, set[int | None]] = {}
    for group in (group for groups in series.values() for group in groups):
        sizes.setdefault(group.algorithm, set()).add(group.batch_size)
    return [
        f"{task}: {label} was run with one batch size only: no efficiency; give files that differ in nothing else, or "
        "those of one way to scale by themselves"
        for label, groups in series.items()
        if len(groups) == 1 and len(sizes[groups[0].algorithm]) > 1
    ]


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _batch_sizes(scores: dict[str, dict[int, list[float]]]) -> tuple[BatchSize, ...]:
    found = []
    for label, sizes in scores.items():
        means = {size: math.fsum(each) / len(each) for size, each in sorted(sizes.items())}
        best = max(means, key=lambda size: means[size])
        found += [BatchSize(label, size, len(sizes[size]), mean, size == best) for size, mean in means.items()]
    return tuple(found)


def _variations(variations: dict[str, list[float]], scores: dict[str, dict[int, list[float]]]) -> tuple[Variation, ...]:
    return tuple(
        Variation(label, len(scores[label]), len(each), math.fsum(each) / len(each))
        for label, each in variations.items()
    )


def _uneven(scores: dict[str, dict[int, list[float]]]) -> list[str]:
    """Batch sizes that were not run on every task: their means are of other tasks."""
    found = []
    for label, sizes in scores.items():
        counts = {size: len(each) for size, each in sorted(sizes.items())}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{size:,} in {count}" for size, count in counts.items())
            found.append(f"efficiency of {label}: not every batch size was run on every task ({told} tasks)")
    return found
