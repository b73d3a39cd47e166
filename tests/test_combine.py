"""Archives made of archives: merged runs, and elites evaluated again."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ALGORITHMS, Walk
from test_view import COLUMNS, POLICY, ROWS, small

import asciime_gym as ag
from asciime_gym import _reevaluate
from asciime_gym._archive import cvt_centroids
from asciime_gym._combine import cells_of, merge
from asciime_gym._reevaluate import reevaluate

TASK = Walk()
STILL = Walk(noise=0.0)


def same_elites(a: ag.ArchiveView, b: ag.ArchiveView, *leave_out: str) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in COLUMNS if name not in leave_out)


def changed(**columns) -> dict[str, np.ndarray]:
    """The hand-made archive's rows, with other values in some columns."""
    return ROWS | {name: np.array(values, ROWS[name].dtype) for name, values in columns.items()}


def ran(task=TASK, seed=0, algorithm="map_elites", evaluations=120, centroids=64) -> ag.Optimizer:
    made = ag.Optimizer(ALGORITHMS[algorithm], task, seed=seed, centroids=centroids)
    made.fit(evaluations=evaluations)
    return made


@pytest.fixture(scope="module")
def runs() -> list[ag.Optimizer]:
    return [ran(seed=0), ran(seed=1, algorithm="ascii_me"), ran(seed=2)]


@pytest.fixture(scope="module")
def archives(runs) -> list[ag.ArchiveView]:
    return [run.archive for run in runs]


# Merging -----------------------------------------------------------------------------------------------------


def test_merge_by_hand():
    other = small(
        changed(
            fitness=[-7, 1.5, 0.2, -np.inf],  # new, equal, better, empty
            operator=[2, 0, 1, -1],
            evaluation=[100, 101, 102, -1],
            first_filled=[90, 91, 92, -1],
            descriptor=[[0.1, 0.1], [0.7, 0.2], [0.2, 0.7], [0, 0]],
            genotype=np.arange(12).reshape(4, 3),
        ),
        operators=("initial", "ascii", "iso_line"),
    )
    made = merge([small(), other])
    assert made.cell.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(made.fitness, np.float32([-7, 1.5, 0.2, -2]))
    assert made.source.tolist() == [1, 0, 1, 0] and made.sources == ("archive 0", "archive 1")
    assert made.operators == ("initial", "iso_line", "ascii")
    assert made.operator.tolist() == ["iso_line", "iso_line", "ascii", "iso_line"]
    assert made.evaluation.tolist() == [100, 30, 102, 17] and made.first_filled.tolist() == [90, 10, 92, 16]
    np.testing.assert_array_equal(made.genotype, np.float32([[0, 1, 2], [1, 2, 3], [6, 7, 8], [7, 8, 9]]))
    np.testing.assert_array_equal(made.descriptor[0], np.float32([0.1, 0.1]))
    back = merge([other, small()])
    assert back.source.tolist() == [0, 0, 0, 1] and back.operators == ("initial", "ascii", "iso_line")
    assert back.operator.tolist() == ["iso_line", "initial", "ascii", "iso_line"]
    assert small().fitness.tolist() == ROWS["fitness"][1:].tolist()  # what was given is as it was


def test_merge_against_a_slow_loop(archives):
    made = merge(archives)
    best = {}
    for number, archive in enumerate(archives):
        for elite in archive:
            if elite.cell not in best or elite.fitness > best[elite.cell][1].fitness:
                best[elite.cell] = number, elite
    assert sorted(best) == made.cell.tolist() and len(set(made.source.tolist())) == 3
    for mine in made:
        number, elite = best[mine.cell]
        assert made.source[mine.index] == number
        for name in ("fitness", "operator", "evaluation", "steps"):
            assert getattr(mine, name) == getattr(elite, name)
        for name in ("descriptor", "genotype", "key"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(elite, name))
    assert made.qd_score >= max(archive.qd_score for archive in archives)
    np.testing.assert_array_equal(made.policy(0)(np.ones(5)), archives[made.source[0]].policy(0)(np.ones(5)))


