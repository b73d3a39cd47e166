"""The front end: what it takes, what it refuses, and that a refusal changes nothing."""

import os
import signal
import threading

import numpy as np
import pytest
from helpers import ALGORITHMS, Walk, same

import asciime_gym as ag
from asciime_gym._compile import compiled

TASK = Walk()
ASCII = ALGORITHMS["ascii_me"]
BATCH, TIME = ASCII.batch_size, TASK.episode_length


def optimizer(algorithm=ASCII) -> ag.Optimizer:
    return ag.Optimizer(algorithm, TASK, centroids=64)


def told(seed=0) -> dict:
    """What an evaluator might return."""
    rng = np.random.default_rng(seed)
    alive = np.arange(TIME) < rng.integers(1, TIME + 1, (BATCH, 1))
    return {
        "fitness": rng.random(BATCH),
        "descriptor": rng.uniform(-1, 1, (BATCH, 2)),
        "trajectory": {
            "observation": rng.normal(size=(BATCH, TIME, 5)),
            "action": rng.normal(size=(BATCH, TIME, 2)),
            "reward": rng.random((BATCH, TIME)),
            "alive": alive,
        },
    }


def changed(result: dict, **changes) -> dict:
    result["trajectory"] |= {k: v for k, v in changes.items() if k in result["trajectory"]}
    return result | {k: v for k, v in changes.items() if k not in result["trajectory"]}


def test_ask_gives_numpy_and_the_same_until_told():
    made = optimizer()
    first = made.ask()
    assert isinstance(first, np.ndarray) and first.dtype == np.float32 and first.shape == (BATCH, TASK.policy.size)
    np.testing.assert_array_equal(first, made.ask())
    feedback = made.tell(**told())
    assert isinstance(feedback.added, np.ndarray) and feedback.added.any()
    assert feedback.gain.sum() == pytest.approx(made.archive.qd_score, rel=1e-5)
    assert not np.array_equal(first, made.ask())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fitness": np.zeros(BATCH + 1)}, [rf"fitness of shape \({BATCH},\)", rf"got \({BATCH + 1},\)"]),
        ({"fitness": np.zeros((BATCH, 1))}, ["fitness"]),
        ({"fitness": ["a"] * BATCH}, ["real numbers"]),
        ({"fitness": np.zeros(BATCH, complex)}, ["real numbers"]),
        ({"descriptor": np.zeros((BATCH, 3))}, [r"descriptor of shape"]),
        ({"trajectory": None}, ["AsciiME", "trajectories"]),
        ({"trajectory": {"observation": np.zeros(3)}}, ["missing: action, reward, alive"]),
        ({"observation": np.zeros((BATCH, TIME, 4))}, ["trajectory observation", rf"\({BATCH}, {TIME}, 5\)"]),
        ({"action": np.zeros((BATCH, TIME - 1, 2))}, ["trajectory action"]),
        ({"alive": np.zeros((BATCH, TIME), bool)}, ["alive must be True from the first step"]),
        ({"alive": np.full((BATCH, TIME), 0.5)}, ["booleans"]),
        ({"steps": np.full(BATCH, -1)}, ["steps"]),
        ({"steps": np.full(BATCH, 2.5)}, ["steps"]),
    ],
)
def test_tell_refuses_before_anything_changes(changes, words):
    made = optimizer()
    genotypes, run = made.ask(), made._run
    for word in words:
        with pytest.raises(ValueError, match=word):
            made.tell(**changed(told(), **changes))
    assert made._run is run and not len(made.history)
    np.testing.assert_array_equal(made.ask(), genotypes)
    assert made.tell(**told()).added.any()  # and it is still usable


def test_tell_without_ask_and_twice():
    made = optimizer()
    with pytest.raises(RuntimeError, match=r"call ask\(\) first"):
        made.tell(**told())
    made.ask()
    made.tell(**told())
    with pytest.raises(RuntimeError, match=r"told already"):
        made.tell(**told())
    with pytest.raises(RuntimeError, match=r"life"):
        _ = made.life
    made.ask()
    made.tell(**told(1))
    assert made.generation == 2


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.int8, np.bool_])
def test_any_real_type_is_cast(dtype):
    made, result = optimizer(), told()
    made.ask()
    made.tell(**changed(result, fitness=np.ones(BATCH, dtype), reward=np.ones((BATCH, TIME), dtype)))
    assert made.archive.fitness.dtype == np.float32 and (made.archive.fitness == 1).all()


