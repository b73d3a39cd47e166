"""The names under which Gymnasium knows our tasks."""

import gymnasium

IDS = {
    "ant_omni": "asciime_gym/AntOmni-v0",
    "anttrap_omni": "asciime_gym/AntTrapOmni-v0",
    "walker2d_uni": "asciime_gym/Walker2dUni-v0",
    "hopper_uni": "asciime_gym/HopperUni-v0",
    "ant_uni": "asciime_gym/AntUni-v0",
}


def register():
    """Tells Gymnasium of the tasks; nothing of theirs is imported until one is made."""
    for task, name in IDS.items():
        if name in gymnasium.registry:
            continue
        gymnasium.register(
            name,
            entry_point="asciime_gym.tasks.gymnasium_env:LocomotionEnv",
            vector_entry_point="asciime_gym.tasks.gymnasium_vector:LocomotionVectorEnv",
            kwargs={"task": task},
            # No max_episode_steps: the task itself says when an episode is cut off, since it observes the time left.
        )