def test_merge_of_one_is_itself_and_of_twice_the_same_as_well(archives):
    first = archives[0]
    for made in (merge([first]), merge([first, first]), merge([merge([first]), first])):
        assert same_elites(made, first) and made.operators == first.operators and not made.source.any()


def test_merge_of_merged_knows_every_source(archives):
    a, b, c = archives
    flat, left, right = merge([a, b, c]), merge([merge([a, b]), c]), merge([a, merge([b, c])])
    for nested in (left, right):
        assert same_elites(nested, flat) and np.array_equal(nested.source, flat.source) and len(nested.sources) == 3


def test_merge_with_an_earlier_state_of_the_run():
    made = ag.Optimizer(ALGORITHMS["map_elites"], TASK, seed=5, centroids=64)
    early = made.fit(evaluations=48).archive
    late = made.fit(evaluations=240).archive
    merged = merge([early, late])
    assert same_elites(merged, late, "first_filled")  # an elite can only be replaced by a better one
    assert set(merged.source.tolist()) == {0, 1}


def test_merge_files(runs, archives, tmp_path):
    paths = [tmp_path / f"{i}.h5" for i in range(3)]
    for run, path in zip(runs, paths, strict=True):
        run.save(path)
    made, live = merge([paths[0], str(paths[1]), archives[2]]), merge(archives)
    assert same_elites(made, live) and made.sources == (str(paths[0]), str(paths[1]), "archive 2")
    made.save(tmp_path / "merged.h5")
    read = ag.load_archive(tmp_path / "merged.h5")
    assert same_elites(read, made) and np.array_equal(read.source, made.source) and read.sources == made.sources
    assert read.operators == made.operators and read.about == made.about
    assert same_elites(merge([tmp_path / "merged.h5", paths[1]]), live)
    with pytest.raises(ag.FileError, match="no such file"):
        merge([paths[0], tmp_path / "missing.h5"])


def test_merge_with_a_policy_of_the_users_own(tmp_path):
    policy = ag.EquinoxPolicy(lambda key: eqx.nn.Linear(5, 2, key=key), 5, 2)
    run = ran(Walk(policy=policy), evaluations=24)
    run.save(tmp_path / "run.h5")
    with pytest.raises(ValueError, match="policy"):
        merge([tmp_path / "run.h5"]).policy(0)
    for sources in ([tmp_path / "run.h5", run.archive], [run.archive, tmp_path / "run.h5"]):
        assert merge(sources).policy(0)(np.ones(5)).shape == (2,)
    assert merge([tmp_path / "run.h5"], policy=policy).policy(0)(np.ones(5)).shape == (2,)
    merge([tmp_path / "run.h5"]).save(tmp_path / "merged.h5")
    assert ag.load_archive(tmp_path / "merged.h5", policy=policy).policy(0)(np.ones(5)).shape == (2,)
    with pytest.raises(ValueError, match="3 parameters, the policy given takes 12"):
        merge([small()], policy=policy)


def rebuilt(archive: ag.ArchiveView, rows=None, **options) -> ag.ArchiveView:
    kept = {name: getattr(archive, name) for name in ("centroids", "low", "high", "operators")}
    return ag.ArchiveView(rows or archive.rows(), **({"policy": POLICY} | kept | options))


