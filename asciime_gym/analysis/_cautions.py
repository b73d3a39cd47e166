"""Where a comparison says less than it seems to."""

from collections.abc import Sequence
from typing import Any

from ._series import Axis
from ._sources import Source, groups_of
from ._statistics import seeds_needed, smallest_p


def budget_cautions(task: str, members: Sequence[Source], spent: dict[Axis, float], wanted: bool) -> list[str]:
    """Runs that went on for longer than others, or had nothing yet where they are compared."""
    last = [int(source.past["evaluations"][-1]) for source in members]
    longer = [source for source in members if _before_last(source) >= min(last)]  # by more than the last generation
    found = []
    if longer and not wanted:
        found.append(
            f"{task}: budgets differ: runs end at {min(last):,} to {max(last):,} evaluations; they are compared at "
            f"{min(last):,}, and what {len(longer)} of {len(members)} runs did later is not used"
        )
    for axis, point in spent.items():
        for group in groups_of(members):
            late = [source for source in group.members if source.past[axis][0] > point]
            if late:
                found.append(
                    f"{task}: {len(late)} of {len(group.members)} runs of {group.label} had not ended a generation at "
                    f"{point:,.6g} {axis}, and count as empty archives there"
                )
    return found + _version_cautions(task, members)


def _version_cautions(task: str, members: Sequence[Source]) -> list[str]:
    """Runs of several versions of what the results depend on."""
    found = []
    for name in ("asciime_gym", "jax", "brax"):
        known = sorted({str(source.versions[name]) for source in members if name in source.versions})
        if len(known) > 1:
            found.append(f"{task}: the runs were made with several versions of {name}: {', '.join(known)}")
    return found


def _before_last(source: Source) -> int:
    """The evaluations spent before the last generation."""
    spent = source.past["evaluations"]
    return int(spent[-2]) if len(spent) > 1 else 0


def seed_cautions(tests: Sequence[Any], figures: Sequence[Any], alpha: float, family: str) -> list[str]:
    """What can be significant at all with so few seeds."""
    found = []
    single = sorted({(figure.task, figure.algorithm) for figure in figures if figure.seeds == 1})
    for task, algorithm in single:
        found.append(f"{task}: one seed of {algorithm}: median and quartiles are that one run")
    families: dict[tuple, int] = {}
    for test in tests:
        key = (test.task, test.axis, test.metric) if family == "task" else ()
        families[key] = families.get(key, 0) + 1
    said = set()
    for test in tests:
        count = families[(test.task, test.axis, test.metric) if family == "task" else ()]
        least = smallest_p(test.first_seeds, test.second_seeds)
        fact = (test.task, test.first_seeds, test.second_seeds, count)
        if count * least >= alpha and fact not in said:
            said.add(fact)
            found.append(
                f"{test.task}: with {test.first_seeds} and {test.second_seeds} seeds the smallest possible p is "
                f"{least:.3g}, or {min(1.0, count * least):.3g} as one of {count} tests: no difference can be "
                f"significant at {alpha:g}; that takes {seeds_needed(count, alpha)} seeds a side"
            )
    return found
