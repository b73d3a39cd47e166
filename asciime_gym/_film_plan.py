"""What is to be filmed: which elites, at which moments, how large; and what is said where that cannot be."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from ._captions import bar
from ._film_files import FASTEST, ffmpeg
from ._thin import good_and_spread
from ._view import ArchiveView

SUFFIXES = (".gif", ".mp4", ".png")
SMOOTH = {".gif": 25.0, ".mp4": 50.0}  # pictures a second, about, of a film in true speed
MOST = 128  # pictures of a GIF, about, where nothing else is asked for: so it stays small
MOMENTS = 8  # of a strip
SMALLEST, LARGEST = 16, 8192  # pixels, either way: of one picture, and of all together
ALONE, BESIDE, MOMENT = (480, 360), (280, 210), (272, 204)  # sizes of a picture: of one elite, of many, in a strip


def need_sound(
    path: Path, suffix: str, descriptor: Any, grid: Any, fps: float | None, stride: int | None, seconds: float | None
) -> tuple[int, int]:
    """Refuses what cannot be done, before any work is; returns the columns and rows of tiles."""
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: a film's name ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} (a strip)")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; the film needs the name of a file")
    if suffix == ".mp4":
        ffmpeg()
    if descriptor is not None and grid is not None:
        raise ValueError("either one elite by its descriptor, or a grid of elites far apart; not both")
    for name, value in (("fps", fps), ("seconds", seconds)):
        if value is not None and not 0 < value < np.inf:
            raise ValueError(f"{name} must be a number above 0; got {value}")
    if stride is not None and (int(stride) != stride or stride < 1):
        raise ValueError(f"stride must be a whole number of steps, at least 1; got {stride}")
    return (1, 1) if grid is None else _grid(grid)


def _grid(grid: str | Sequence[int]) -> tuple[int, int]:
    if isinstance(grid, str):
        match = re.fullmatch(r"\s*(\d{1,3})\s*[x×]\s*(\d{1,3})\s*", grid.lower())
        sides = [int(side) for side in match.groups()] if match else []
    else:
        sides = [int(side) for side in grid if int(side) == side]
    if len(sides) != 2 or min(sides) < 1:
        raise ValueError(f"a grid is as many elites across and down as its name says, 3x2 for example; got {grid!r}")
    return sides[0], sides[1]


def need_size(suffix: str, columns: int, rows: int, width: int | None, height: int | None) -> tuple[int, int]:
    """The size of one elite's picture."""
    usual = MOMENT if suffix == ".png" else ALONE if columns * rows == 1 else BESIDE
    ratio = usual[1] / usual[0]
    wide = width if width is not None else usual[0] if height is None else round(height / ratio)
    size = wide, round(wide * ratio) if height is None else height
    across, down = (MOMENTS, columns * rows) if suffix == ".png" else (columns, rows)
    whole = across * size[0], down * (size[1] + bar(size[0]))
    if min(size) < SMALLEST or max(whole) > LARGEST:
        raise ValueError(
            f"pictures of {size[0]}x{size[1]} pixels, {across} across and {down} down, make {whole[0]:,}x{whole[1]:,}; "
            f"each must be at least {SMALLEST} wide and high, and all of them at most {LARGEST:,}"
        )
    return size


def chosen_rows(archive: ArchiveView, descriptor: Any, columns: int, rows: int) -> list[int]:
    """The elites to be filmed, tile by tile: to the right the first dimension grows, upwards the second."""
    if descriptor is not None:
        return [archive.nearest(descriptor, with_policy=True).index]
    if columns * rows == 1:
        return [archive.best(with_policy=True).index]
    if (there := archive.has_policy.sum()) < columns * rows:
        raise ValueError(
            f"a grid of {columns}x{rows} needs {columns * rows} elites with a policy; the archive has {there}"
        )
    found = good_and_spread(archive, columns * rows)
    place = archive.descriptor[found]
    if place.shape[1] == 1:
        return found[np.argsort(place[:, 0], kind="stable")].tolist()
    lines = found[np.argsort(-place[:, 1], kind="stable")].reshape(rows, columns)
    across = np.argsort(archive.descriptor[lines, 0], axis=1, kind="stable")
    return np.take_along_axis(lines, across, axis=1).ravel().tolist()


def cut(steps: Int[np.ndarray, " elites"], dt: float, seconds: float | None) -> Int[np.ndarray, " elites"]:
    """Steps of each episode that are shown or passed over."""
    return steps if seconds is None else np.minimum(steps, max(1, round(seconds / dt)))


def pace(
    suffix: str,
    dt: float,
    steps: Int[np.ndarray, " elites"],
    fps: float | None,
    stride: int | None,
    seconds: float | None,
) -> tuple[int, float]:
    """Steps from picture to picture, and pictures a second."""
    if suffix == ".png":
        return 1, 1 / dt
    if stride is None:
        stride = max(1, round(1 / (SMOOTH[suffix] * dt)))
        if suffix == ".gif":
            stride = max(stride, -(-int(cut(steps, dt, seconds).max()) // MOST))
    speed = fps or 1 / (stride * dt)
    if suffix == ".gif" and speed > FASTEST:
        true = int(np.ceil(1 / (FASTEST * dt)))
        raise ValueError(
            f"a .gif shows at most {FASTEST} pictures a second, and this would be {speed:.0f}: take a stride of {true} "
            f"or more, or {FASTEST} fps or less for slow motion"
        )
    return stride, speed


def moments(
    suffix: str, dt: float, steps: Int[np.ndarray, " elites"], stride: int, seconds: float | None
) -> Int[np.ndarray, "elites frames"]:
    """The steps of each elite's episode that are shown: in a film the same of all, in a strip spread over each."""
    lives = cut(steps, dt, seconds)
    if suffix == ".png":
        return np.linspace(0, lives - 1, MOMENTS, axis=1).round().astype(int)
    life = int(lives.max())
    times = np.unique(np.append(np.arange(0, life, stride), life - 1))  # the last one too
    return np.tile(times, (len(lives), 1))
