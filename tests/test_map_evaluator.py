"""A Python function of one genotype, evaluated by many."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from helpers import vanished, workers
from small_functions import fails_once, moody, slowly, square, walk

import asciime_gym as ag
from asciime_gym._crews import _Shift
from asciime_gym._workers import Worker

ROWS = np.random.default_rng(0).uniform(0, 1, (12, 3)).astype(np.float32)


def rows(*how: int) -> np.ndarray:
    """Genotypes that make `moody` do this and that."""
    given = np.tile(np.array([0.75, 0.5, 0.25], np.float32), (len(how), 1))
    given[:, 0] += how
    return given


def problem(**options) -> ag.Problem:
    options = {"descriptor_low": [-1, -1], "descriptor_high": [1, 1], "episode_length": 1} | options
    return ag.Problem(policy=ag.MLP(2, 1, hidden=()), **options)


@pytest.fixture(params=["own", "threads", "processes"])
def executor(request):
    if request.param == "own":
        yield None
    elif request.param == "threads":
        with ThreadPoolExecutor(3) as pool:
            yield pool
    else:
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool


def test_order_is_kept(executor):
    with ag.map_evaluator(square, executor) as evaluate:
        fitness, descriptor = evaluate(ROWS)
        np.testing.assert_allclose(fitness, -np.square(ROWS).sum(axis=1), rtol=1e-6)
        np.testing.assert_array_equal(descriptor, ROWS[:, :2])
        assert fitness.dtype == descriptor.dtype == np.float32 and evaluate.refused == ()


def test_who_fails_once_is_tried_again(executor, tmp_path):
    with ag.map_evaluator(partial(fails_once, folder=str(tmp_path)), executor, retries=1) as evaluate:
        fitness, _ = evaluate(ROWS)
    np.testing.assert_allclose(fitness, -np.square(ROWS).sum(axis=1), rtol=1e-6)


def test_who_always_fails_is_told_as_refused(executor):
    optimizer = ag.Optimizer(ag.MapElites(batch_size=4), problem(), centroids=8)
    optimizer.ask()
    with (
        ag.map_evaluator(moody, executor, retries=2) as evaluate,
        pytest.warns(UserWarning, match=r"2 of 4 individuals .* after 3 attempts each; row 1: .*it cannot be done"),
    ):
        feedback = optimizer.tell(*evaluate(rows(0, 1, 0, 1)))
    assert feedback.valid.tolist() == [True, False, True, False]
    assert optimizer.history["refused"].tolist() == [2] and len(optimizer.archive) == 1
    assert [refused.row for refused in evaluate.refused] == [1, 3]


@pytest.mark.parametrize(("how", "words"), [(2, "SIGKILL"), (4, "exit code 5")])
def test_who_kills_its_process_is_the_only_one_lost(how, words):
    with ag.map_evaluator(moody, retries=1) as evaluate, pytest.warns(UserWarning, match=words):
        fitness, descriptor = evaluate(rows(0, how, 0, 0, how, 0, 0))
    assert np.isnan(fitness).tolist() == [False, True, False, False, True, False, False]
    assert np.isnan(descriptor).any(axis=1).tolist() == np.isnan(fitness).tolist()
    assert vanished(os.getpid())


def test_who_takes_too_long_is_stopped():
    with (
        ag.map_evaluator(moody, retries=1, timeout=1.0) as evaluate,
        pytest.warns(UserWarning, match=r"1 of 5 .* took longer than 1.0 s"),
    ):
        fitness, _ = evaluate(rows(0, 0, 3, 0, 0))
        assert np.isnan(fitness).tolist() == [False, False, True, False, False]
        fitness, _ = evaluate(rows(0, 0))  # in the processes that are left, and new ones
        assert np.isfinite(fitness).all()
    assert vanished(os.getpid())


def test_threads_that_are_stuck_are_reported():
    release = threading.Event()

    def stuck(genotype):
        release.wait(60 if genotype[0] > 1 else 0)
        return square(genotype)

    with ThreadPoolExecutor(2) as pool:
        try:
            evaluate = ag.map_evaluator(stuck, pool, retries=0, timeout=0.4)
            with pytest.warns(UserWarning, match="took longer"):
                fitness, _ = evaluate(rows(0, 3, 0, 0, 0))  # one thread goes on
            assert np.isnan(fitness).tolist() == [False, True, False, False, False]
            with pytest.raises(RuntimeError, match="every worker of the executor is busy"):
                evaluate(rows(3, 3, 0, 0))
        finally:
            release.set()


def test_a_pool_that_breaks_is_reported():
    with (
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool,
        pytest.raises(RuntimeError, match=r"broken: one of its processes died.*has processes of its own"),
    ):
        ag.map_evaluator(moody, pool)(rows(0, 2, 0, 0))


def test_if_nobody_can_be_evaluated_that_is_an_error():
    with ag.map_evaluator(moody, retries=0) as evaluate:
        with pytest.raises(RuntimeError, match=r"none of the 2 individuals(.|\n)*it cannot be done"):
            evaluate(rows(1, 1))
        evaluate(rows(0, 0))
        with pytest.warns(UserWarning, match="2 of 2"):
            fitness, descriptor = evaluate(rows(1, 1))  # now it is known what an evaluation looks like
        assert np.isnan(fitness).all() and descriptor.shape == (2, 2)


def test_a_function_of_the_script_is_sent_by_value():
    shift, lock = np.float32(3.0), threading.Lock()

    class Result(tuple):
        """Of a class that the worker does not have."""

    with ag.map_evaluator(lambda genotype: Result((shift + genotype[0], genotype[1:]))) as evaluate:
        fitness, _ = evaluate(ROWS)
    np.testing.assert_array_equal(fitness, shift + ROWS[:, 0])
    with ag.map_evaluator(lambda genotype: (lock, genotype)) as evaluate, pytest.raises(RuntimeError, match="be sent"):
        evaluate(ROWS)
    assert vanished(os.getpid())


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (3.0, r"must return \(fitness, descriptor\)"),
        ((1.0, "here"), "got fitness 1.0, descriptor 'here'"),
        (([1.0, 2.0], [1.0]), "got fitness"),
        ((1.0, [1.0], {"reward": [1.0]}), "no observation, action"),
        ((1.0, [1.0], {"reward": [], "observation": [], "action": []}), "rewards of shape"),
        ((1.0, [1.0], {"reward": [1.0], "observation": [[1], [2]], "action": [[1]], "alive": [1, 1]}), "observation"),
    ],
)
def test_a_result_that_is_none_is_an_error(result, words):
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match=words):
        ag.map_evaluator(lambda genotype: result, pool)(ROWS[:2])


def test_trajectories_are_filled_up():
    lengths = np.array([[2, 0.5], [4, -1.0], [3, 0.0], [1, 2.0]], np.float32)
    with ThreadPoolExecutor(2) as pool:
        fitness, descriptor, told = ag.map_evaluator(walk, pool, episode_length=4)(lengths)
        with pytest.raises(ValueError, match=r"episodes of 1 to 4 steps.*episode_length=…"):
            ag.map_evaluator(walk, pool)(lengths)
        with pytest.raises(ValueError, match="episode_length"):
            ag.map_evaluator(walk, pool, episode_length=3)(lengths)
    np.testing.assert_array_equal(fitness, [1.0, -4.0, 0.0, 2.0])
    np.testing.assert_array_equal(descriptor[:, 1], [2, 4, 3, 1])
    np.testing.assert_array_equal(told["alive"].sum(axis=1), [2, 4, 3, 1])
    np.testing.assert_array_equal(told["terminated"], [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(told["observation"][0], [[0.5, 0], [1.0, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(told["action"][3, :, 0], [2, 0, 0, 0])


def test_ascii_me_learns_from_them():
    """Of which one is refused: it has no trajectory, and none is learned from."""

    def evaluate_one(genotype):
        if genotype[0] > 0.6:
            raise ValueError("too far")
        return walk(np.array([1 + int(abs(genotype[1]) * 3) % 4, genotype[2]], np.float32))

    made = problem(descriptor_low=[-4, 0], descriptor_high=[4, 5], episode_length=4)
    optimizer = ag.Optimizer(ag.AsciiME(batch_size=16, epochs=2, sigma1=0.4), made, centroids=32)
    with ThreadPoolExecutor(2) as pool, pytest.warns(UserWarning, match="too far"):
        evaluate = ag.map_evaluator(evaluate_one, pool, retries=0, episode_length=4)
        for _ in range(3):
            optimizer.tell(*evaluate(optimizer.ask()))
    refused = optimizer.history["refused"]
    assert refused.sum() > 0 and (refused < 16).all() and len(optimizer.archive) > 2


def test_it_reports_progress(monkeypatch, capsys):
    monkeypatch.setattr("asciime_gym._counting.LINE_EVERY", 0.0)
    with ThreadPoolExecutor(1) as pool:
        ag.map_evaluator(square, pool, progress=True)(ROWS)
        ag.map_evaluator(square, pool)(ROWS)  # no terminal: nothing
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "evaluating: 12 of 12" and len(lines) <= 12


def test_processes_end_with_the_evaluator():
    evaluate = ag.map_evaluator(square)
    evaluate(ROWS)
    assert workers(os.getpid())
    evaluate.close()
    assert vanished(os.getpid())
    evaluate(ROWS)
    assert workers(os.getpid())
    del evaluate
    gc.collect()
    assert vanished(os.getpid())


def test_a_worker_that_starts_while_all_is_closed_ends():
    """The threads that start processes may be in the middle of it."""
    evaluate = ag.map_evaluator(slowly)
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        evaluate(ROWS)
    assert vanished(os.getpid())


SCRIPT = """
import time, os
import asciime_gym as ag, numpy as np

