"""MEMES: what a generation asks for, how lineages step, and when they begin anew."""

import numpy as np
import pytest
from scipy.stats import rankdata

import asciime_gym as ag
from asciime_gym.algorithms.memes import Memes

POLICY = ag.MLP(3, 2, hidden=(4,))
PROBLEM = ag.Problem(policy=POLICY, descriptor_low=[0.0, 0.0], descriptor_high=[1.0, 2.0], episode_length=10)
CELLS = np.array([[0.2, 0.2], [0.8, 1.8]], np.float32)
SMALL = {"batch_size": 4 * 7, "samples": 6, "neighbours": 3, "novelty_capacity": 20}


def begun(**fields) -> ag.Optimizer:
    """An optimizer whose initial rows are told: all are equally good, and fall into the first cell."""
    optimizer = ag.Optimizer(Memes(**SMALL | fields), PROBLEM, centroids=CELLS)
    optimizer.ask()
    rows = optimizer.algorithm.batch_size
    optimizer.tell(np.zeros(rows), np.full((rows, 2), 0.1))
    return optimizer


def parts(optimizer, rows):
    """Centres, and the probes of each."""
    count, samples = optimizer.algorithm.lineages, optimizer.algorithm.samples
    return rows[:count], rows[count:].reshape(count, samples, *rows.shape[1:])


# What there is --------------------------------------------------------------------------------------------------


def test_defaults_are_the_papers():
    memes = Memes()
    assert (memes.samples, memes.sigma, memes.learning_rate) == (1000, 0.02, 0.01)
    assert (memes.neighbours, memes.novelty_capacity, memes.patience) == (10, 50_000, 32)
    assert (memes.lineages, memes.explorers, memes.batch_size) == (8, 4, 8 * 1001)


def test_a_batch_is_whole_lineages():
    assert Memes(batch_size=100, samples=10).batch_size == 99
    assert Memes(batch_size=99, samples=10).batch_size == 99
    assert Memes.small().lineages >= 8 and Memes.small(samples=4).samples == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch_size": 21, "samples": 10}, "at least 22, two lineages.*got 21.*larger batch or fewer samples"),
        ({"samples": 7}, "mirrored pairs and must be even; got 7"),
        ({"samples": 0}, "at least 1; got 0"),
        ({"sigma": 0.0}, "sigma must be above 0; got 0.0"),
        ({"explore_share": 1.5}, "explore_share must be between 0 and 1; got 1.5"),
        ({"patience": 0}, "patience must be a whole number of at least 1; got 0"),
    ],
)
def test_nonsense_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Memes(**SMALL | fields)


# What is asked for ----------------------------------------------------------------------------------------------


def test_a_generation_is_centres_and_mirrored_probes():
    optimizer = begun()
    centres, probes = parts(optimizer, optimizer.ask())
    assert all((centre == optimizer.archive.genotype).all(axis=1).any() for centre in centres)
    middle = (probes[:, :3] + probes[:, 3:]) / 2
    np.testing.assert_allclose(middle, np.broadcast_to(centres[:, None], middle.shape), atol=1e-6)
    deviation = (probes - centres[:, None]).std()
    assert 0.9 * 0.02 < deviation < 1.1 * 0.02


def test_only_centres_are_candidates_and_every_probe_is_counted():
    optimizer = begun()
    rows = optimizer.ask()
    better = np.arange(len(rows), dtype=np.float32) + 1  # the later, the better: probes above all
    feedback = optimizer.tell(better, np.full((len(rows), 2), 0.1))
    assert np.flatnonzero(feedback.added).tolist() == [3]  # the last centre
    assert optimizer.archive.fitness.tolist() == [4.0]
    assert optimizer.evaluations == 2 * len(rows) and optimizer.history["added_probe"].sum() == 0
    assert [optimizer.history[f"added_{name}"][-1] for name in ("explore", "exploit")] == [0, 1]


def test_life_is_that_of_the_last_centre():
    optimizer = begun()
    rows = len(optimizer.ask())
    assert np.asarray(optimizer.life).tolist() == [10] * rows
    optimizer.tell(np.zeros(rows), np.full((rows, 2), 0.1), steps=1 + np.arange(rows) % 5)
    optimizer.ask()
    centres, probes = parts(optimizer, np.asarray(optimizer.life))
    assert centres.tolist() == [1, 2, 3, 4] and probes.tolist() == [[life] * 6 for life in centres]


# How lineages step ----------------------------------------------------------------------------------------------


def first_step(centre, probes, value):
    """One step of a fresh Adam up the gradient of ranks, one sample at a time."""
    ranks = (rankdata(value) - 1) / (len(value) - 1) - 0.5
    noise = (probes.astype(float) - centre) / 0.02
    uphill = sum(rank * row for rank, row in zip(ranks, noise, strict=True)) / (len(value) * 0.02)
    return centre + 0.01 * uphill / (np.abs(uphill) + 1e-8)