def test_rows_that_are_not_finite_are_kept_out_and_counted():
    made, result = optimizer(), told()
    result["fitness"][0] = np.nan
    result["fitness"][1] = np.inf
    result["descriptor"][2, 1] = np.nan
    result["trajectory"]["reward"][3, 0] = -np.inf
    result["trajectory"]["observation"][4, 0, 2] = np.nan
    result["trajectory"]["alive"][5] = np.arange(TIME) < 4
    result["trajectory"]["action"][5, 7] = np.nan  # after the end: not part of the episode
    result["fitness"][5] = 100.0
    result["fitness"][6] = 1e300  # infinite as a float32
    made.ask()
    feedback = made.tell(**result)
    assert not feedback.added[[0, 1, 2, 3, 4, 6]].any() and feedback.added[5]
    assert made.history["refused"].tolist() == [6]
    assert int(made._run.state.count) == BATCH - 6
    finite = [np.isfinite(leaf).all() for leaf in (made._run.state.items.observation, made._run.state.items.action)]
    assert all(finite) and np.isfinite(made.archive.fitness).all()
    assert np.isfinite(made._run.archive.elites.keepsake.observation).all()


def test_an_archive_that_stays_empty_is_asked_for_random_policies_again():
    made = optimizer()
    for _ in range(2):
        made.ask()
        feedback = made.tell(**changed(told(), fitness=np.full(BATCH, np.nan)))
        assert not feedback.added.any()
    first = made.ask()
    made.tell(**told())
    assert first.shape == (BATCH, TASK.policy.size) and made.history["added_initial"][-1] > 0
    made.ask()
    assert set(np.asarray(made._asked[0].operator).tolist()) == {1, 2}


def test_elites_remember_and_can_be_replayed():
    made = optimizer()
    made.fit(evaluations=6 * BATCH)
    archive = made.archive
    assert (archive.evaluation >= archive.first_filled).all() and (archive.evaluation < 6 * BATCH).all()
    assert set(archive.operator) <= {"initial", "iso_line", "ascii"}
    import jax

    keys = jax.random.wrap_key_data(archive.key)
    replay = compiled(
        lambda genotypes, keys: TASK.episodes(genotypes, keys)
    )  # as all doors are: others may round apart
    again = replay(jax.numpy.asarray(archive.genotype), keys)
    np.testing.assert_array_equal(again.fitness, archive.fitness)
    np.testing.assert_array_equal(again.descriptor, archive.descriptor)
    np.testing.assert_array_equal(again.steps, archive.steps)


def test_history_counts_what_happened():
    made = optimizer()
    made.fit(evaluations=5 * BATCH)
    history = made.history
    assert history["generation"].tolist() == [0, 1, 2, 3, 4]
    assert history["evaluations"].tolist() == [BATCH * (i + 1) for i in range(5)]
    assert (np.diff(history["steps"]) > 0).all() and history["steps"][0] <= BATCH * TIME
    assert (np.diff(history["seconds"]) > 0).all()
    added = sum(history[f"added_{name}"].sum() for name in ("initial", "iso_line", "ascii"))
    assert added >= len(made.archive)
    assert history["coverage"][-1] == pytest.approx(len(made.archive) / 64)
    assert history["max_fitness"][-1] == made.archive.best().fitness
    assert list(history.to_dataframe().columns) == list(history.columns)
    with pytest.raises(KeyError, match="qd_score"):
        history["qdscore"]


def test_budgets():
    made = optimizer()
    assert made.fit(evaluations=BATCH + 1).stopped_by == "evaluations"
    assert made.evaluations == 2 * BATCH  # the first generation at which the budget is reached
    assert (
        made.fit(evaluations=2 * BATCH).stopped_by == "evaluations" and made.generation == 2
    )  # a total: nothing to do
    assert made.fit(evaluations=10**9, seconds=made.seconds + 0.3).stopped_by == "seconds"
    for bad in ({}, {"evaluations": 0}, {"evaluations": -5}, {"evaluations": 2**31}):
        with pytest.raises(ValueError, match=r"budget|evaluations"):
            made.fit(**bad)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds"):
            made.fit(seconds=seconds)
    with pytest.raises(ValueError, match="checkpoint_every"):
        made.fit(evaluations=10**6, checkpoint_every=0)