def test_merge_refuses_what_does_not_fit():
    first = small(problem={"name": "ant_omni", "lanes": None})
    short = {name: column[:3] for name, column in ROWS.items()}
    line = small(ROWS | {"descriptor": ROWS["descriptor"][:, :1]})
    unlike = {
        r"archive 0 and archive 1 .* cells differ \(4 and 3": rebuilt(first, short, centroids=first.centroids[:3]),
        r"cells differ .*centroids=…": rebuilt(first, centroids=np.nextafter(first.centroids, np.float32(1))),
        r"bounds are .*\[1.0, 1.0\] and .*\[2.0, 2.0\].*one task": rebuilt(first, high=2 * first.high),
        r"2 and 1 dimensions": rebuilt(
            line, centroids=first.centroids[:, :1], low=first.low[:1], high=first.high[:1], descriptor_names=("x",)
        ),
        r"3 and 2 parameters.*same policy": rebuilt(first, ROWS | {"genotype": ROWS["genotype"][:, :2]}, policy=None),
        r"different policies.*relu": rebuilt(first, policy=ag.MLP(2, 1, hidden=(), activation="relu")),
        r"different tasks.*ant_omni.*anttrap_omni.*reevaluate": rebuilt(first, problem={"name": "anttrap_omni"}),
    }
    for message, second in unlike.items():
        with pytest.raises(ValueError, match=message):
            merge([first, second])
    assert len(merge([first, rebuilt(first), rebuilt(first, problem={"name": "ant_omni", "lanes": True})])) == 3


def test_merge_refuses_what_is_no_list():
    for wrong in ([], "run.h5", small()):
        with pytest.raises(ValueError, match=r"merge\(\[first, …\]\)"):
            merge(wrong)


# Cells -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_cells_as_a_run_finds_them(count):
    made = ag.Optimizer(ag.MapElites(batch_size=8), TASK, centroids=50)
    points = np.random.default_rng(0).uniform(-1.5, 1.5, (count, 2)).astype(np.float32)
    found = cells_of(made.archive, points)
    clipped = np.clip((points.astype(float) + 1) / 2, 0, 1)
    offsets = clipped[:, None] - (cvt_centroids(50, (-1, -1), (1, 1)) + 1) / 2
    np.testing.assert_array_equal(found, (offsets**2).sum(axis=2).argmin(axis=1))
    np.testing.assert_array_equal(found, np.asarray(made._run.archive.lookup(jnp.asarray(points))))


def test_ties_go_to_the_lowest_cell_and_units_are_those_of_the_bounds():
    assert cells_of(small(), np.float32([[0.5, 0.5], [0.5, 0.9], [9, 0.6], [-9, -9]])).tolist() == [0, 2, 3, 0]
    wide = rebuilt(small(), centroids=np.float32([[0, 0.5], [40, 0.4], [60, 0], [90, 0.9]]), high=np.float32([100, 1]))
    assert cells_of(wide, np.float32([[45, 0.8]])).tolist() == [1]  # in metres the first is as near


# Evaluating again --------------------------------------------------------------------------------------------


play = jax.jit(lambda genotype, key: TASK.episodes(genotype[None], key[None], trajectory=False))


