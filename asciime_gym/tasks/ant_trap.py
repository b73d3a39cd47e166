"""The ant in front of a U-shaped wall that is open towards it."""

import copy
import functools
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from ._brax import anywhere, brax, building, environment

RADIUS = 0.5  # of the walls, which are capsules that lie at this height
# Ends of each wall's axis: a capsule reaches RADIUS further, so end to end they are 5, 6 and 6 long.
WALLS = (
    ((12.0, -2.0), (12.0, 2.0)),  # the back
    ((7.0, 3.0), (12.0, 3.0)),
    ((7.0, -3.0), (12.0, -3.0)),
)


def trapped(xml: str) -> str:
    """The ant's model with the walls added.

    In Brax's ant only the foot spheres collide (contype 1). The walls take part in two groups (conaffinity 3),
    and the torso joins the second (contype 2): it meets the walls, and goes on ignoring the floor.
    """
    root = ElementTree.fromstring(xml)
    world = root.find("worldbody")
    torso = root.find(".//geom[@name='torso_geom']")
    if world is None or torso is None:
        raise ValueError("the ant's model has changed: no worldbody or no torso_geom in it")
    torso.set("contype", "2")
    for number, ((x1, y1), (x2, y2)) in enumerate(WALLS):
        wall = {
            "name": f"wall_{number}",
            "type": "capsule",
            "size": f"{RADIUS}",
            "fromto": f"{x1} {y1} {RADIUS} {x2} {y2} {RADIUS}",
            "contype": "0",
            "conaffinity": "3",
            "rgba": "0.35 0.4 0.5 1",
        }
        ElementTree.SubElement(world, "geom", wall)
    return ElementTree.tostring(root, encoding="unicode")


@functools.cache
def ant_trap(backend: str) -> Any:
    """Brax's ant environment on the model with walls; everything else as Brax sets it for the backend."""
    brax_ = brax()
    plain = environment("ant", backend)
    env = copy.copy(plain)
    with building():
        path = Path(brax_.envs.__file__).parent / "assets" / "ant.xml"
        system = brax_.io.mjcf.loads(trapped(path.read_text()))
        env.sys = anywhere(system.replace(opt=plain.sys.opt, actuator=plain.sys.actuator))
    return env
