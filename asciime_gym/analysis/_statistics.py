"""Statistics that runs are compared by."""

import contextlib
import gc
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ._optional import need

EXACT = 50  # up to so many runs a side the distribution of U is worked out exactly
PERMUTATIONS = 20_000  # where runs are tied: up to so many ways of dealing them out are all tried


class Test(NamedTuple):
    """Wilcoxon-Mann-Whitney's U of the first sample against the second, two-sided."""

    u: float
    p: float
    method: str  # "exact", "permutations" (exact with ties), or "normal" (an approximation)


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> Test:
    """Whether one sample tends to be larger than the other."""
    stats = need("scipy.stats")
    size = len(first)
    # Of the ranks: minus infinity, the best of an empty archive, is a value like any other.
    ranks = stats.rankdata(np.concatenate([first, second]))
    tied = len(np.unique(ranks)) < len(ranks)
    if tied and math.comb(len(ranks), size) <= PERMUTATIONS:
        return Test(float(ranks[:size].sum()) - size * (size + 1) / 2, _by_permutations(ranks, size), "permutations")
    exact = not tied and max(size, len(second)) <= EXACT
    found = stats.mannwhitneyu(ranks[:size], ranks[size:], method="exact" if exact else "asymptotic")
    return Test(float(found.statistic), min(1.0, float(found.pvalue)), "exact" if exact else "normal")


def _by_permutations(ranks: Float[np.ndarray, " values"], size: int) -> float:
    """Twice the share of all ways of dealing the ranks out that give a sum as far out as that of the first ones."""
    deals = np.array(list(itertools.combinations(range(len(ranks)), size)))
    sums = ranks[deals].sum(axis=1)  # halves at most: they are exact
    tail = min(np.mean(sums >= ranks[:size].sum()), np.mean(sums <= ranks[:size].sum()))
    return min(1.0, 2 * float(tail))


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for being one of several, by Holm and Bonferroni."""
    if len(p) < 2:
        return list(p)
    multitest = need("statsmodels.stats.multitest")
    with _nothing_to_collect():
        return [float(value) for value in multitest.multipletests(p, method="holm")[1]]


@contextlib.contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Statsmodels has all garbage of the process collected at every call: a third of a second, with JAX loaded."""
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()


def vargha_delaney(first: Sequence[float], second: Sequence[float]) -> float:
    """A: the chance that a run of the first is better than one of the second; a tie counts half."""
    a, b = np.asarray(first)[:, None], np.asarray(second)[None, :]
    return float(np.mean((a > b) + 0.5 * (a == b)))


def cliffs_delta(a: float) -> float:
    """Cliff's delta, from -1 to 1, of Vargha and Delaney's A, from 0 to 1."""
    return 2 * a - 1


def magnitude(a: float) -> str:
    """How large an effect is, in Vargha and Delaney's words."""
    distance = abs(a - 0.5)
    limits = ((0.06, "negligible"), (0.14, "small"), (0.21, "medium"))
    return next((word for limit, word in limits if distance < limit - 1e-12), "large")


def smallest_p(first: int, second: int) -> float:
    """The least two-sided p that samples of these sizes can have at all: every value of one above all of the other."""
    return min(1.0, 2 / math.comb(first + second, first))


def seeds_needed(tests: int, alpha: float) -> int:
    """The least number of seeds a side with which one of so many tests can be significant after correction."""
    return next(count for count in range(1, 10_000) if tests * smallest_p(count, count) < alpha)


def min_max(values: Sequence[float]) -> Float[np.ndarray, " values"]:
    """Values scaled so that the least is 0 and the largest 1; not a number where all are the same."""
    array = np.asarray(values, float)
    size = array.max() - array.min()
    return (array - array.min()) / size if size > 0 else np.full(len(array), np.nan)


def efficiency(qd_score: Sequence[float], seconds: Sequence[float]) -> Float[np.ndarray, " sizes"]:
    """The paper's efficiency score of each batch size in one task: min-max QD score times (1 - min-max runtime)."""
    return min_max(qd_score) * (1 - min_max(seconds))


def variation(qd_score: Sequence[float]) -> float:
    """The coefficient of variation over batch sizes: standard deviation (n - 1) over mean."""
    values = np.asarray(qd_score, float)
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 and values.mean() > 0 else math.nan