def test_a_step_is_the_gradient_of_fitness_or_of_novelty():
    optimizer, rng = begun(), np.random.default_rng(0)
    rows = optimizer.ask()
    fitness = -np.ones(len(rows)) - rng.integers(0, 4, len(rows))  # with ties, and never good enough for the archive
    descriptor = rng.random((len(rows), 2)) * [1, 2]
    optimizer.tell(fitness, descriptor)
    centres, probes = parts(optimizer, rows)
    now, _ = parts(optimizer, optimizer.ask())
    _, fitness = parts(optimizer, fitness)
    seen, place = parts(optimizer, descriptor / [1, 2])  # distances are in units of the bounds
    distance = np.linalg.norm(place[:, :, None] - seen, axis=-1)
    novel = np.sort(distance, axis=-1)[..., :3].mean(axis=-1)
    for i, value in enumerate([novel[0], novel[1], fitness[2], fitness[3]]):  # half explore, half exploit
        np.testing.assert_allclose(now[i], first_step(centres[i], probes[i], value), atol=2e-5)
    assert (np.abs(now - centres) > 0.005).mean() > 0.9


def test_what_is_not_finite_counts_as_the_worst():
    one, other = begun(explore_share=0.0), begun(explore_share=0.0)
    rows = len(one.ask())
    fitness = np.arange(rows, dtype=np.float32)
    worst = np.where(np.arange(rows) % 5 == 4, -1e9, fitness)
    broken = np.where(np.arange(rows) % 5 == 4, np.nan, fitness)
    other.ask()
    one.tell(worst, np.full((rows, 2), 0.1))
    other.tell(broken, np.full((rows, 2), 0.1))
    assert np.array_equal(one.ask(), other.ask()) and np.isfinite(one.ask()).all()


def test_the_oldest_centres_are_forgotten_and_broken_ones_never_remembered():
    optimizer = begun()  # 20 are remembered: five generations of four
    rows = len(optimizer.ask())
    for generation in range(7):
        optimizer.ask()
        descriptor = np.full((rows, 2), generation / 10)
        descriptor[0] = np.nan if generation == 6 else descriptor[0]
        optimizer.tell(np.zeros(rows), descriptor)
    seen = optimizer._run.state.seen
    remembered = np.sort(np.asarray(seen.items)[:, 0].round(3))
    assert int(seen.count) == 20 and np.isfinite(remembered).all()
    # of the generations 0 … 6 the last 20 centres: one of generation 1, four of 2, 3, 4 and 5, three of 6
    assert remembered.tolist() == pytest.approx([0.1] + [0.2] * 4 + [0.3] * 4 + [0.4] * 4 + [0.5] * 4 + [0.6] * 3)


# When they begin anew -------------------------------------------------------------------------------------------


def starve(optimizer, fed: set[int]):
    """A generation in which only the centres of these lineages get better; all stay in one cell."""
    rows = optimizer.algorithm.batch_size
    optimizer.ask()
    fitness = np.full(rows, -1.0)
    # Each in a cell of its own, so that each of them can enter.
    descriptor = np.full((rows, 2), 0.1)
    for lineage in fed:
        fitness[lineage] = 100 + optimizer.generation
        descriptor[lineage] = CELLS[lineage]
    optimizer.tell(fitness, descriptor)


def test_a_starved_lineage_restarts_on_the_generation_it_should():
    optimizer = begun(patience=5, batch_size=14)
    for generation in range(1, 6):
        before = optimizer.ask()[:2]
        starve(optimizer, fed={0})
        fed, starved = optimizer.ask()[:2]
        elites = optimizer.archive.genotype
        assert not (fed == elites).all(axis=1).any() and not np.array_equal(fed, before[0])
        assert (starved == elites).all(axis=1).any() == (generation == 5)
    state = optimizer._run.state
    assert np.asarray(state.stale).tolist() == [0, 0]
    assert np.asarray(state.moments.count).tolist() == [5, 0]  # a fresh Adam
    assert not np.asarray(state.moments.first[1]).any() and np.asarray(state.moments.first[0]).any()


def test_an_addition_gives_it_time():
    optimizer = begun(patience=3, batch_size=14)
    stale = []
    for fed in ({0, 1}, {0}, {0}, {0, 1}, {0}, {0}):
        starve(optimizer, fed)
        stale.append(int(optimizer._run.state.stale[1]))
    assert stale == [0, 1, 2, 0, 1, 2]
    starve(optimizer, {0})
    restarted = optimizer.ask()[1]
    assert (restarted == optimizer.archive.genotype).all(axis=1).any()


# That it works --------------------------------------------------------------------------------------------------


def test_one_half_climbs_and_the_other_spreads():
    """Fitness: minus the distance of the genotype to a point. Descriptor: the genotype's first two entries."""
    optimizer = ag.Optimizer(Memes(batch_size=4 * 41, samples=40, patience=1000), PROBLEM, centroids=256)
    goal = np.full(POLICY.size, 0.5)
    worth, places = [], []
    for _ in range(60):
        rows = optimizer.ask()
        fitness, descriptor = -np.linalg.norm(rows - goal, axis=1), np.abs(rows[:, :2])
        worth.append(fitness[:4])
        places.append(descriptor[:4])
        optimizer.tell(fitness, descriptor)
    climbed = np.array(worth)[-1] - np.array(worth)[1]
    went = np.linalg.norm(np.array(places)[-1] - np.array(places)[1], axis=1)
    assert climbed[2:].min() > 0.5 > climbed[:2].max()
    assert went[:2].min() > 0.3
