"""Archives with the policies of some elites only: which are kept, what is said of the others, and what still works."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import Walk, edited

import asciime_gym as ag
from asciime_gym._files import load_origin
from asciime_gym._motion import motion
from asciime_gym._thin import good_and_spread, spread
from asciime_gym._view import COLUMNS

POLICY = ag.MLP(2, 1, hidden=())  # 3 parameters


def placed(descriptor, fitness=None, low=None, high=None, policy=POLICY, **options) -> ag.ArchiveView:
    """An archive with a cell for each of these descriptors, and its elite in it."""
    place = np.float32(descriptor).reshape(len(descriptor), -1)
    count, dims = place.shape
    rng = np.random.default_rng(0)
    rows = {
        "genotype": rng.normal(size=(count, policy.size)).astype(np.float32),
        "fitness": np.float32(np.arange(count) if fitness is None else fitness),
        "descriptor": place,
        "operator": np.zeros(count, np.int32),
        "evaluation": np.arange(count, dtype=np.int32),
        "first_filled": np.zeros(count, np.int32),
        "steps": np.full(count, 7, np.int32),
        "key": rng.integers(0, 2**32, (count, 2), dtype=np.uint32),
    }
    bounds = {"low": np.float32(low or [0] * dims), "high": np.float32(high or [1] * dims)}
    return ag.ArchiveView(rows, centroids=place, operators=("initial",), policy=policy, **bounds, **options)


def test_the_best_and_then_the_farthest():
    line = placed([0.0, 0.1, 0.3, 0.55, 1.0], fitness=[0, 9, 1, 2, 3])
    assert spread(line, 1).tolist() == [1]
    assert spread(line, 2).tolist() == [1, 4]  # 0.1, and 1.0 is farthest from it
    assert spread(line, 3).tolist() == [1, 3, 4]  # 0.55 is 0.45 from either
    assert spread(line, 4).tolist() == [1, 2, 3, 4]  # 0.3 is 0.2 from 0.1, 0.0 is 0.1
    assert spread(line, 5).tolist() == spread(line, 99).tolist() == [0, 1, 2, 3, 4]


def test_far_is_in_units_of_the_bounds():
    """The second dimension is a hundred times as wide, and 10 there is a tenth of it."""
    plane = [[0, 0], [0.5, 0], [0, 10]]
    assert spread(placed(plane, [1, 0, 0], low=[0, 0], high=[1, 100]), 2).tolist() == [0, 1]
    assert spread(placed(plane, [1, 0, 0], low=[0, 0], high=[1, 10]), 2).tolist() == [0, 2]


def test_of_equals_the_first_and_never_one_twice():
    assert spread(placed([0.5, 0.0, 1.0], [1, 0, 0]), 2).tolist() == [0, 1]
    assert spread(placed([0.5] * 4), 3).tolist() == [0, 1, 3]  # the last is the best


def test_the_best_of_regions():
    line = placed([0.0, 0.1, 0.5, 0.6, 0.9, 1.0], fitness=[1, 2, 8, 9, 5, 5])
    assert spread(line, 3).tolist() == [0, 3, 5]
    assert good_and_spread(line, 3).tolist() == [1, 3, 4]  # 0.1 and 0.9 are in the regions of 0.0 and 1.0
    assert good_and_spread(line, 1).tolist() == [3] and good_and_spread(line, 9).tolist() == [0, 1, 2, 3, 4, 5]
    assert good_and_spread(line.thinned(3), 3).tolist() == [0, 3, 5]
    assert good_and_spread(placed([0.5] * 3), 2).tolist() == [1, 2]  # in the same place, and still two


@pytest.mark.parametrize("dims", [1, 2, 4])
def test_all_but_the_genotypes_stays(dims):
    rng = np.random.default_rng(1)
    made = placed(rng.uniform(size=(50, dims)), rng.normal(size=50), about={"made_by": "hand"}, problem={"name": "x"})
    thin = made.thinned(12)
    assert thin.has_policy.sum() == 12 and thin.has_policy[made.best().index] and made.has_policy.all()
    for name in {*COLUMNS, "cell", "centroids", "low", "high", "operator_number"} - {"genotype"}:
        np.testing.assert_array_equal(getattr(thin, name), getattr(made, name), err_msg=name)
    np.testing.assert_array_equal(thin.genotype[thin.has_policy], made.genotype[thin.has_policy])
    assert np.isnan(thin.genotype[~thin.has_policy]).all()
    assert (thin.about, thin.problem, thin.qd_score) == (made.about, made.problem, made.qd_score)
    np.testing.assert_array_equal(thin.has_policy, made.thinned(12).has_policy)
    again = thin.thinned(5)  # of those that are left
    assert again.has_policy.sum() == 5 and not (again.has_policy & ~thin.has_policy).any()
    assert "12 of 50 elites with a policy" in repr(thin) and "with a policy" not in repr(made)


def test_who_has_none_says_so():
    thin = placed([0.0, 0.2, 0.4, 1.0]).thinned(2)
    assert thin.has_policy.tolist() == [True, False, False, True]
    for ask in (lambda: thin.policy(1), lambda: thin[1].policy, lambda: motion(thin, [0, 1])):
        with pytest.raises(ValueError, match=r"row 1 has no policy.*2 of its 4 elites.*archive\.has_policy"):
            ask()
    assert thin.policy(0)(np.zeros(2)).shape == (1,) and thin[3].policy.genotype.shape == (3,)
    assert "without a policy" in repr(thin[1]) and "without" not in repr(thin[0])
    assert thin.nearest([0.3]).index == 1 and thin.nearest([0.3], with_policy=True).index == 0
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1; got {count}"):
            thin.thinned(count)


def test_nobody_has_one():
    made = placed([0.0, 1.0])
    made.genotype[:] = np.nan
    assert not made.has_policy.any() and made.best().index == 1
    for ask in (
        lambda: made.best(with_policy=True),
        lambda: made.nearest([0], with_policy=True),
        lambda: spread(made, 1),
    ):
        with pytest.raises(ValueError, match="none of the archive's 2 elites has a policy"):
            ask()


def test_only_those_with_one():
    thin = placed([0.0, 0.2, 0.4, 1.0]).thinned(2)
    some = thin.with_policies()
    assert some.cell.tolist() == [0, 3] and some.has_policy.all() and some.cells == 4
    np.testing.assert_array_equal(some.genotype, thin.genotype[[0, 3]])


@pytest.fixture(scope="module")
def made() -> ag.Optimizer:
    made = ag.Optimizer(ag.MapElites(batch_size=24), Walk(), centroids=64, seed=3)
    made.fit(evaluations=96)
    return made


def test_saved_and_loaded(made, tmp_path):
    thin = made.archive.thinned(5)
    thin.save(tmp_path / "thin.h5")
    for untrusted in (True, False):
        read = ag.load_archive(tmp_path / "thin.h5", untrusted=untrusted)
        for name in (*COLUMNS, "cell", "has_policy", "centroids", "low", "high"):
            np.testing.assert_array_equal(getattr(read, name), getattr(thin, name), err_msg=name)
        assert repr(read) == repr(thin) and read.problem["name"] == "walk"
    row = int(np.flatnonzero(thin.has_policy)[2])
    np.testing.assert_array_equal(read.policy(row)(np.ones(5)), made.archive.policy(row)(np.ones(5)))


def test_a_genotype_is_there_or_not(made, tmp_path):
    made.archive.thinned(5).save(tmp_path / "thin.h5")
    made.save(tmp_path / "run.h5")
    kept, empty = int(made.archive.cell[0]), int(np.setdiff1d(np.arange(64), made.archive.cell)[0])
    for file, place in (("thin.h5", (kept, 3)), ("thin.h5", empty), ("run.h5", kept)):
        with edited(tmp_path / file) as opened:
            genotype = opened["archive/elites/genotype"]
            before, genotype[kept] = genotype[()], 1.0
            genotype[place] = np.nan
        with pytest.raises(ag.FileError, match="genotype holds numbers that are not finite"):
            ag.load_archive(tmp_path / file)
        with edited(tmp_path / file) as opened:
            opened["archive/elites/genotype"][...] = before
    assert len(ag.load_archive(tmp_path / "thin.h5")) == len(ag.load_archive(tmp_path / "run.h5"))


def test_no_run_goes_on_from_it(made, tmp_path):
    made.archive.thinned(5).save(tmp_path / "thin.h5")
    with pytest.raises(ag.FileError, match="archive"):
        ag.Optimizer.load(tmp_path / "thin.h5")


def test_a_run_made_small_shows_what_it_showed(made, tmp_path):
    run, small = tmp_path / "run.h5", tmp_path / "small.h5"
    made.save(run)
    archive = ag.shrink(run, small, policies=5)
    read = ag.load_archive(small)
    np.testing.assert_array_equal(read.has_policy, made.archive.thinned(5).has_policy)
    assert repr(read) == repr(archive) and read.about == {"made_by": "shrink", "policies": 5}
    before, after = ag.load_history(run), ag.load_history(small)
    assert before.columns == after.columns and len(after) == 4
    for name in before.columns:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    whole, kept = load_origin(run), load_origin(small)
    assert (whole.algorithm, whole.seed) == (kept.algorithm, kept.seed) and kept.seed == 3
    assert str(ag.analysis.compare([small])) == str(ag.analysis.compare([run])).replace("run.h5", "small.h5")
    with pytest.raises(ValueError, match="hold the same run"):
        ag.analysis.compare([run, small])
    again = ag.shrink(small, tmp_path / "smaller.h5", policies=2)  # of those that are left
    assert again.has_policy.sum() == 2 and len(ag.load_history(tmp_path / "smaller.h5")) == 4
    with pytest.raises(ag.FileError, match="archive"):
        ag.Optimizer.load(small)


def test_shrinking_loses_nothing(made, tmp_path):
    run, small = tmp_path / "run.h5", tmp_path / "small.h5"
    made.save(run)
    before = run.read_bytes()
    with pytest.raises(ValueError, match=r"run\.h5 is the run itself.*choose another name"):
        ag.shrink(run, tmp_path / "." / "run.h5", policies=5, overwrite=True)
    small.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ag.shrink(run, small)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        ag.shrink(run, small, policies=0, overwrite=True)
    assert run.read_bytes() == before and small.read_text() == "mine"
    ag.shrink(run, small, overwrite=True)
    assert ag.load_archive(small).has_policy.all()  # there are fewer than 96
    made.archive.save(tmp_path / "alone.h5")
    for ask in (ag.load_history, lambda path: ag.shrink(path, tmp_path / "other.h5")):
        with pytest.raises(ag.FileError, match=r"alone\.h5: it holds no history; take the file of a run"):
            ask(tmp_path / "alone.h5")
    assert not (tmp_path / "other.h5").exists()


def test_merging_keeps_what_there_is(made):
    whole, thin = made.archive, made.archive.thinned(5)
    both = ag.merge([thin, whole])  # of equals the first
    np.testing.assert_array_equal(both.has_policy, thin.has_policy)
    assert ag.merge([whole, thin]).has_policy.all() and both.qd_score == pytest.approx(whole.qd_score)


def test_tables_of_it(made, tmp_path):
    thin = made.archive.thinned(5)
    frame, data = thin.to_dataframe(genotype=True), thin.to_xarray()
    np.testing.assert_array_equal(frame["solution_0"].notna(), thin.has_policy)
    assert int(data["genotype"].notnull().all("parameter").sum()) == 5
    thin.to_csv(tmp_path / "table.csv", genotype=True)
    assert (tmp_path / "table.csv").read_text().count("nan") == (len(thin) - 5) * thin.genotype.shape[1]


def test_the_largest_robot_in_less_than_three_megabytes(tmp_path):
    """Random numbers do not compress, so no policies take more room than these."""
    policy = ag.make_task("ant_omni").policy
    thin = placed(np.random.default_rng(2).uniform(size=(1024, 2)), policy=policy).thinned(96)
    thin.save(tmp_path / "thin.h5")
    assert thin.genotype.shape == (1024, 6664) and 2e6 < (tmp_path / "thin.h5").stat().st_size < 3e6


@pytest.mark.slow
def test_the_script_runs_goes_on_and_ships(tmp_path):
    script = Path(__file__).parent.parent / "scripts" / "ship_data.py"

    def ship(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(script), "--folder", "runs/ship", "--quiet", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env=dict(os.environ))

    done = ship("--tasks", "hopper_uni", "--evaluations", "500", "--policies", "8")
    assert done.returncode == 0, done.stderr
    assert "MB" in done.stdout and "8 of " in done.stdout and sorted(os.listdir(tmp_path)) == ["data", "runs"]
    first = ag.load_archive(tmp_path / "data" / "hopper_uni.h5")
    assert first.has_policy.sum() == 8
    assert ag.load_history(tmp_path / "data" / "hopper_uni.h5")["evaluations"].tolist() == [512]
    done = ship("--tasks", "hopper_uni", "--evaluations", "1000", "--policies", "20")
    second = ag.load_archive(tmp_path / "data" / "hopper_uni.h5")
    assert len(ag.load_history(tmp_path / "data" / "hopper_uni.h5")) == 2 and second.has_policy.sum() == 20
    assert second.qd_score > first.qd_score and os.listdir(tmp_path / "runs" / "ship") == ["hopper_uni.h5"]
    done = ship("--tasks", "hopper")
    assert done.returncode and "the tasks are ant_omni" in done.stderr


def test_reevaluating_says_what_to_give(made):
    thin = made.archive.thinned(5)
    with pytest.raises(ValueError, match=r"only 5 of the archive's .*with_policies"):
        ag.reevaluate(thin, Walk(), episodes=2)
    assert len(ag.reevaluate(thin.with_policies(), Walk(), episodes=2).archive) == 5
