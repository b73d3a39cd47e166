"""The motion of an archive's elites, as the page has it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..._motion import BATCH, motion, task_of
from ..._view import ArchiveView
from ...tasks.locomotion import Locomotion
from ._poses import frames_of, packed
from ._progress import Steps
from ._robot import robot

SMOOTH = 1 / 60  # seconds between the poses that are kept, or a step of the robot's if that is longer
MOST = 13_500_000  # characters of poses; the page around them takes about one million


@dataclasses.dataclass(frozen=True)
class Episode:
    """Some poses of an elite's episode."""

    row: int
    steps: int
    frames: Int[np.ndarray, " frames"]  # the steps at which they are
    position: Float[np.ndarray, "frames links 3"]
    rotation: Float[np.ndarray, "frames links 4"]

    def packed(self, stride: int, parents: list[int]) -> tuple[str, float]:
        """Its text and grain, with a pose at every so many steps."""
        kept = np.searchsorted(self.frames, frames_of(self.steps, stride))
        return packed(self.position[kept], self.rotation[kept], parents)


def moves(archive: ArchiveView, steps: Steps) -> tuple[dict[str, Any], list[str]]:
    """The robot and where its poses are, and the poses as text; or the reason why there are none."""
    try:
        task = task_of(archive)
    except ValueError as error:
        steps.say(f"the map only: {error}")
        return {"why_not": str(error)}, []
    stride = max(1, int(SMOOTH / float(task.env.dt) + 1e-6))
    episodes, body = list(_played(archive, task, stride, steps)), robot(task)
    steps.say("packing the poses")
    pieces = [episode.packed(stride, body["parents"]) for episode in episodes]
    while sum(len(text) for text, _ in pieces) > MOST and stride < task.episode_length:
        stride *= 2  # the page draws what is between two poses
        pieces = [episode.packed(stride, body["parents"]) for episode in episodes]
    found = {
        "stride": stride,
        "rows": [episode.row for episode in episodes],
        "lengths": [episode.steps for episode in episodes],
        "ends": np.cumsum([len(text) for text, _ in pieces]).tolist(),
        "grains": [grain for _, grain in pieces],
    }
    return found | body, [text for text, _ in pieces]


def _played(archive: ArchiveView, task: Locomotion, stride: int, steps: Steps) -> Iterator[Episode]:
    """The episodes of all elites that have a policy."""
    rows = np.flatnonzero(archive.has_policy)
    steps.say("compiling (up to a minute the first time)")
    for begin in range(0, len(rows), BATCH):
        part = rows[begin : begin + BATCH].tolist()
        moved = motion(archive, part, task)
        for number, row in enumerate(part):
            length = int(moved.steps[number])
            frames = frames_of(length, stride)
            position, rotation = moved.position[number, frames], moved.rotation[number, frames]
            if np.isfinite(position).all() and np.isfinite(rotation).all():  # a simulation may blow up as it ends
                yield Episode(row, length, frames, position, rotation)
        steps.done(begin + len(part), len(rows))
