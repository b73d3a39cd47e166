"""Pictures of our robots, drawn off screen by MuJoCo."""

import atexit
import copy
import importlib
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree, UInt8

from . import _gl
from ._brax import quiet
from .locomotion import Locomotion

BELOW = 0.55  # metres under the torso, where the middle of a robot is
LIGHT = 6.0  # metres over the robot
ROBOT, OTHER_LEG, FOOT, WALL = (0.85, 0.47, 0.16), (0.95, 0.72, 0.30), (0.20, 0.38, 0.62), (0.45, 0.50, 0.58)
FAINT = {"floor": (0.55, 0.12), "sky": (0.72, 0.25)}  # black, and how much lighter white is
_open: "weakref.WeakSet[Renderer]" = weakref.WeakSet()


class View(NamedTuple):
    """Where the camera stands: it looks at the torso's place, and up only after a robot that leaps."""

    azimuth: float  # degrees; 0 looks along x, 90 along y
    elevation: float
    distance: float  # metres
    height: float


VIEWS = {
    "hopper": View(80, -9, 2.4, 0.72),
    "walker2d": View(80, -9, 2.4, 0.72),
    "ant": View(125, -28, 2.7, 0.3),
    "trap": View(0, -17, 3.2, 0.75),  # from behind, so that the walls are in sight
}


class Renderer:
    """Draws a task's robot.

        with Renderer(task) as renderer:
            for picture in renderer.frames(physics): ...

    `physics` is what `SimulatorState.physics` holds, or `Locomotion.replay` gives. What is drawn is where the
    simulation has the robot's links, not where its joint angles would put them: with springs for joints that differs.
    """

    def __init__(self, task: Locomotion, width: int = 480, height: int = 360):
        for name, pixels in (("width", width), ("height", height)):
            if int(pixels) != pixels or pixels < 1:
                raise ValueError(f"{name} must be a whole number of pixels, at least 1; got {pixels}")
        _gl.chosen()  # better now than in the middle of an episode
        with quiet():
            mujoco: Any = importlib.import_module("mujoco")
        self._mujoco = mujoco
        self._task, self._width, self._height = task, int(width), int(height)
        self._model = _painted(mujoco, task)
        self._model.vis.global_.offwidth, self._model.vis.global_.offheight = self._width, self._height
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)  # for what stands still
        self._scene = mujoco.MjvScene(self._model, maxgeom=4 * self._model.ngeom + 16)
        self._contexts: tuple[Any, Any] | None = None
        self._closed = False

    def __enter__(self) -> "Renderer":
        return self

    def __exit__(self, *_):
        self.close()

    def frame(self, physics: PyTree) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of one state."""
        if self._closed:
            raise RuntimeError("the renderer is closed: make a new one")
        mujoco, model, data = self._mujoco, self._model, self._data
        self._place(np.asarray(physics.x.pos), np.asarray(physics.x.rot))
        gl, drawing = self._contexts or self._begin()
        gl.make_current()  # somebody else's may be
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, drawing)
        everything, options, camera = mujoco.mjtCatBit.mjCAT_ALL.value, mujoco.MjvOption(), self._camera()
        mujoco.mjv_updateCamera(model, data, camera, self._scene)  # the floor is laid where the camera stands by now
        mujoco.mjv_updateScene(model, data, options, None, camera, everything, self._scene)
        picture = np.empty((self._height, self._width, 3), np.uint8)
        area = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(area, self._scene, drawing)
        mujoco.mjr_readPixels(picture, None, area, drawing)
        return picture[::-1].copy()  # OpenGL begins at the bottom

    def frames(self, physics: PyTree) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        """Pictures of a sequence of states, whose arrays have a leading axis."""
        transform = jax.device_get(physics.x)
        for i in range(len(transform.pos)):
            yield self.frame(_Placed(jax.tree.map(lambda leaf, i=i: leaf[i], transform)))

    def close(self):
        """Gives back what belongs to OpenGL; may be called again."""
        self._closed = True
        if self._contexts:
            gl, drawing = self._contexts
            self._contexts = None
            gl.make_current()
            drawing.free()
            gl.free()

    def __del__(self):
        if getattr(self, "_contexts", None):
            self.close()

    def _begin(self) -> tuple[Any, Any]:
        gl = _gl.context(self._width, self._height)
        drawing = self._mujoco.MjrContext(self._model, self._mujoco.mjtFontScale.mjFONTSCALE_100.value)
        self._contexts = gl, drawing
        if not _open:
            atexit.register(_close_all)  # after MuJoCo's own, so it is called before
        _open.add(self)
        return self._contexts

    def _place(self, positions: np.ndarray, rotations: np.ndarray):
        """Puts the links where they are; MuJoCo's body 0 is the world."""
        mujoco, model, data = self._mujoco, self._model, self._data
        data.xpos[1:], data.xquat[1:] = positions, rotations
        for body in range(1, model.nbody):
            mujoco.mju_quat2Mat(data.xmat[body], data.xquat[body])
        for geom in np.flatnonzero(model.geom_bodyid > 0):
            place, turn = data.geom_xpos[geom], data.geom_xmat[geom]
            body, own = int(model.geom_bodyid[geom]), (model.geom_pos[geom], model.geom_quat[geom])
            mujoco.mj_local2Global(data, place, turn, *own, body, mujoco.mjtSameFrame.mjSAMEFRAME_NONE.value)
        data.light_xpos[:] = data.xpos[1] + [0.0, 0.0, LIGHT]

    def _camera(self) -> Any:
        view = VIEWS["trap" if self._task.robot.trap else self._task.robot.brax_name]
        camera = self._mujoco.MjvCamera()
        camera.azimuth, camera.elevation, camera.distance = view.azimuth, view.elevation, view.distance
        x, y, z = self._data.xpos[1]
        camera.lookat[:] = x, y, max(view.height, z - BELOW)
        return camera


class _Placed(NamedTuple):
    x: Any


def _painted(mujoco: Any, task: Locomotion) -> Any:
    """The robot's model in colours that can be told apart, on a floor without end whose squares are 1 m wide."""
    model = copy.copy(task.env.sys.mj_model)
    floor = model.geom("floor").id
    model.geom_size[floor, :2] = 0.0
    feet = [foot + 1 for foot in task.robot.feet]
    for geom in range(model.ngeom):
        body = model.geom_bodyid[geom]
        other = task.robot.brax_name == "walker2d" and "left" in model.geom(geom).name
        if geom != floor:
            color = WALL if body == 0 else FOOT if body in feet else OTHER_LEG if other else ROBOT
            model.geom_rgba[geom, :3], model.geom_matid[geom] = color, -1
    model.geom_rgba[floor] = 1.0
    model.mat_reflectance[:], model.mat_specular[:] = 0.0, 0.0
    model.mat_texuniform[:], model.mat_texrepeat[:] = True, 0.5  # a texture has two squares
    for texture in range(model.ntex):
        sky = model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_SKYBOX.value
        black, white = FAINT["sky" if sky else "floor"]
        begin = model.tex_adr[texture]
        size = model.tex_height[texture] * model.tex_width[texture] * model.tex_nchannel[texture]
        pixels = model.tex_data[begin : begin + size]
        pixels[:] = (255 * black + white * pixels).astype(np.uint8)
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.35, 0.35
    model.light_castshadow[:] = True
    model.vis.quality.shadowsize = 4096
    model.light_type[:] = mujoco.mjtLightType.mjLIGHT_SPOT.value  # a directional one leaves shadows of nothing far away
    return model


def _close_all():
    for renderer in list(_open):
        renderer.close()
