"""What every algorithm promises."""

import logging

import jax
import numpy as np
import pytest
from helpers import ALGORITHMS, EACH, LANES, Walk, same, spent

import asciime_gym as ag

GENERATIONS = 5
TASK = Walk()


@pytest.fixture(params=EACH, name="algorithm")
def _algorithm(request) -> ag.AbstractAlgorithm:
    return ALGORITHMS[request.param]


def optimizer(algorithm, seed=0) -> ag.Optimizer:
    return ag.Optimizer(algorithm, TASK, seed=seed, centroids=64)


def fitted(algorithm, generations=GENERATIONS, seed=0, **options) -> ag.Optimizer:
    made = optimizer(algorithm, seed)
    made.fit(evaluations=spent(algorithm, generations, TASK), **options)
    return made


def columns(optimizer) -> dict[str, list]:
    """The history without the clock."""
    return {name: column.tolist() for name, column in optimizer.history.to_dict().items() if name != "seconds"}


def test_deterministic(algorithm):
    first, second = fitted(algorithm), fitted(algorithm)
    assert same(first._run, second._run)
    assert columns(first) == columns(second)
    assert not same(first._run.archive, fitted(algorithm, seed=1)._run.archive)


def test_it_gets_somewhere(algorithm):
    made = fitted(algorithm, 20)
    assert len(set(made.archive.steps.tolist())) > 1  # some fall, some do not
    assert made.history["coverage"][-1] > made.history["coverage"][0]
    assert (np.diff(made.history["qd_score"]) >= 0).all()


def test_fit_equals_ask_and_tell(algorithm):
    by_fit, by_hand = fitted(algorithm), optimizer(algorithm)
    for _ in range(GENERATIONS):
        genotypes = by_hand.ask()
        result = TASK.evaluate(
            genotypes, by_hand.evaluation_key, life=by_hand.life, trajectory=algorithm.needs_trajectory
        )
        by_hand.tell(result.fitness, result.descriptor, result.trajectory, steps=result.steps)
    assert same(by_fit._run, by_hand._run)
    assert columns(by_fit) == columns(by_hand)


def test_chunks_do_not_matter(algorithm):
    rows = []
    one_by_one = fitted(algorithm, callbacks=lambda _, row: rows.append(row["evaluations"]))
    assert rows == [spent(algorithm, i + 1, TASK) for i in range(GENERATIONS)]
    assert same(one_by_one._run, fitted(algorithm)._run)


def test_save_and_load(algorithm, tmp_path):
    made = fitted(algorithm)
    made.save(tmp_path / "run.h5")
    loaded = ag.Optimizer.load(tmp_path / "run.h5", task=TASK)
    assert same(made._run, loaded._run)
    assert loaded.history.to_dict().keys() == made.history.to_dict().keys()
    assert all(np.array_equal(loaded.history[name], made.history[name]) for name in made.history.columns)
    assert (loaded.algorithm, loaded.seed) == (made.algorithm, made.seed)


def test_resume_equals_going_on(algorithm, tmp_path):
    whole = fitted(algorithm, 7)
    for stop in (2, 5):
        part = ag.Optimizer.load(tmp_path / "run.h5", task=TASK) if stop == 5 else optimizer(algorithm)
        part.fit(evaluations=spent(algorithm, stop, TASK), checkpoint=tmp_path / "run.h5")
    part = ag.Optimizer.load(tmp_path / "run.h5", task=TASK)
    part.fit(evaluations=spent(algorithm, 7, TASK))
    assert same(whole._run, part._run)
    assert columns(whole) == columns(part)


def test_same_seed_same_file(algorithm, tmp_path):
    import h5py

    files = []
    for name in ("a.h5", "b.h5"):
        fitted(algorithm, checkpoint=tmp_path / name)
        contents = {}
        with h5py.File(tmp_path / name) as file:
            contents |= {("attribute", k): v for k, v in file.attrs.items() if k != "written"}
            file.visititems(
                lambda path, item, into=contents: (
                    into.update({path: item[()].tobytes()})
                    if isinstance(item, h5py.Dataset) and path != "history/seconds"
                    else None
                )
            )
        files.append(contents)
    assert len(files[0]) > 20 and files[0] == files[1]


def compiled(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "Finished XLA compilation" in r.getMessage()]