def test_a_callback_stops_by_returning_false():
    made, rows = optimizer(), []

    def callback(given, row):
        assert given is made
        rows.append(row["generation"])
        return len(rows) < 3

    assert made.fit(evaluations=10**6, callbacks=[callback]).stopped_by == "callback"
    assert rows == [0, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_saves_and_returns(number, tmp_path):
    made, before = optimizer(), signal.getsignal(number)
    path = tmp_path / "run.h5"

    def press(given, row):
        if row["generation"] == 2:
            os.kill(os.getpid(), number)

    result = made.fit(evaluations=10**6, callbacks=press, checkpoint=path)
    assert result.stopped_by == "interrupt" and made.generation == 3
    assert signal.getsignal(number) is before
    loaded = ag.Optimizer.load(path, task=TASK)
    assert same(loaded._run, made._run)
    made.fit(evaluations=5 * BATCH)  # and it goes on


def test_the_second_interrupt_raises():
    def press(given, row):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    made = optimizer()
    with pytest.raises(KeyboardInterrupt):
        made.fit(evaluations=10**6, callbacks=press)
    made.fit(evaluations=3 * BATCH)
    assert made.generation == 3


def test_fit_works_in_a_thread():
    made, results = optimizer(), []
    thread = threading.Thread(target=lambda: results.append(made.fit(evaluations=2 * BATCH)))
    thread.start()
    thread.join()
    assert results[0].stopped_by == "evaluations"


def test_a_checkpoint_of_another_run_is_not_overwritten(tmp_path):
    path = tmp_path / "deep" / "folder" / "run.h5"  # folders are made
    first = optimizer()
    first.fit(evaluations=2 * BATCH, checkpoint=path)
    first.fit(evaluations=3 * BATCH, checkpoint=path)  # its own: no question
    other = optimizer()
    with pytest.raises(FileExistsError, match=r"asciime resume.*--overwrite"):
        other.fit(evaluations=BATCH, checkpoint=path)
    assert ag.Optimizer.load(path, task=TASK).generation == 3
    other.fit(evaluations=BATCH, checkpoint=path, overwrite=True)
    assert ag.Optimizer.load(path, task=TASK).generation == 1
    with pytest.raises(IsADirectoryError, match="file name"):
        other.fit(evaluations=BATCH, checkpoint=tmp_path)


def test_checkpoints_are_written_as_often_as_asked(tmp_path):
    made, path, seen = optimizer(), tmp_path / "run.h5", []

    def watch(given, row):
        given._checkpoints._writer.settle()  # a thread writes them
        seen.append(ag.Optimizer.load(path, task=TASK).generation if path.exists() else 0)

    made.fit(evaluations=6 * BATCH, callbacks=watch, checkpoint=path, checkpoint_every=2)
    assert seen == [0, 0, 2, 2, 4, 4] and ag.load_archive(path).cells == 64
    assert ag.Optimizer.load(path, task=TASK).generation == 6


def test_what_makes_no_optimizer_is_refused():
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match="seed"):
            ag.Optimizer(ASCII, TASK, seed=seed)
    for centroids in (0, np.zeros((4, 3)), np.full((4, 2), np.nan)):
        with pytest.raises(ValueError, match=r"cell|centroids"):
            ag.Optimizer(ASCII, TASK, centroids=centroids)
    with pytest.raises(TypeError, match=r"ask\(\) and tell\(\)"):
        ag.Optimizer(ASCII, problem()).fit(evaluations=10)
    with pytest.raises(ValueError, match="low < high"):
        ag.Problem(policy=TASK.policy, descriptor_low=[0.0], descriptor_high=[0.0], episode_length=3)