def slow(genotype):  # of this script, which has no guard: workers do not run it
    time.sleep(3600 if genotype[0] else 0)
    return 1.0, genotype

evaluate = ag.map_evaluator(slow)
evaluate(np.zeros((4, 2), np.float32))
print("ready", flush=True)
evaluate(np.ones((4, 2), np.float32))
"""


def test_ctrl_c_leaves_nothing_behind():
    """The signal reaches the whole group, as in a terminal; workers leave it to their parent."""
    script = started()
    os.killpg(script.pid, signal.SIGINT)
    _, err = script.communicate(timeout=30)
    assert script.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt")
    assert vanished(group=script.pid)


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed():
    """Also those that are in the middle of something."""
    script = started()
    assert workers(group=script.pid)
    script.kill()
    script.communicate(timeout=30)
    assert vanished(group=script.pid)


def started() -> subprocess.Popen:
    """The script, in a process group of its own, busy with what would take an hour."""
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert script.stdout.readline() == "ready\n"
    time.sleep(0.5)
    return script


def test_a_crew_may_be_ended_again():
    """By `close`, and once more when it is collected, before its threads have seen the first."""
    shift = _Shift(square)
    shift.threads = 2
    shift.end()
    shift.end()
    assert [shift.jobs.get_nowait() for _ in range(2)] == [None, None] and shift.jobs.empty()


def test_a_worker_answers_again_after_an_error():
    worker = Worker("test")
    worker.open("function", moody)
    assert worker.answer() is None
    worker.ask("call", rows(1)[0])
    with pytest.raises(RuntimeError, match="it cannot be done"):
        worker.answer()
    worker.ask("call", rows(0)[0])
    assert worker.answer()[0] == pytest.approx(-0.875)


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker():
    from distributed import Client, LocalCluster

    given = np.random.default_rng(1).uniform(0, 1, (24, 3)).astype(np.float32)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        evaluate = ag.map_evaluator(slowly, client.get_executor(), retries=1)
        first = evaluate(given[:2])
        np.testing.assert_array_equal(first[1], given[:2, :2])
        pids = client.run(os.getpid)
        assert len(pids) == 2
        killer = threading.Timer(1.0, os.kill, [next(iter(pids.values())), signal.SIGKILL])
        killer.start()
        fitness, descriptor = evaluate(given)
        killer.join()
        assert set(client.run(os.getpid).values()) != set(pids.values())
        np.testing.assert_array_equal(descriptor, given[:, :2])
        np.testing.assert_allclose(fitness, -np.square(given).sum(axis=1), rtol=1e-6)
        # Equal genotypes are evaluated each for itself, and one that failed is tried again.
        counted = ag.map_evaluator(moody, client.get_executor(), retries=1)
        with pytest.warns(UserWarning, match="2 of 4.*it cannot be done"):
            fitness, _ = counted(rows(0, 1, 1, 0))
        assert np.isnan(fitness).tolist() == [False, True, True, False]
