"""Traced programs that outlive their process."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Walk

import asciime_gym as ag
from asciime_gym import _archive, _programs
from asciime_gym._compile import compiled


@pytest.fixture
def folder(tmp_path):
    before = _programs._folder
    _programs.keep_in(tmp_path)
    yield tmp_path
    _programs.keep_in(before)


def counted(traces: list):
    """A program that notes how often it is traced."""

    def double(fixed, x):
        traces.append(fixed)
        return {"twice": 2 * x, "both": (x + fixed[0], fixed[1] * x)}

    return compiled(double, like=lambda fixed, x: {"twice": x, "both": (x, x)})


def check(outcome, x):
    np.testing.assert_array_equal(outcome["twice"], 2 * x)
    np.testing.assert_array_equal(outcome["both"][0], x + 5)
    np.testing.assert_array_equal(outcome["both"][1], 3 * x)


def test_a_kept_program_is_not_traced_again(folder):
    traces, x = [], jnp.arange(4.0)
    first = counted(traces)
    for _ in range(2):
        check(first((5, np.float32(3)), x), x)
    assert len(traces) == 1 and len(list(folder.glob("double-*.program"))) == 1
    again = counted(traces)  # as in another process: nothing remembered but the file
    check(again((5, np.float32(3)), x), x)
    assert len(traces) == 1
    again((6, np.float32(3)), x)  # another plain value is another program
    again((5, np.float32(3)), jnp.arange(5.0))  # so is another shape
    assert len(traces) == 3


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: b"", lambda data: data[:50] + b"?" + data[51:]]
)
def test_a_damaged_program_is_made_again(damage, folder):
    traces, x = [], jnp.arange(4.0)
    counted(traces)((5, np.float32(3)), x)
    (file,) = folder.glob("*.program")
    file.write_bytes(damage(file.read_bytes()))
    for _ in range(2):
        check(counted(traces)((5, np.float32(3)), x), x)
    assert len(traces) == 2


def test_a_folder_that_cannot_be_written_is_done_without(folder):
    _programs.keep_in(folder / "gone")
    x = jnp.arange(4.0)
    check(counted([])((5, np.float32(3)), x), x)


def name(*args) -> str | None:
    return _programs.name_of(name, args, "cpu")


def test_names_tell_programs_apart(folder):
    task = ag.make_task("hopper_uni")
    names = [
        name(ag.AsciiME(), task),
        name(ag.AsciiME(epochs=31), task),
        name(ag.MapElites(), task),
        name(ag.AsciiME(), ag.make_task("hopper_uni", episode_length=249)),
        name(ag.AsciiME(), ag.make_task("hopper_uni", lanes=False)),
        name(ag.AsciiME(), ag.make_task("hopper_uni", policy=ag.MapElites.default_policy)),
        name(jnp.zeros(3)),
        name(jnp.zeros((3, 1))),
        name(jnp.zeros(3, jnp.int32)),
    ]
    assert None not in names and len(set(names)) == len(names)
    assert name(ag.AsciiME(), task) == names[0] and name(jnp.ones(3)) == names[6]
    with jax.enable_x64(True):
        assert name(ag.AsciiME(), task) != names[0]


def test_what_is_the_users_own_is_never_kept(folder):
    """Its name would not tell what it does."""
    import equinox as eqx
    import optax

    linear = ag.EquinoxPolicy(lambda key: eqx.nn.Linear(12, 3, key=key), 12, 3)
    assert name(ag.AsciiME(optimizer=optax.sgd(0.1))) is None
    assert name(ag.make_task("hopper_uni", policy=lambda *_: linear)) is None
    assert name(Walk()) is None
    _programs.keep_in(None)
    assert name(ag.AsciiME()) is None


SCRIPT = """
import os, sys
if sys.argv[1:] == ["one core"]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from asciime_gym._process import prepare
prepare()
import asciime_gym as ag
from helpers import digest
task = ag.make_task("hopper_uni", episode_length=30)
optimizer = ag.Optimizer(ag.AsciiME(batch_size=24, epochs=2), task, centroids=64)
optimizer.fit(evaluations=72)
print(digest(optimizer._run), "brax" in sys.modules)
"""


@pytest.mark.slow
def test_a_robot_starts_again_without_its_simulator_and_to_the_same_bits(tmp_path):
    def run(cache: str, *words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "ASCIIME_CACHE": cache, "JAX_LOG_COMPILES": "1"},
        )
        assert done.returncode == 0, done.stderr
        return [*done.stdout.split(), done.stderr]

    (never, *_), (cold, with_brax, _), (warm, without, _) = run("off"), run(str(tmp_path)), run(str(tmp_path))
    assert never == cold == warm
    assert (with_brax, without) == ("True", "False")
    alone, _, log = run(str(tmp_path / "one"), "one core")  # what was returned is no other program's than what was made
    kept = len(list((tmp_path / "one").rglob("*.program")))
    assert alone == never and log.count("Finished XLA compilation of jit(call)") == kept > 0


def test_centroids_are_kept(folder, monkeypatch):
    made, makes = _archive._k_means, []
    monkeypatch.setattr(_archive, "_k_means", lambda *size: makes.append(size) or made(*size))
    find = _archive._unit_centroids.__wrapped__  # as in another process: nothing remembered but the file
    expected = made(20, 2)
    for _ in range(2):
        np.testing.assert_array_equal(find(20, 2), expected)
    assert makes == [(20, 2)]
    np.testing.assert_array_equal(find(20, 1), made(20, 1))
    (file,) = folder.glob("centroids-20-2-*.bytes")
    file.write_bytes(file.read_bytes()[:-8])
    np.testing.assert_array_equal(find(20, 2), expected)
    assert makes == [(20, 2), (20, 1), (20, 2)]