@pytest.mark.parametrize(
    "fields",
    [{"batch_size": 0}, {"batch_size": -3}, {"iso_line_share": 1.5}, {"epochs": 0}, {"optimizer": "lion"},
      {"variance": 0.0}, {"discount": 2.0}, {"buffer_capacity": 0}, {"sigma1": float("nan")}],
)  # fmt: skip
def test_hyperparameters_that_make_no_sense_are_refused(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        ag.AsciiME(**fields)


def problem() -> ag.Problem:
    return ag.Problem(policy=TASK.policy, descriptor_low=[-1, -1], descriptor_high=[1, 1], episode_length=TIME)


def test_given_centroids_are_used():
    centroids = np.array([[0.0, 0.0], [0.5, 0.5], [-0.5, 0.5]], np.float32)
    made = ag.Optimizer(ag.MapElites(batch_size=BATCH), problem(), centroids=centroids)
    made.ask()
    made.tell(np.ones(BATCH), np.linspace(-1, 1, 2 * BATCH).reshape(BATCH, 2))
    np.testing.assert_array_equal(made.archive.centroids, centroids)
    assert made.archive.cells == 3 and len(made.archive) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("share", "targets"), [(0.0, "archive"), (0.25, "buffer"), (1.0, "buffer")])
def test_ablations_are_fields(share, targets):
    algorithm = ag.AsciiME(batch_size=BATCH, epochs=2, iso_line_share=share, targets=targets, buffer_capacity=5)
    made = ag.Optimizer(algorithm, TASK, centroids=16)
    made.ask()
    made.tell(**told())
    genotypes, operators = made.ask(), np.asarray(made._asked[0].operator)
    iso_line = round(BATCH * share)
    assert (operators == 1).sum() == iso_line and (operators == 2).sum() == BATCH - iso_line
    assert np.isfinite(genotypes).all() and int(made._run.state.count) == 5
    # Most children differ from all elites: no operator is dead. (A target as good as the parent changes nothing.)
    copies = (genotypes[:, None] == made.archive.genotype[None]).all(axis=2).any(axis=1)
    assert copies.mean() < 0.5 and not copies[:iso_line].any()


def test_reprs_say_what_there_is():
    made = optimizer()
    assert "no generation yet" in repr(made)
    result = made.fit(evaluations=BATCH)
    for thing, word in ((made, "ascii_me"), (result, "stopped_by"), (result.archive, "of 64 cells"),
                        (result.archive.best(), "fitness"), (result.history, "1 generations")):  # fmt: skip
        assert word in repr(thing)


def test_trajectories_that_nobody_asks_for_are_not_made():
    import jax

    genotypes, key = optimizer().ask(), jax.random.key(0)
    without, with_them = (TASK.evaluate(genotypes, key, trajectory=wanted) for wanted in (False, True))
    assert without.trajectory is None and with_them.trajectory.observation.shape == (BATCH, TIME, 5)
    assert same((without.fitness, without.descriptor, without.steps),
                (with_them.fitness, with_them.descriptor, with_them.steps))  # fmt: skip


def test_expected_life_orders_the_work_and_changes_nothing():
    import jax
    import jax.numpy as jnp

    genotypes = jax.random.normal(jax.random.key(1), (150, TASK.policy.size))
    life = jax.random.randint(jax.random.key(2), (150,), 1, TIME)
    plain, ordered = (TASK.evaluate(genotypes, jax.random.key(0), life=given) for given in (None, life))
    assert same(plain, ordered) and len(jnp.unique(plain.steps)) > 2


def test_an_interrupt_before_the_first_generation_leaves_the_old_file(tmp_path):
    path = tmp_path / "run.h5"
    optimizer().fit(evaluations=BATCH, checkpoint=path)
    before, other = path.read_bytes(), optimizer()
    advance = other._advance

    def press(count, budget):
        if count == 0:  # while it compiles
            os.kill(os.getpid(), signal.SIGINT)
        return advance(count, budget)

    other._advance = press
    assert other.fit(evaluations=10**6, checkpoint=path, overwrite=True).stopped_by == "interrupt"
    assert path.read_bytes() == before and other.generation == 0


def test_a_result_does_not_grow_with_the_run():
    made = optimizer()
    first = made.fit(evaluations=BATCH)
    made.fit(evaluations=3 * BATCH)
    assert len(first.history) == 1 and len(made.history) == 3


def test_shapes_are_enforced_in_these_tests():
    import jax.numpy as jnp

    with pytest.raises(Exception, match="Type-check error"):
        TASK.policy.act(jnp.zeros((2, 2)), jnp.zeros(5))
