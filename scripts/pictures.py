"""Draws our robots for the README: data/pictures/render_TASK.png.

    .venv/bin/python scripts/pictures.py [TASK…]

Each picture is what `render()` of the Gymnasium environment gives after some steps of random actions.
"""

import sys
from pathlib import Path

import gymnasium
import numpy as np
from PIL import Image

from asciime_gym._process import keep_programs
from asciime_gym.tasks._registration import IDS

FOLDER = Path(__file__).resolve().parent.parent / "data" / "pictures"
STEPS, HOLD = {"hopper_uni": 40, "walker2d_uni": 40}, 8  # an ant's step is six times as long as theirs
COLORS = 256  # of a file; fewer bytes than all of them


def draw(task: str) -> Path:
    """One robot."""
    rng = np.random.default_rng(1)
    env = gymnasium.make(IDS[task], render_mode="rgb_array")
    env.reset(seed=1)
    action = env.action_space.sample()
    for t in range(STEPS.get(task, 12)):
        if t % HOLD == 0:
            action = rng.uniform(-1, 1, action.shape)
        _, _, terminated, _, _ = env.step(action)
        if terminated:
            break
    picture: object = env.render()
    assert isinstance(picture, np.ndarray)
    env.close()
    file = FOLDER / f"render_{task}.png"
    Image.fromarray(picture).quantize(COLORS).save(file, optimize=True)
    return file


if __name__ == "__main__":
    keep_programs()
    for name in sys.argv[1:] or IDS:
        made = draw(name)
        print(f"{made}: {made.stat().st_size / 1000:.0f} kB")
