"""The robot's body, for the page to build."""

from typing import Any

import numpy as np

from ...tasks._render import BELOW, FOOT, OTHER_LEG, ROBOT, VIEWS, WALL
from ...tasks.locomotion import Locomotion

SHAPES = {2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box"}  # MuJoCo's numbers


def robot(task: Locomotion) -> dict[str, Any]:
    """Shapes, each with its link (-1: stands still), and where to look from."""
    model = task.env.sys.mj_model
    view = VIEWS["trap" if task.robot.trap else task.robot.brax_name]
    shown = [geom for geom in range(model.ngeom) if int(model.geom_type[geom]) in SHAPES]
    return {
        "seconds": float(task.env.dt),  # of a step
        "parents": parents(task),
        "shapes": [_shape(task, model, geom) for geom in shown],
        "view": {**view._asdict(), "below": BELOW},
    }


def parents(task: Locomotion) -> list[int]:
    """Each link's parent among the links; -1 where that is the world."""
    return [int(body) - 1 for body in task.env.sys.mj_model.body_parentid[1:]]


def _shape(task: Locomotion, model: Any, geom: int) -> dict[str, Any]:
    body, name = int(model.geom_bodyid[geom]), model.geom(geom).name
    other = task.robot.brax_name == "walker2d" and "left" in name
    feet = [foot + 1 for foot in task.robot.feet]
    colour = WALL if body == 0 else FOOT if body in feet else OTHER_LEG if other else ROBOT
    w, x, y, z = _numbers(model.geom_quat[geom])
    return {
        "shape": SHAPES[int(model.geom_type[geom])],
        "link": body - 1,
        "size": _numbers(model.geom_size[geom]),
        "place": _numbers(model.geom_pos[geom]),
        "turn": [x, y, z, w],
        "colour": list(colour),
    }


def _numbers(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]