def episode(seed: int, cell: int, number: int, genotype: np.ndarray) -> ag.Evaluation:
    """One episode as `reevaluate` is to play it, by itself."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 2**32 - 1), cell), number)
    return play(genotype, key)


@pytest.mark.slow
def test_without_noise_nothing_changes(tmp_path):
    archive = ran(STILL).archive
    again = reevaluate(archive, STILL, episodes=3, seed=9)
    assert not again.fitness_std.any() and not again.descriptor_std.any() and again.kept.all()
    np.testing.assert_array_equal(again.fitness, np.repeat(archive.fitness[:, None], 3, axis=1))
    assert same_elites(again.corrected, archive)
    assert (again.stayed, again.moved, again.dropped, again.not_finite) == (len(archive), 0, 0, 0)
    assert again.corrected.problem["name"] == "walk" and again.corrected.operators == archive.operators
    assert again.corrected.about == {"made_by": "reevaluate", "task": "walk", "episodes": 3, "seed": 9}


def oracle(archive, fitness, descriptor) -> dict[int, int]:
    """Which elite each cell of the corrected archive should hold: one after the other, as a beginner would."""
    unit = lambda x: np.clip((x.astype(float) - archive.low) / (archive.high - archive.low), 0, 1)
    holder = {}
    for i in range(len(archive)):
        cell = int(((unit(descriptor[i]) - unit(archive.centroids)) ** 2).sum(axis=1).argmin())
        if cell not in holder or fitness[i] > fitness[holder[cell]]:
            holder[cell] = i
    return holder


def test_means_and_spreads_against_a_slow_loop(archives):
    archive = archives[1]
    again = reevaluate(archive, TASK, episodes=5, seed=3)
    for i in range(0, len(archive), 7):
        played = [episode(3, archive.cell[i], j, archive.genotype[i]) for j in range(5)]
        fitness = np.array([row.fitness[0] for row in played])
        descriptor = np.array([row.descriptor[0] for row in played])
        np.testing.assert_allclose(again.fitness[i], fitness, rtol=1e-5)
        np.testing.assert_allclose(again.descriptor[i], descriptor, atol=1e-5)
        np.testing.assert_allclose(again.fitness_mean[i], fitness.mean(), rtol=1e-5)
        np.testing.assert_allclose(again.fitness_std[i], fitness.std(), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(again.descriptor_mean[i], descriptor.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(again.descriptor_std[i], descriptor.std(axis=0), rtol=1e-3, atol=1e-5)
    assert len(np.unique(again.fitness)) > 0.5 * again.fitness.size  # fresh episodes, not one many times


def test_corrected_against_an_oracle(archives):
    archive = merge(archives)
    again = reevaluate(archive, TASK, episodes=4)
    fitness, descriptor = again.fitness_mean.astype(np.float32), again.descriptor_mean.astype(np.float32)
    holder = oracle(archive, fitness, descriptor)
    made = again.corrected
    assert made.cell.tolist() == sorted(holder) and again.kept.sum() == len(made)
    rows = [holder[cell] for cell in made.cell.tolist()]
    np.testing.assert_array_equal(made.fitness, fitness[rows])
    np.testing.assert_array_equal(made.descriptor, descriptor[rows])
    for name in ("genotype", "operator", "evaluation", "steps", "key", "source"):
        np.testing.assert_array_equal(getattr(made, name), getattr(archive, name)[rows])
    assert (made.first_filled >= 0).all() and (made.first_filled <= made.evaluation).all()
    assert again.stayed + again.moved + again.dropped == len(archive) and again.moved and again.dropped
    assert made.sources == archive.sources and made.about["of"] == archive.about


def test_an_episode_does_not_depend_on_what_is_beside_it(archives, monkeypatch):
    archive = archives[0]
    whole = reevaluate(archive, TASK, episodes=6, seed=1)
    fewer = reevaluate(archive, TASK, episodes=2, seed=1)
    np.testing.assert_array_equal(whole.fitness[:, :2], fewer.fitness)
    half = {name: column.copy() for name, column in archive.rows().items()}
    half["fitness"][archive.cell[::2]] = -np.inf
    half = reevaluate(rebuilt(archive, half, policy=TASK.policy), TASK, episodes=6, seed=1)
    np.testing.assert_array_equal(whole.fitness[1::2], half.fitness)
    np.testing.assert_array_equal(whole.descriptor[1::2], half.descriptor)
    monkeypatch.setattr(_reevaluate, "BATCH", 64)
    np.testing.assert_array_equal(whole.fitness, reevaluate(archive, TASK, episodes=6, seed=1).fitness)


def test_deterministic(archives):
    first, second, other = (reevaluate(archives[0], TASK, episodes=3, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.fitness, second.fitness)
    assert same_elites(first.corrected, second.corrected)
    assert (first.fitness != other.fitness).mean() > 0.5


def test_keys_are_fresh():
    """None is used twice, and none is one that a run with the same seed uses or makes others from."""
    words = []

    class Listener(Given):
        def episodes(self, genotypes, keys, *, life=None, trajectory=True):
            jax.debug.callback(lambda data: words.append(np.asarray(data)), jax.random.key_data(keys))
            return Given.episodes(self, genotypes, keys)

    task = Listener(fitness=(1.0,) * 3, descriptor=((0.1, 0.1),) * 3)
    reevaluate(small(), task, episodes=200, seed=0)
    jax.effects_barrier()
    used = {tuple(word) for word in np.concatenate(words).tolist()}
    assert len(used) == 600
    run, root = set(), jax.random.key(0)
    for generation in range(4):
        parts = jax.random.split(jax.random.fold_in(root, generation), 3)
        keys = [*parts, *(jax.random.fold_in(parts[1], i) for i in range(64))]
        run |= {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}
    assert not used & run


class Given(ag.AbstractTask):
    """A task whose answers are given, by the genotype's first number: elite 1, 2 or 3 of the hand-made archive."""

    fitness: tuple = eqx.field(static=True)
    descriptor: tuple = eqx.field(static=True)
    policy: ag.AbstractPolicy = POLICY
    descriptor_low: tuple = eqx.field(static=True, default=(0.0, 0.0))
    descriptor_high: tuple = eqx.field(static=True, default=(1.0, 1.0))
    episode_length: int = eqx.field(static=True, default=1)
    name: str = eqx.field(static=True, default="given")

    def episodes(self, genotypes, keys, *, life=None, trajectory=True):
        which = jnp.searchsorted(jnp.array([0.5, 5.0]), genotypes[:, 0])  # 1 / 3, 1, 7: elites 2, 1, 3
        row = jnp.array([1, 0, 2])[which]
        fitness, descriptor = jnp.array(self.fitness)[row], jnp.array(self.descriptor)[row]
        return ag.Evaluation(fitness, descriptor, None, jnp.ones(len(row), jnp.int32))


