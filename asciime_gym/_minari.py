"""Recorded trajectories as a Minari dataset (extra `minari`)."""

import os
import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from ._episodes import ADVICE, Episode, Trajectories, load_trajectories


def export_minari(
    path: str | os.PathLike,
    dataset_id: str,
    *,
    env_id: str | None = None,
    description: str | None = None,
    author: str | None = None,
    author_email: str | None = None,
    code_permalink: str | None = None,
) -> Any:
    """Makes a Minari dataset of a run's recorded trajectories, which `minari.load_dataset(dataset_id)` opens.

    Minari wants the observation after the last step too. That one is not recorded: the last recorded observation
    stands there a second time, and the dataset's description says so. Episodes are in the order of their evaluations;
    `dataset.storage.get_episode_metadata` tells each one's evaluation, fitness, descriptor and operator.

    **Arguments:**

    - `path`: the run's own file.
    - `dataset_id`: `name-v0` or `namespace/name-v0`, not taken yet.
    - `env_id`: the registered Gymnasium environment that the episodes are of, for `dataset.recover_environment()`.
    - `description`, `author`, `author_email`, `code_permalink`: what Minari's metadata say; by default of the run, and
      nothing.

    **Returns:** the `minari.MinariDataset`.
    """
    minari = _minari()
    folder = _new_folder(dataset_id)
    if env_id is not None:
        gymnasium.spec(env_id)  # an unknown name fails before anything is written
    with load_trajectories(path) as trajectories:
        if not len(trajectories):
            raise ValueError(f"{path}: no trajectories were recorded; {ADVICE}")
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", category=UserWarning, module="minari")  # of what need not be given
                dataset = minari.create_dataset_from_buffers(
                    dataset_id,
                    _buffers(trajectories),  # one at a time: they need not fit into memory together
                    env=env_id,
                    observation_space=_space(trajectories, "observation"),
                    action_space=_space(trajectories, "action"),
                    algorithm_name=str(trajectories.algorithm.get("name")),
                    description=description or _description(trajectories),
                    author=author,
                    author_email=author_email,
                    code_permalink=code_permalink,
                )
            dataset.storage.update_episode_metadata(_metadata(trajectories))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # half a dataset would take the name
            raise
    return dataset


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise ImportError("this needs minari, which is not installed: pip install 'asciime_gym[minari]'") from error
    return minari


def _new_folder(dataset_id: str) -> str:
    """Where Minari will keep the dataset; a `ValueError` if the name is no good or taken."""
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    try:
        parse_dataset_id(dataset_id)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"dataset_id must be a name with a version, hopper-v0 or mine/hopper-v0 say; got {dataset_id!r}"
        ) from error
    folder = get_dataset_path(dataset_id)
    if folder.exists():
        raise ValueError(
            f"there is a Minari dataset {dataset_id!r} already, in {folder}: choose another name or version, or delete "
            f"that one (minari.delete_dataset({dataset_id!r}))"
        )
    return str(folder)


def _space(trajectories: Trajectories, name: str) -> gymnasium.spaces.Box:
    bound = 1.0 if name == "action" and trajectories.policy.get("output") == "tanh" else np.inf
    size = getattr(next(iter(trajectories)), name).shape[1]
    return gymnasium.spaces.Box(-bound, bound, (size,), np.float32)


def _description(trajectories: Trajectories) -> str:
    name, task = trajectories.algorithm.get("name"), trajectories.task.get("name")
    return (
        f"Episodes of many different policies on {task}, recorded while {name} (asciime_gym) looked for them. Each "
        "episode is of another policy. The observation after an episode's last step was not recorded: the last "
        "observation stands there a second time."
    )


def _buffers(trajectories: Trajectories) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    make: Any = EpisodeBuffer  # which says that it wants lists, and takes arrays

    for episode in trajectories:
        yield make(
            observations=np.concatenate([episode.observation, episode.observation[-1:]]),
            actions=episode.action,
            rewards=episode.reward,
            terminations=_at_the_end(episode, episode.terminated),
            truncations=_at_the_end(episode, episode.truncated),
            infos={},  # without any, Minari's own episodes cannot be printed
        )


def _at_the_end(episode: Episode, flag: bool) -> np.ndarray:
    flags = np.zeros(episode.steps, bool)
    flags[-1] = flag
    return flags


def _metadata(trajectories: Trajectories) -> Iterator[dict[str, Any]]:
    table = trajectories.table()
    for row in range(len(trajectories)):
        yield {
            "evaluation": int(table["evaluation"][row]),
            "fitness": float(table["fitness"][row]),
            "descriptor": table["descriptor"][row],
            "operator": str(table["operator"][row]),
        }
