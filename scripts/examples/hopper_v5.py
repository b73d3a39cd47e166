"""Fills an archive of ways to move Gymnasium's own Hopper: how much its foot is on the ground, and how high it is held.

    python scripts/examples/hopper_v5.py --evaluations 20000

Needs the extra `mujoco`. The environment does not say where the foot is, so a wrapper puts it into the info.
"""

from pathlib import Path
from typing import Any, Literal

import gymnasium
import tyro

import asciime_gym as ag
from asciime_gym._process import prepare


class Foot(gymnasium.Wrapper):
    """Adds two entries to the info of each step: whether the foot touches anything, and its height."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.robot: Any = env.unwrapped
        self.foot = self.robot.model.geom("foot_geom").id

    def step(self, action: Any):
        observation, reward, terminated, truncated, info = self.env.step(action)
        info["foot_contact"] = float((self.robot.data.contact.geom == self.foot).any())
        info["foot_height"] = float(self.robot.data.geom_xpos[self.foot, 2])
        return observation, reward, terminated, truncated, info


def hopper_task(algorithm: Any = ag.AsciiME, episode_length: int = 250, **options: Any) -> ag.GymnasiumTask:
    """Hopper-v5 with the network that suits an algorithm."""
    return ag.GymnasiumTask(
        lambda: Foot(gymnasium.make("Hopper-v5")),
        descriptor=ag.MeanInfo("foot_contact", "foot_height"),
        descriptor_low=[0.0, 0.05],
        descriptor_high=[1.0, 0.35],
        descriptor_names=["share of steps with the foot on the ground", "mean height of the foot (m)"],
        episode_length=episode_length,
        policy=algorithm.default_policy,
        **options,
    )


def main(
    algorithm: Literal["ascii_me", "map_elites"] = "ascii_me",
    evaluations: int = 20_000,
    batch_size: int = 256,
    episode_length: int = 250,
    seed: int = 0,
    out: Path = Path("runs/hopper_v5.h5"),
):
    """One run; a file that is there already goes on where it stopped."""
    prepare()  # one JAX device per core, and compiled programs are kept for the next time
    method: Any = ag.ALGORITHMS[algorithm]
    with hopper_task(method, episode_length) as task:
        if out.exists():
            optimizer = ag.Optimizer.load(out, task=task)
        else:
            optimizer = ag.Optimizer(method(batch_size=batch_size), task, seed=seed)
        result = optimizer.fit(evaluations=evaluations, checkpoint=out)
    print(result)
    print(result.archive.best())


if __name__ == "__main__":
    tyro.cli(main)