def by_hand(fitness, descriptor):
    return reevaluate(small(), Given(fitness=fitness, descriptor=descriptor), episodes=2)


PLACES = ((0.75, 0.25), (0.25, 0.75), (0.75, 0.75))  # cells 1, 2, 3: where the three elites were


def test_a_lucky_elite_loses_fitness_moves_or_drops():
    lower = by_hand((0.5, 0.25, -4.0), PLACES)
    assert lower.corrected.fitness.tolist() == [0.5, 0.25, -4.0] and lower.stayed == 3

    moved = by_hand((0.5, 0.25, -4.0), ((0.1, 0.1), *PLACES[1:]))  # the first goes to the empty cell
    assert moved.cell.tolist() == [0, 2, 3] and (moved.stayed, moved.moved, moved.dropped) == (2, 1, 0)
    assert moved.corrected.cell.tolist() == [0, 2, 3] and moved.corrected.fitness.tolist() == [0.5, 0.25, -4.0]
    assert moved.corrected.evaluation.tolist() == [30, 5, 17] and moved.corrected.first_filled.tolist() == [30, 5, 16]
    np.testing.assert_array_equal(moved.corrected.descriptor[0], np.float32([0.1, 0.1]))

    lost = by_hand((0.5, 0.25, -4.0), (PLACES[0], PLACES[0], PLACES[2]))  # the second meets a better one
    assert lost.kept.tolist() == [True, False, True] and (lost.stayed, lost.moved, lost.dropped) == (2, 0, 1)
    won = by_hand((0.25, 0.5, -4.0), (PLACES[0], PLACES[0], PLACES[2]))  # the second drives the first out
    assert won.kept.tolist() == [False, True, True] and won.corrected.cell.tolist() == [1, 3]
    assert won.corrected.operator.tolist() == ["initial", "iso_line"]
    assert won.corrected.first_filled.tolist() == [5, 16]  # no later than its elite came in


def test_of_equals_the_one_from_the_lowest_cell_stays():
    tie = by_hand((0.5, 0.5, 0.5), (PLACES[2],) * 3)
    assert tie.kept.tolist() == [True, False, False] and tie.corrected.cell.tolist() == [3]
    np.testing.assert_array_equal(tie.corrected.genotype, ROWS["genotype"][1:2])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_dropped_and_counted(bad):
    made = by_hand((0.5, bad, 2.0), PLACES)
    assert made.cell.tolist() == [1, -1, 3] and made.kept.tolist() == [True, False, True]
    assert made.not_finite == made.dropped == 1 and "1 dropped (1 of them not finite)" in repr(made)
    made = by_hand((0.5, 1.0, 2.0), (PLACES[0], (bad, 0.5), PLACES[2]))
    assert made.not_finite == 1 and made.corrected.cell.tolist() == [1, 3]
    none = by_hand((bad,) * 3, PLACES)
    assert not len(none.corrected) and none.dropped == 3


