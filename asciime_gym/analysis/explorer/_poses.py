"""Episodes as few bytes: each link's place seen from its parent, in whole millimetres or so, as changes over time."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

GRAIN = 0.002  # metres, unless an episode leads too far for 16 bits
TURN = 724  # steps of a quaternion's component from 0 to 1
FARTHEST = 32_000  # grains
Quaternions = Float[np.ndarray, "*batch 4"]


def frames_of(steps: int, stride: int) -> Int[np.ndarray, " frames"]:
    """Which of an episode's states are kept: every so many, and the last."""
    return np.append(np.arange(0, steps - 1, stride), steps - 1)


def packed(
    position: Float[np.ndarray, "frames links 3"],
    rotation: Float[np.ndarray, "frames links 4"],
    parents: Sequence[int],
) -> tuple[str, float]:
    """Base64 of a deflated episode, and its grain; `parents`: each link's parent, -1 for none, parents first.

    Every link is measured from where a reader has its parent by then, so that errors do not add up along a leg.
    """
    if not (np.isfinite(position).all() and np.isfinite(rotation).all()):
        raise ValueError("expected poses of finite numbers; got some that are not")
    place, turn = position.astype(float), _whole(rotation.astype(float))
    grain = max(GRAIN, float(np.abs(place).max()) / FARTHEST)
    read_place, read_turn, columns = np.zeros_like(place), np.zeros_like(turn), []
    for link, parent in enumerate(parents):
        here, way = place[:, link], turn[:, link]
        if parent >= 0:
            back = _inverse(read_turn[:, parent])
            here, way = _turned(back, here - read_place[:, parent]), _times(back, way)
        grains, turns = np.round(here / grain), np.round(TURN * _steady(way, free=parent < 0))
        here, way = grains * grain, _whole(turns)
        if parent >= 0:  # a joint never turns half way round: the first component follows from the others
            turns = turns[:, 1:]
            rest = (turns / TURN) ** 2
            way = _whole(np.column_stack([np.sqrt(np.maximum(0.0, 1.0 - rest.sum(axis=1))), turns / TURN]))
            here = read_place[:, parent] + _turned(read_turn[:, parent], here)
            way = _times(read_turn[:, parent], way)
        read_place[:, link], read_turn[:, link] = here, way
        columns += [grains, turns]
    return _deflated(np.concatenate(columns, axis=1)), grain


def _deflated(numbers: Float[np.ndarray, "frames columns"]) -> str:
    """Changes from frame to frame, small ones of either sign as small numbers, all low bytes before all high ones."""
    changes = np.diff(numbers.astype(np.int64), axis=0, prepend=0).astype(np.int16).T.ravel()
    folded = ((changes << 1) ^ (changes >> 15)).view(np.uint16)
    planes = np.concatenate([folded & 255, folded >> 8]).astype(np.uint8)
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def _steady(way: Quaternions, free: bool) -> Quaternions:
    """The same turns with signs that do not jump: those of a joint have a positive first component."""
    if not free:
        return np.where(way[:, :1] < 0, -way, way)
    flips = np.where((way[1:] * way[:-1]).sum(axis=1) < 0, -1.0, 1.0)
    return way * np.cumprod(np.append(1.0, flips))[:, None]


def _whole(way: Quaternions) -> Quaternions:
    return way / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-9)


def _inverse(way: Quaternions) -> Quaternions:
    return way * np.array([1.0, -1.0, -1.0, -1.0])


def _times(a: Quaternions, b: Quaternions) -> Quaternions:
    w, v, x, u = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    return np.concatenate([w * x - (v * u).sum(-1, keepdims=True), w * u + x * v + np.cross(v, u)], axis=-1)


def _turned(way: Quaternions, place: Float[np.ndarray, "*batch 3"]) -> Float[np.ndarray, "*batch 3"]:
    """A vector, turned."""
    twice = 2 * np.cross(way[..., 1:], place)
    return place + way[..., :1] * twice + np.cross(way[..., 1:], twice)
