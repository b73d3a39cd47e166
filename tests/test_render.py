"""Pictures of our robots: large, in the middle, true to the simulation; and what is said where nothing can draw."""

import contextlib
import ctypes
import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from test_gymnasium_env import draws

import asciime_gym as ag
from asciime_gym.tasks._registration import IDS
from asciime_gym.tasks._render import Renderer

WIDTH, HEIGHT = 160, 120


class Place(NamedTuple):
    pos: np.ndarray
    rot: np.ndarray


class Physics(NamedTuple):
    x: Place


def standing(name: str, offset=(0.0, 0.0, 0.0)) -> Physics:
    """The robot in its first pose, moved by an offset."""
    system = ag.make_task(name).env.sys
    data = mujoco.MjData(system.mj_model)  # type: ignore[attr-defined]
    data.qpos[:] = system.init_q
    mujoco.mj_forward(system.mj_model, data)  # type: ignore[attr-defined]
    return Physics(Place(data.xpos[1:] + offset, data.xquat[1:].copy()))


def colored(picture: np.ndarray, name: str) -> np.ndarray:
    """Where there is something of the robot, or of the walls; the floor is grey."""
    red, _, blue = np.moveaxis(picture.astype(float), -1, 0)
    return {"robot": (red > 1.5 * blue) | (blue > 1.5 * red), "wall": (blue > 1.08 * red) & (blue < 1.4 * red)}[name]


@draws
@pytest.mark.parametrize("name", IDS)
def test_the_robot_is_large_and_in_the_middle_wherever_it_goes(name):
    with Renderer(ag.make_task(name), WIDTH, HEIGHT) as renderer:
        for offset in ((0.0, 0.0, 0.0), (101.3, 0.0, 0.0)):
            picture = renderer.frame(standing(name, offset))
            assert (picture.shape, picture.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
            rows, columns = np.nonzero(colored(picture, "robot"))
            height, width = (np.ptp(rows) + 1) / HEIGHT, (np.ptp(columns) + 1) / WIDTH
            assert max(height, width) > 0.4, (height, width)
            assert min(rows.min(), columns.min()) > 0  # none of it is cut off
            assert rows.max() < HEIGHT - 1 and columns.max() < WIDTH - 1
            assert abs(columns.mean() / WIDTH - 0.5) < 0.1


@draws
def test_the_walls_of_the_trap_are_seen():
    counts = {}
    for name in ("ant_omni", "anttrap_omni"):
        with Renderer(ag.make_task(name), WIDTH, HEIGHT) as renderer:
            counts[name] = colored(renderer.frame(standing(name)), "wall")[: HEIGHT // 2].mean()
    assert counts["anttrap_omni"] > 0.03 > 10 * counts["ant_omni"]


def alike(pictures: Any, expected: Any):
    """A software renderer shades a pixel now and then a little differently."""
    np.testing.assert_allclose(np.asarray(pictures, int), np.asarray(expected, int), atol=10)


@draws
def test_draws_the_links_where_they_are():
    """Not where joint angles would put them; and a sequence is its states one by one."""
    physics = standing("hopper_uni")
    torso = np.zeros((4, 3), np.float32)
    torso[0, 2] = 0.15  # pulled off the rest of the robot, upwards
    pulled = Physics(physics.x._replace(pos=physics.x.pos + torso))
    top = lambda picture: np.nonzero(colored(picture, "robot"))[0].min()
    with Renderer(ag.make_task("hopper_uni"), WIDTH, HEIGHT) as renderer:
        one, other = renderer.frame(physics), renderer.frame(pulled)
        assert top(other) < top(one)
        both = jax.tree.map(lambda a, b: jnp.stack([a, b]), physics, pulled)
        alike(list(renderer.frames(both)), [one, other])


@draws
def test_renderers_do_not_disturb_each_other():
    task, physics = ag.make_task("hopper_uni"), standing("hopper_uni")
    first = Renderer(task, WIDTH, HEIGHT)
    picture = first.frame(physics)
    with Renderer(task, 64, 48) as second:
        assert second.frame(physics).shape == (48, 64, 3)
    alike(first.frame(physics), picture)
    first.close()
    first.close()
    with pytest.raises(RuntimeError, match="closed"):
        first.frame(physics)
    with pytest.raises(ValueError, match="width"):
        Renderer(task, 0, 48)


OPEN = "from asciime_gym.tasks import _gl; print(type(_gl.context(8, 8)).__module__)"
DRAW = """
import asciime_gym
from asciime_gym.tasks._render import Renderer
from test_render import standing
renderer = Renderer(asciime_gym.make_task("hopper_uni"), 64, 48)
print(renderer.frame(standing("hopper_uni")).shape)
"""


def process(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs it in a process of its own, which has its own OpenGL."""
    clean = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    environment = {**clean, "PYTHONPATH": paths, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment)


def has_osmesa() -> bool:
    for name in ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"):
        with contextlib.suppress(OSError):
            return bool(ctypes.CDLL(name))
    return False


@draws
def test_chooses_by_itself_and_ends_cleanly():
    done = process(DRAW)  # and leaves the renderer open
    assert (done.returncode, done.stdout, done.stderr) == (0, "(48, 64, 3)\n", "")


def test_does_as_it_is_told():
    done = process(OPEN, MUJOCO_GL="osmesa")
    if has_osmesa():
        assert done.stdout == "mujoco.osmesa\n", done.stderr
    else:
        assert done.returncode and "NoRenderer" in done.stderr and "apt install libosmesa6" in done.stderr
    done = process(OPEN, MUJOCO_GL="off")
    assert done.returncode and "MUJOCO_GL=off" in done.stderr


@pytest.mark.skipif(not has_osmesa(), reason="no OSMesa")
def test_takes_osmesa_where_there_is_no_egl(tmp_path):
    (tmp_path / "libEGL.so.1").write_text("not a library")
    (tmp_path / "libEGL.so").write_text("not a library")
    places = os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")])
    done = process(OPEN, LD_LIBRARY_PATH=places)
    assert done.stdout == "mujoco.osmesa\n", done.stderr


def test_says_what_to_install_where_nothing_can_draw():
    done = process(OPEN, PYOPENGL_PLATFORM="none")  # which no kind of context can use
    assert done.returncode and "NoRenderer" in done.stderr
    for word in ("egl:", "osmesa:", "apt install libegl1 libegl-mesa0", "apt install libosmesa6", "MUJOCO_GL"):
        assert word in done.stderr
