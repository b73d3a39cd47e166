"""One device or two: the same run, bit for bit."""

import functools
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ALGORITHMS

from asciime_gym._spread import _collect, _deal

FEW = "map_elites", "ascii_me"
OTHERS = tuple(name for name in ALGORITHMS if name not in FEW)
SCRIPT = """
import sys, jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
from asciime_gym._process import keep_programs
keep_programs()
import asciime_gym as ag
from helpers import ALGORITHMS, Walk, digest, sized, spent
robot, names = sys.argv[2] == "robot", sys.argv[3:]
assert len(jax.devices()) == int(sys.argv[1])
for name in names:
    algorithm = ALGORITHMS[name]
    algorithm = sized(algorithm, 150)  # three tiles, the last one not full
    task = Walk()
    if robot:
        task = ag.make_task("hopper_uni", episode_length=100, policy=algorithm.default_policy)
    optimizer = ag.Optimizer(algorithm, task, centroids=64)
    optimizer.fit(evaluations=spent(algorithm, 5, task))
    print(name, digest(optimizer._run), len(optimizer.archive))
"""


@functools.cache
def outcome(devices: int, task: str, names: tuple[str, ...]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(devices), task, *names],
        capture_output=True,
        text=True,
        cwd=__file__.rpartition("/")[0],
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_rows_are_dealt_to_and_fro(devices):
    """So that work that is ordered by length is shared out evenly."""
    work = np.arange(8 * devices, 0, -1) ** 2
    shares = np.asarray(_deal(jnp.asarray(work), devices)).reshape(devices, -1)
    assert sorted(shares.ravel()) == sorted(work)
    assert np.ptp(shares.sum(axis=1)) <= 0.05 * shares.sum(axis=1).mean()
    for count in range(1, 3 * devices + 1):
        rows = jnp.arange(2 * count).reshape(count, 2)
        dealt = _deal(rows, devices)
        assert len(dealt) == -(-count // devices) * devices
        assert np.array_equal(_collect(dealt, devices, count), rows)


@pytest.mark.parametrize("names", [FEW, pytest.param(OTHERS, marks=pytest.mark.slow)], ids="-".join)
def test_two_devices_or_one(names):
    """The batch is three tiles, which two devices do not divide."""
    one, two = outcome(1, "walk", names), outcome(2, "walk", names)
    assert set(one) == set(names) and one == two


@pytest.mark.slow
def test_three_devices_or_one():
    """Three do not divide the offspring of one operator."""
    names = "ascii_me", "dcrl_me"  # of two operators, and of three
    one = outcome(1, "walk", FEW) | outcome(1, "walk", OTHERS)
    assert {name: one[name] for name in names} == outcome(3, "walk", names)


@pytest.mark.slow
def test_a_robot_on_two_devices_or_one():
    names = "ascii_me", "ppga"  # others play their episodes as one of these does
    one, two = outcome(1, "robot", names), outcome(2, "robot", names)
    assert set(one) == set(names) and one == two
