"""Several processes under `jax.distributed`: the same program, the same archive, one file."""

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ALGORITHMS

NAMES = tuple(name for name in ALGORITHMS if name != "pga_me")  # DCRL-ME spreads all that it does, and more
SCRIPT = """
import sys, jax
rank, processes, address, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if processes > 1:
    jax.distributed.initialize(address, processes, rank, initialization_timeout=120)
from asciime_gym._process import keep_programs
keep_programs()
import asciime_gym as ag
from helpers import ALGORITHMS, Walk, digest, sized, spent
assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (processes, processes, 1)
world, *names = sys.argv[5:]
for name in names:
    algorithm, task = sized(ALGORITHMS[name], 150), Walk()
    if world == "robot":
        task = ag.make_task("hopper_uni", episode_length=10, policy=algorithm.default_policy)
    optimizer = ag.Optimizer(algorithm, task, centroids=64)
    file = f"{folder}/{name}_{processes}.h5"
    result = optimizer.fit(evaluations=spent(algorithm, 2, task), seconds=1e6, checkpoint=file, checkpoint_every=1)
    assert result.stopped_by == "evaluations"
    optimizer = ag.Optimizer.load(file, task=task)  # the file that the first process wrote
    if name == "ascii_me":  # one generation by hand
        genotypes, key, life = optimizer.ask(), optimizer.evaluation_key, optimizer.life
        told = task.evaluate(genotypes, key, life=life, trajectory=algorithm.needs_trajectory)
        optimizer.tell(told.fitness, told.descriptor, told.trajectory, steps=told.steps)
    optimizer.fit(evaluations=spent(algorithm, 4, task))
    print(name, digest(optimizer._run), len(optimizer.archive))
"""


def play(processes: int, folder: Path, *words: str) -> list[list[str]]:
    """What each process printed."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{door.getsockname()[1]}"
    command = lambda rank: [sys.executable, "-c", SCRIPT, str(rank), str(processes), address, str(folder), *words]
    logs = [folder / f"log_{processes}_{rank}" for rank in range(processes)]
    with contextlib.ExitStack() as stack:
        started = []
        for rank, log in enumerate(logs):
            out = stack.enter_context(log.open("w"))
            process = subprocess.Popen(command(rank), stdout=out, stderr=out, cwd=Path(__file__).parent)
            stack.callback(process.kill)
            started.append(process)
        codes = [process.wait(timeout=900) for process in started]
    texts = [log.read_text() for log in logs]
    assert codes == [0] * processes, texts
    own = lambda text: [line for line in text.splitlines() if line.split(" ")[0] in ALGORITHMS]  # Gloo talks, too
    return [own(text) for text in texts]


@pytest.mark.slow
def test_two_processes_make_the_archive_that_one_makes(tmp_path):
    (alone,) = play(1, tmp_path, "walk", *NAMES)
    both = play(2, tmp_path, "walk", *NAMES)
    assert len(alone) == len(NAMES) and both == [alone, alone]


@pytest.mark.slow
def test_nor_does_a_robot_care(tmp_path):
    """MuJoCo would put its model on a device of the first process."""
    words = "robot", "map_elites"
    (alone,) = play(1, tmp_path, *words)
    assert len(alone) == 1 and play(2, tmp_path, *words) == [alone, alone]
