"""Several processes under `jax.distributed`: the same program, the same archive, one file."""

import socket
import subprocess
import sys
from pathlib import Path

from helpers import ALGORITHMS

SCRIPT = """
import sys, jax
rank, processes, address, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if processes > 1:
    jax.distributed.initialize(address, processes, rank, initialization_timeout=120)
import asciime_gym as ag
from helpers import ALGORITHMS, Walk, digest
assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (processes, processes, 1)
for name, algorithm in ALGORITHMS.items():
    optimizer = ag.Optimizer(algorithm, Walk(), centroids=64)
    file = f"{folder}/{name}_{processes}_{rank}.h5"
    result = optimizer.fit(evaluations=4 * algorithm.batch_size, checkpoint=file, checkpoint_every=2)
    assert result.stopped_by == "evaluations"
    optimizer.fit(evaluations=6 * algorithm.batch_size, seconds=1e6, checkpoint=file)
    print(name, digest(optimizer._run), len(optimizer.archive))
"""


def play(processes: int, folder: Path) -> list[str]:
    """What each process printed."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{door.getsockname()[1]}"
    command = lambda rank: [sys.executable, "-c", SCRIPT, str(rank), str(processes), address, str(folder)]
    here = Path(__file__).parent
    started = [
        subprocess.Popen(command(rank), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here)
        for rank in range(processes)
    ]
    try:
        outputs = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, outputs, strict=True):
        assert process.returncode == 0, errors
    own = lambda text: "\n".join(line for line in text.splitlines() if line.split()[0] in ALGORITHMS)  # Gloo talks too
    return [own(text) for text, _ in outputs]


def test_two_processes_make_the_archive_that_one_makes(tmp_path):
    (alone,) = play(1, tmp_path)
    both = play(2, tmp_path)
    assert len(alone.splitlines()) == len(ALGORITHMS) and both == [alone, alone]
    written = {file.name for file in tmp_path.glob("*_2_*.h5")}
    assert written == {f"{name}_2_0.h5" for name in ALGORITHMS}  # the first process alone writes