def test_nothing_is_compiled_twice(algorithm, caplog, tmp_path):
    """Neither for another seed or budget, nor after a resume."""
    fitted(algorithm, checkpoint=tmp_path / "run.h5")
    ag.Optimizer.load(tmp_path / "run.h5", task=TASK)  # what loading itself compiles is no part of it
    jax.config.update("jax_log_compiles", True)
    try:
        with caplog.at_level(logging.WARNING):
            fitted(algorithm, generations=9, seed=3)
            ag.Optimizer.load(tmp_path / "run.h5", task=TASK).fit(evaluations=spent(algorithm, 9, TASK))
            before = len(compiled(caplog))
            jax.jit(lambda x: 3 * x + algorithm.batch_size)(1.0)  # a new program does show
    finally:
        jax.config.update("jax_log_compiles", False)
    assert before == 0 and len(compiled(caplog)) == 1


def exported(algorithm, task, *platforms) -> str:
    """A whole generation, as it would run on the platforms."""
    import equinox as eqx
    from jax import export

    from asciime_gym import _loop

    run = ag.Optimizer(algorithm, task)._run
    arrays, rest = eqx.partition(run, eqx.is_array)
    step = lambda arrays: eqx.filter(_loop.generation(algorithm, task, eqx.combine(arrays, rest)), eqx.is_array)
    program = export.export(jax.jit(step), platforms=platforms)(arrays)
    assert program.platforms == platforms
    return program.mlir_module()


def test_exports_for_cpu_and_cuda(algorithm):
    """Lanes on the one, `vmap` on the other; also after a run on this machine, which traces for a CPU only."""
    fitted(algorithm)
    assert LANES in exported(algorithm, TASK, "cpu")
    assert LANES not in exported(algorithm, TASK, "cuda")
    assert LANES in exported(algorithm, TASK, "cpu", "cuda")


def test_lanes_are_chosen_or_left():
    algorithm = next(iter(ALGORITHMS.values()))
    assert LANES not in exported(algorithm, Walk(lanes=False), "cpu")
    assert LANES in exported(algorithm, Walk(lanes=True), "cuda")


def test_newcomers_are_numbered_as_the_history_counts(algorithm):
    """The last rows of what a generation has spent, also where `ask` itself spends some."""
    made = optimizer(algorithm)
    for i in range(4):
        made.fit(evaluations=spent(algorithm, i + 1, TASK))
        archive, end = made.archive, made.evaluations
        before = spent(algorithm, i, TASK) if i else 0
        new = archive.evaluation[archive.evaluation >= before]
        assert len(new) and new.min() >= end - algorithm.batch_size and new.max() < end
        assert archive.first_filled.max() < end


def test_the_run_is_donated(algorithm):
    one = optimizer(algorithm)
    before = one._run.archive.elites.genotype
    one.fit(evaluations=algorithm.batch_size)
    assert before.is_deleted()


# MEMES asks for episodes as MAP-Elites does, and DCRL-ME as PGA-ME does: the programs differ in nothing but variation.
ON_ROBOTS = pytest.mark.parametrize("algorithm", ["map_elites", "ascii_me", "pga_me", "ppga"], indirect=True)


@pytest.mark.slow
@ON_ROBOTS
def test_a_robot_exports_for_cpu_and_cuda(algorithm):
    task = ag.make_task("hopper_uni", episode_length=20, policy=algorithm.default_policy)
    assert LANES in exported(algorithm, task, "cpu")
    assert LANES not in exported(algorithm, task, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["map_elites", "ascii_me"], indirect=True)  # without trajectories, and with
def test_a_robot_fits_as_it_is_driven_by_hand(algorithm):
    """`fit` = ask, evaluate, tell, bit for bit, with real physics."""
    task = ag.make_task("hopper_uni", episode_length=40, policy=algorithm.default_policy)
    by_fit, by_hand = (ag.Optimizer(algorithm, task, centroids=64) for _ in range(2))
    by_fit.fit(evaluations=spent(algorithm, 5, task))
    for _ in range(5):
        genotypes, key, life = by_hand.ask(), by_hand.evaluation_key, by_hand.life
        result = task.evaluate(genotypes, key, life=life, trajectory=algorithm.needs_trajectory)
        by_hand.tell(result.fitness, result.descriptor, result.trajectory, steps=result.steps)
    assert len(by_fit.archive) > 3 and same(by_fit._run, by_hand._run)
