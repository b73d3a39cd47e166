"""Runs compared: figures per task and algorithm, tests between algorithms, and what batch sizes change."""

import dataclasses
import io
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ._cautions import budget_cautions, seed_cautions
from ._optional import pandas
from ._scaling import BatchSize, Variation, scaling
from ._series import METRICS, Axis, quartiles, value_at
from ._sources import Group, Source, by_task, groups_of, read, refuse_twins
from ._statistics import cliffs_delta, holm, magnitude, mann_whitney, vargha_delaney
from ._tables import csv_text, markdown, rich_tables, sheets

Family = Literal["task", "all"]
Table = Literal["figures", "tests", "batch_sizes", "variation"]


@dataclasses.dataclass(frozen=True)
class Figure:
    """Median and quartiles of one metric of one algorithm, when so much was spent."""

    task: str
    axis: Axis
    spent: float
    metric: str
    algorithm: str
    seeds: int
    median: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Difference:
    """One algorithm against another: U, p before and after correction, and how large the effect is."""

    task: str
    axis: Axis
    spent: float
    metric: str
    first: str
    second: str
    first_seeds: int
    second_seeds: int
    u: float
    p: float
    p_holm: float
    method: str
    a: float
    delta: float
    effect: str
    significant: bool


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` found; `print` shows it as tables, so does a notebook.

    `figures`, `tests`, `batch_sizes` and `variation` are tuples of records; `cautions` says where not to trust them.
    """

    figures: tuple[Figure, ...]
    tests: tuple[Difference, ...]
    batch_sizes: tuple[BatchSize, ...]
    variation: tuple[Variation, ...]
    cautions: tuple[str, ...]
    alpha: float

    def to_dataframe(self, table: Table = "figures") -> Any:
        """One of the tables as a pandas DataFrame (extra `analysis`)."""
        if table not in get_args(Table):
            raise ValueError(f"table must be one of {list(get_args(Table))}; got {table!r}")
        return pandas().DataFrame([dataclasses.asdict(record) for record in getattr(self, table)])

    def to_markdown(self) -> str:
        return markdown(sheets(self), self.cautions)

    def to_csv(self, path: str | os.PathLike | None = None) -> str:
        """All records as CSV, one a row, the table that each belongs to in the first column; also written to `path`."""
        from .._atomic import replacing

        text = csv_text({table: getattr(self, table) for table in get_args(Table)})
        if path is not None:
            with replacing(Path(path)) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return text

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield rich_tables(sheets(self), self.cautions, options.max_width)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        from rich.console import Console

        page = io.StringIO()
        Console(file=page, width=140).print(self)
        return page.getvalue().rstrip()


def compare(
    files: Any,
    *,
    evaluations: float | None = None,
    seconds: float | None = None,
    reference: str | None = None,
    alpha: float = 0.05,
    family: Family = "task",
) -> Comparison:
    """Compares runs of several seeds: each task by itself, at equal evaluations and at equal seconds.

    Runs are grouped by algorithm and by whatever hyperparameters differ. A run's figure is that of its last generation
    within the budget. Seconds can be compared only where all runs had the same machine to themselves. Pairs are tested
    by Wilcoxon-Mann-Whitney's U, two-sided, exact for up to 50 seeds a side (with ties: where all ways of dealing the
    runs out can be tried); p-values are corrected by Holm and Bonferroni.

    **Arguments:**

    - `files`: paths or optimizers.
    - `evaluations`, `seconds`: where to compare; by default as far as all runs of the task have come.
    - `reference`: test this algorithm against the others, instead of every pair: fewer tests, less correction.
    - `alpha`: what p has to be below, after correction, to be called significant.
    - `family`: which tests are corrected together: those of a `"task"` for one metric at one budget, or `"all"`.
    """
    if family not in get_args(Family):
        raise ValueError(f"family must be one of {list(get_args(Family))}; got {family!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1; got {alpha}")
    sources = read(files)
    refuse_twins(sources)
    tasks = by_task(sources)
    figures, tests, cautions = [], [], []
    for task, members in tasks.items():
        groups = groups_of(members)
        _check_reference(reference, task, groups)
        budgets: dict[Axis, float] = {
            "evaluations": _budget(task, members, "evaluations", evaluations),
            "seconds": _budget(task, members, "seconds", seconds),
        }
        for axis, spent in budgets.items():
            for metric in METRICS:
                values = {g.label: [value_at(s.past, metric, axis, spent) for s in g.members] for g in groups}
                figures += [_figure(task, axis, spent, metric, label, each) for label, each in values.items()]
                tests += _tests(task, axis, spent, metric, values, _pairs(groups, reference))
        cautions += budget_cautions(task, members, budgets, wanted=evaluations is not None)
    tests = _corrected(tests, family, alpha)
    cautions += seed_cautions(tests, figures, alpha, family)
    batch_sizes, spread, doubts = scaling(tasks, evaluations)
    found = (tuple(figures), tuple(tests), batch_sizes, spread, (*cautions, *doubts))
    return Comparison(*found, alpha=alpha)


def _budget(task: str, members: Sequence[Source], axis: Axis, wanted: float | None) -> float:
    least = min(members, key=lambda source: source.past[axis][-1])
    reached = float(least.past[axis][-1])
    if wanted is None:
        return reached
    if not 0 < wanted <= reached:
        raise ValueError(
            f"runs of {task} can be compared at up to {reached:,.6g} {axis}, where {least.name} ends; got {wanted:,.6g}"
        )
    return float(wanted)


def _figure(task: str, axis: Axis, spent: float, metric: str, label: str, values: Sequence[float]) -> Figure:
    lower, median, upper = (float(value) for value in quartiles(np.array(values)))
    return Figure(task, axis, spent, metric, label, len(values), median, lower, upper)


def _pairs(groups: Sequence[Group], reference: str | None) -> list[tuple[str, str]]:
    labels = [group.label for group in groups]
    if reference is None:
        return list(itertools.combinations(labels, 2))
    chosen = [group.label for group in groups if reference in (group.label, group.algorithm)]
    return [(first, second) for first in chosen for second in labels if second not in chosen]


def _check_reference(reference: str | None, task: str, groups: Sequence[Group]):
    known = [group.label for group in groups]
    if reference is not None and not any(reference in (group.label, group.algorithm) for group in groups):
        raise ValueError(f"there is no run of the reference {reference!r} on {task}; there are {', '.join(known)}")


def _tests(
    task: str,
    axis: Axis,
    spent: float,
    metric: str,
    values: dict[str, list[float]],
    pairs: Sequence[tuple[str, str]],
) -> list[Difference]:
    found = []
    for first, second in pairs:
        test = mann_whitney(values[first], values[second])
        a = vargha_delaney(values[first], values[second])
        sizes = (len(values[first]), len(values[second]))
        effect = (a, cliffs_delta(a), magnitude(a))
        statistic = (test.u, test.p, test.p, test.method)
        found.append(Difference(task, axis, spent, metric, first, second, *sizes, *statistic, *effect, False))
    return found


def _corrected(tests: list[Difference], family: Family, alpha: float) -> list[Difference]:
    """The tests with the p-values that each family of them leaves."""
    key = lambda test: (test.task, test.axis, test.metric) if family == "task" else ()
    families: dict[tuple, list[int]] = {}
    for place, test in enumerate(tests):
        families.setdefault(key(test), []).append(place)
    corrected = list(tests)
    for places in families.values():
        for place, p in zip(places, holm([tests[place].p for place in places]), strict=True):
            corrected[place] = dataclasses.replace(tests[place], p_holm=p, significant=p < alpha)
    return corrected
