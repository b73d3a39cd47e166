"""Killed at any moment: the file at the path is whole, and the run that goes on from it ends as if nothing happened."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ALGORITHMS, Walk, digest

import asciime_gym as ag

pytestmark = pytest.mark.slow

GENERATIONS = dict.fromkeys(ALGORITHMS, 800) | {"ppga": 300}  # more than are reached before the last kill
KILLS = {1: 3, 2: 2}  # of each algorithm on so many devices: 30 in all
COMMON = """
import os, sys, time, jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[2]))
from asciime_gym._process import keep_programs
keep_programs()
import asciime_gym as ag
from helpers import ALGORITHMS, Walk, digest, spent
algorithm, task, generations = ALGORITHMS[sys.argv[1]], Walk(), int(sys.argv[3])
evaluations = spent(algorithm, generations, task)
def start(path):
    if os.path.exists(path):
        return ag.Optimizer.load(path, task=task)
    return ag.Optimizer(algorithm, task, centroids=64)
"""
VICTIM = f"""{COMMON}
optimizer = start(sys.argv[4])
pause = lambda *_: time.sleep(0.004)
optimizer.fit(evaluations=evaluations, callbacks=pause, checkpoint=sys.argv[4], checkpoint_every=1)
print("ended")
"""
FINISHER = f"""{COMMON}
for path in sys.argv[4:]:
    optimizer = start(path)
    assert len(optimizer.history) == optimizer.generation < generations
    optimizer.fit(evaluations=evaluations, checkpoint=path)
    history = {{k: v for k, v in optimizer.history.to_dict().items() if k != "seconds"}}
    assert history["generation"].tolist() == list(range(generations))
    print(digest(optimizer._run), digest(history))
"""
COMMAND = f"""{COMMON}
from asciime_gym.__main__ import main
start(sys.argv[4]).save(sys.argv[4])
load = ag.Optimizer.load
ag.Optimizer.load = lambda path, **_: load(path, task=task)  # the command line knows the robots only
print("resumes", flush=True)
sys.exit(main(["resume", sys.argv[4], "--evaluations", str(10**9), "--checkpoint-every", "1", "--quiet"]))
"""


def script(code: str, *words) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=Path(__file__).parent, text=True, stdout=pipe, stderr=pipe)


def finish(name: str, devices: int, *paths: Path) -> list[str]:
    """What the run in each file is at its end."""
    with script(FINISHER, name, devices, GENERATIONS[name], *paths) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    return out.splitlines()


def version(path: Path) -> tuple | None:
    """What changes when a file is replaced."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


def wait_for_change(path: Path, process: subprocess.Popen):
    before, until = version(path), time.monotonic() + 120
    while version(path) == before:
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.002)


def kill(process: subprocess.Popen, path: Path, moment: random.Random) -> bool:
    """At any moment: mostly while checkpoints are written in quick succession, now and then during the start.

    **Returns:** whether a checkpoint had been written.
    """
    if saved := moment.random() < 0.8:
        wait_for_change(path, process)
        time.sleep(moment.uniform(0, 0.3))
    else:
        time.sleep(moment.uniform(0, 4))
    process.kill()
    out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL and not out, err
    return saved


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    return {name: finish(name, 1, folder / f"{name}.h5") for name in ALGORITHMS}


@pytest.mark.parametrize("devices", KILLS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_that_is_killed_again_and_again(name, devices, uninterrupted, tmp_path):
    """Each process goes on from what the last one left, and from each kill the run is also taken to its end."""
    path, moment = tmp_path / "run" / "run.h5", random.Random(f"{name} {devices}")
    copies, generation = [], 0
    while len(copies) < KILLS[devices]:
        with script(VICTIM, name, devices, GENERATIONS[name], path) as process:
            saved = kill(process, path, moment)
        if not path.exists():  # before the first checkpoint
            continue
        left = ag.Optimizer.load(path, task=Walk())
        assert generation + saved <= left.generation == len(left.history) < GENERATIONS[name]
        assert len(ag.load_archive(path)) == len(left.archive)
        generation = left.generation
        copies.append(shutil.copy(path, tmp_path / f"kill_{len(copies)}.h5"))
    assert finish(name, devices, *copies, path) == uninterrupted[name] * (KILLS[devices] + 1)
    assert os.listdir(path.parent) == ["run.h5"]  # what the killed ones left was swept


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop(number, tmp_path):
    """`asciime resume` saves, shows what there is, and exits with 130."""
    name, path = "dcrl_me", tmp_path / "run.h5"
    for _ in range(2):
        with script(COMMAND, name, 2, 1, path) as process:
            assert process.stdout.readline() == "resumes\n"
            wait_for_change(path, process)
            process.send_signal(number)
            out, err = process.communicate()
        assert process.returncode == 130 and not err and "interrupt" in out
        assert os.listdir(tmp_path) == ["run.h5"]
    stopped = ag.Optimizer.load(path, task=Walk())
    again = ag.Optimizer(stopped.algorithm, Walk(), centroids=64)
    again.fit(evaluations=stopped.evaluations)
    assert digest(again._run) == digest(stopped._run)