def test_says_what_it_found():
    made = by_hand((0.5, 0.25, 40.0), (PLACES[0], PLACES[0], (0.1, 0.1)))
    assert repr(made) == (
        "Reevaluation(3 elites, 2 episodes each: QD score -0 → 40, coverage 75.0 % → 50.0 %; "
        "1 stayed, 1 moved, 1 dropped)"
    )
    frame = made.to_dataframe()
    assert frame["cell"].tolist() == [1, 2, 3] and frame["new_cell"].tolist() == [1, 1, 0]
    assert frame["kept"].tolist() == [True, False, True] and frame["objective_mean"].tolist() == [0.5, 0.25, 40.0]
    assert frame["objective_std"].tolist() == [0, 0, 0] and frame["objective"].tolist() == small().fitness.tolist()
    np.testing.assert_allclose(frame["measures_1_mean"], [0.25, 0.25, 0.1], rtol=1e-6)
    assert {"measures_0", "measures_0_std", "measures_1"} <= set(frame.columns)


def test_corrected_is_saved_like_any_other(runs, tmp_path):
    runs[0].save(tmp_path / "run.h5")
    made = reevaluate(tmp_path / "run.h5", TASK, episodes=2).corrected
    assert same_elites(made, reevaluate(runs[0].archive, TASK, episodes=2).corrected)
    made.save(tmp_path / "corrected.h5")
    read = ag.load_archive(tmp_path / "corrected.h5")
    assert same_elites(read, made) and read.about == made.about and read.qd_score == made.qd_score
    assert len(merge([tmp_path / "corrected.h5", made])) == len(made)


def test_an_empty_archive():
    empty = ag.Optimizer(ag.MapElites(batch_size=8), TASK, centroids=16).archive
    made = reevaluate(empty, TASK, episodes=2)
    assert made.fitness.shape == (0, 2) and made.descriptor.shape == (0, 2, 2) and not len(made.corrected)
    assert "0 elites" in repr(made) and len(made.to_dataframe()) == 0


def test_what_cannot_be_evaluated_again():
    given = Given(fitness=(1.0,) * 3, descriptor=PLACES)
    problem = ag.Problem(policy=POLICY, descriptor_low=[0, 0], descriptor_high=[1, 1], episode_length=1)
    with pytest.raises(TypeError, match=r"a Problem has no evaluator: give make_task"):
        reevaluate(small(), problem)
    with pytest.raises(ValueError, match=r"66 parameters.*of 3\. Make the task with the policy"):
        reevaluate(small(), dataclasses.replace(given, policy=Walk().policy))
    with pytest.raises(ValueError, match=r"relu.*tanh.*Make the task with the policy"):
        reevaluate(small(), dataclasses.replace(given, policy=ag.MLP(2, 1, hidden=(), activation="relu")))
    with pytest.raises(ValueError, match=r"to \[2.0, 2.0\].*to \[1.0, 1.0\]"):
        reevaluate(small(), dataclasses.replace(given, descriptor_high=(2.0, 2.0)))
    with pytest.raises(ValueError, match=r"from \[0.0\] to"):
        reevaluate(small(), dataclasses.replace(given, descriptor_low=(0.0,), descriptor_high=(1.0,)))
    for options in ({"episodes": 0}, {"seed": -1}, {"seed": 2**32}):
        with pytest.raises(ValueError, match="whole number"):
            reevaluate(small(), given, **options)


def test_progress_is_shown_where_it_is_wanted(capsys):
    given = Given(fitness=(1.0,) * 3, descriptor=PLACES)
    reevaluate(small(), given, episodes=400)
    assert capsys.readouterr().err == ""
    reevaluate(small(), given, episodes=400, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert "compiling" in lines[0] and lines[1:] == [
        "reevaluate on given: 512 of 1,200 episodes",
        "reevaluate on given: 1,200 of 1,200 episodes",
    ]
