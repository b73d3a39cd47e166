"""The archive against a slow one in plain Python, and its other promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asciime_gym._archive import Archive, Elites, cvt_centroids, empty_archive

LOW, HIGH = (0.0, -2.0), (1.0, 2.0)
CENTROIDS = np.array([[0.25, -1.0], [0.75, -1.0], [0.25, 1.0], [0.75, 1.0], [0.5, 0.0]])


def newcomers(fitness, descriptor, first_evaluation=0) -> Elites:
    rows = len(fitness)
    number = jnp.arange(rows, dtype=jnp.int32) + first_evaluation
    return Elites(
        genotype=number[:, None].astype(jnp.float32) * jnp.ones((rows, 3)),
        fitness=jnp.asarray(fitness, jnp.float32),
        descriptor=jnp.asarray(descriptor, jnp.float32),
        operator=number % 3,
        evaluation=number,
        steps=number + 7,
        key=jnp.stack([number, number + 1], axis=1).astype(jnp.uint32),
        keepsake={"memory": number[:, None] * jnp.ones((1, 2))},
    )


def empty() -> Archive:
    return empty_archive(jnp.asarray(CENTROIDS), LOW, HIGH, newcomers([0.0], [[0.0, 0.0]]))


class SlowArchive:
    """One dictionary entry per filled cell; every rule spelled out."""

    def __init__(self):
        self.elite: dict[int, tuple[float, int]] = {}  # cell -> (fitness, evaluation)
        self.first: dict[int, int] = {}

    def cell(self, descriptor) -> int:
        low, high = np.array(LOW), np.array(HIGH)
        point = np.clip((np.asarray(descriptor) - low) / (high - low), 0, 1)
        distances = [float(np.sum((point - (c - low) / (high - low)) ** 2)) for c in CENTROIDS]
        return distances.index(min(distances))  # the lowest cell of a tie

    def add(self, fitness, descriptor, candidate, start):
        """What each row added to the QD score, or None where it did not enter."""
        best: dict[int, int] = {}
        for row, (f, d, c) in enumerate(zip(fitness, descriptor, candidate, strict=True)):
            if not c or not np.isfinite(f) or not np.isfinite(d).all():
                continue
            cell = self.cell(d)
            if cell not in best or f > fitness[best[cell]]:  # the lowest row of a tie
                best[cell] = row
        gains = [None] * len(fitness)
        for cell, row in best.items():
            old = self.elite.get(cell)
            if old is None or fitness[row] > old[0]:
                gains[row] = fitness[row] - (old[0] if old else 0.0)
                self.elite[cell] = (fitness[row], start + row)
                self.first.setdefault(cell, start + row)
        return gains


# Quarters are exact in binary, so that ties are ties in both implementations.
quarters = st.integers(-12, 12).map(lambda n: n / 4)
fitnesses = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([np.nan, np.inf, -np.inf]))
places = st.one_of(quarters, st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -1e30]))
row = st.tuples(fitnesses, st.tuples(places, places), st.booleans() | st.just(True))
batch_of_rows = st.lists(row, min_size=8, max_size=8)
add = jax.jit(Archive.add)


@settings(max_examples=150, deadline=None)
@given(st.lists(batch_of_rows, min_size=1, max_size=4))
def test_add_agrees_with_the_slow_archive(batches):
    archive, slow = empty(), SlowArchive()
    for number, batch in enumerate(batches):
        fitness, descriptor, candidate = (list(column) for column in zip(*batch, strict=True))
        archive, added, gain = add(archive, newcomers(fitness, descriptor, 8 * number), jnp.array(candidate))
        expected = slow.add(fitness, [np.array(d) for d in descriptor], candidate, 8 * number)
        assert added.tolist() == [g is not None for g in expected]
        np.testing.assert_allclose(gain, [g or 0.0 for g in expected])
    filled = np.flatnonzero(archive.filled).tolist()
    assert filled == sorted(slow.elite)
    for cell in filled:
        fitness, evaluation = slow.elite[cell]
        elites = archive.elites
        assert float(elites.fitness[cell]) == fitness
        assert int(elites.evaluation[cell]) == evaluation
        # Everything else of the row came along.
        assert int(elites.operator[cell]) == evaluation % 3
        assert int(elites.steps[cell]) == evaluation + 7
        assert elites.key[cell].tolist() == [evaluation, evaluation + 1]
        assert elites.genotype[cell].tolist() == [evaluation] * 3
        assert elites.keepsake["memory"][cell].tolist() == [evaluation] * 2
        assert int(archive.first_filled[cell]) == slow.first[cell]


def test_a_bad_row_does_not_displace_a_good_one_of_its_cell():
    archive, added, _ = add(empty(), newcomers([np.inf, np.nan, 1.0], [[0.25, -1.0]] * 3), jnp.ones(3, bool))
    assert added.tolist() == [False, False, True]
    assert archive.elites.fitness.tolist() == [1.0] + [-np.inf] * 4


def test_an_empty_archive_says_so_everywhere():
    archive = empty()
    assert not archive.filled.any()
    assert (archive.elites.fitness == -np.inf).all()
    assert (archive.elites.evaluation == -1).all() and (archive.first_filled == -1).all()


def test_sample_is_uniform_over_filled_cells():
    archive, *_ = add(empty(), newcomers([1.0, 2.0, 3.0], [[0.0, -2.0], [0.5, 0.0], [1.0, 2.0]]), jnp.ones(3, bool))
    cells = np.asarray(archive.sample(jax.random.key(0), 9000))
    counts = np.bincount(cells, minlength=5)
    assert counts[[1, 2]].sum() == 0
    # 4 standard deviations of a binomial with p = 1/3.
    assert (abs(counts[[0, 3, 4]] - 3000) < 4 * np.sqrt(9000 * 2 / 9)).all()


@pytest.mark.parametrize("dims", [1, 2, 4])
def test_centroids_are_spread_evenly_and_always_the_same(dims):
    low, high = (-3.0,) * dims, (5.0,) * dims
    centroids = cvt_centroids(128, low, high)
    assert centroids.shape == (128, dims) and centroids.dtype == np.float32
    assert (centroids > -3).all() and (centroids < 5).all()
    assert len(np.unique(centroids, axis=0)) == 128
    np.testing.assert_array_equal(centroids, cvt_centroids(128, low, high))
    # Centroidal: each is close to the mean of the points nearest to it, where uniform points would not be.
    points = np.random.default_rng(1).uniform(-3, 5, (60_000, dims))
    nearest = np.argmin(((points[:, None] - centroids[None]) ** 2).sum(-1), axis=1) if dims < 4 else None
    if nearest is not None:
        means = np.stack([points[nearest == cell].mean(axis=0) for cell in range(128)])
        spacing = 8 / 128 ** (1 / dims)
        assert np.abs(means - centroids).mean() < 0.1 * spacing
    if dims == 1:
        assert (np.diff(centroids[:, 0]) > 0).all()


def test_lookup_measures_in_units_of_the_bounds():
    # In plain metres the first centroid is nearer; in units of the bounds the second.
    like = newcomers([0.0], [[0.0, 0.0]])
    archive = empty_archive(jnp.array([[0.0, 0.0], [0.9, 100.0]]), (0.0, 0.0), (1.0, 1000.0), like)
    assert archive.lookup(jnp.array([[0.8, 0.0]])).tolist() == [1]
