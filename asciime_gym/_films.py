"""Elites on film: an animated GIF, an MP4, or a strip of moments."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from PIL import Image
from rich.console import Console

from ._atomic import replacing
from ._captions import Picture, captioned, tiled
from ._combine import Source, opened
from ._counting import counting
from ._film_files import write_gif, write_mp4
from ._film_plan import chosen_rows, moments, need_size, need_sound, pace
from ._motion import Motion, motion, task_of
from ._view import Elite
from .tasks import _gl
from .tasks._render import Renderer


class _Place(NamedTuple):
    pos: np.ndarray
    rot: np.ndarray


class _Pose(NamedTuple):
    x: _Place


@dataclasses.dataclass(frozen=True)
class _Film:
    """What is to be drawn."""

    elites: list[Elite]
    motion: Motion
    times: Int[np.ndarray, "elites frames"]  # steps


def render(
    archive: Source,
    out: str | os.PathLike,
    *,
    descriptor: Any = None,
    grid: str | tuple[int, int] | None = None,
    width: int | None = None,
    height: int | None = None,
    fps: float | None = None,
    stride: int | None = None,
    seconds: float | None = None,
    progress: bool | None = None,
) -> Path:
    """Films elites of an archive as they move; returns the file.

    The episode is the one that the elite is in the archive for. Where it ended early, the last pose stays.

    **Arguments:**

    - `archive`: the archive, or its file.
    - `out`: the film: .gif, .mp4 (which needs ffmpeg), or .png, a strip of moments of each episode.
    - `descriptor`: films the elite nearest to it; by default the best one.
    - `grid`: `"3x2"`, say: six elites, three across and two down, of regions far apart the best ones.
    - `width`, `height`: pixels of each elite's picture, without the line under it.
    - `fps`: pictures a second that are shown; by default as many as make the speed true, fewer are slow motion.
    - `stride`: steps of the episode from picture to picture; by default those that make about 25 a second (50 in an
      .mp4), and more in a .gif that would become long.
    - `seconds`: how much of the episode; by default all of it.
    - `progress`: show progress; by default on a terminal only.
    """
    path, suffix = Path(out), Path(out).suffix.lower()
    columns, rows = need_sound(path, suffix, descriptor, grid, fps, stride, seconds)
    size = need_size(suffix, columns, rows, width, height)
    archive = opened(archive)
    chosen = chosen_rows(archive, descriptor, columns, rows)
    task = task_of(archive)
    dt = float(task.env.dt)
    stride, fps = pace(suffix, dt, archive.steps[chosen], fps, stride, seconds)
    _gl.chosen()  # better now than after the compiler's work
    with _said(progress, f"{task.name}: compiling (up to a minute the first time)"):
        moved = motion(archive, chosen, task)
    times = moments(suffix, dt, moved.steps, stride, seconds)
    film = _Film([archive[row] for row in chosen], moved, times)
    with counting(progress, f"{task.name}: drawing", times.size) as show:
        if suffix == ".png":
            _write_strip(path, film, size, show)
        else:
            {".gif": write_gif, ".mp4": write_mp4}[suffix](path, _frames(film, size, columns, show), fps)
    return path


def _frames(film: _Film, size: tuple[int, int], columns: int, show: Any) -> Iterator[Picture]:
    """One picture after the other, each of all elites."""
    count = len(film.elites)
    with Renderer(film.motion.task, *size) as renderer:
        for frame in range(film.times.shape[1]):
            yield tiled([_draw(renderer, film, row, film.times[row, frame]) for row in range(count)], columns)
            show(count * (frame + 1))


def _write_strip(path: Path, film: _Film, size: tuple[int, int], show: Any):
    """The moments of each elite, side by side; under each row what it is about."""
    strips, done = [], 0
    with Renderer(film.motion.task, *size) as renderer:
        for row, elite in enumerate(film.elites):
            pictures = []
            for time in film.times[row]:
                last = bool(time + 1 == film.motion.steps[row] < film.motion.task.episode_length)
                seconds = _seconds(film.motion, int(time) + 1)
                pictures.append(captioned(_pose(renderer, film, row, time), seconds, "ended" * last, ""))
                show(done := done + 1)
            strip = tiled(pictures, len(pictures))
            strips.append(captioned(strip, *_about(film, elite, full=True), ""))
    with replacing(path) as temporary:
        Image.fromarray(tiled(strips, 1)).quantize(256).save(temporary, format="PNG", optimize=True)


def _draw(renderer: Renderer, film: _Film, row: int, time: np.integer) -> Picture:
    """An elite at one moment, with its words; after the end of its episode, in its last pose."""
    steps, length = int(film.motion.steps[row]), film.motion.task.episode_length
    ended = time + 1 >= steps and steps < length
    corner = ("ended at " if ended else "") + _seconds(film.motion, min(int(time) + 1, steps))
    left, right = _about(film, film.elites[row], full=len(film.elites) == 1)
    return captioned(_pose(renderer, film, row, time), left, right, corner)


def _pose(renderer: Renderer, film: _Film, row: int, time: np.integer) -> Picture:
    step = min(int(time), int(film.motion.steps[row]) - 1)
    return renderer.frame(_Pose(_Place(film.motion.position[row, step], film.motion.rotation[row, step])))


def _about(film: _Film, elite: Elite, full: bool) -> tuple[str, str]:
    """What is said of an elite: where it is in the archive, and how good it is."""
    values = ", ".join(f"{np.round(float(value), 2) + 0.0:.2f}" for value in elite.descriptor)  # never -0.00
    place = f"({values})" if len(elite.descriptor) > 1 else values
    name = f"{film.motion.task.name}   descriptor " if full else ""
    return name + place, f"fitness {elite.fitness:,.0f}"


def _seconds(moved: Motion, steps: int) -> str:
    return f"{steps * float(moved.task.env.dt):.2f} s"


@contextlib.contextmanager
def _said(wanted: bool | None, text: str) -> Iterator[None]:
    """Says what is going on while it takes its time."""
    terminal = sys.stderr.isatty()
    if wanted is False or not (wanted or terminal):
        yield
    elif terminal:
        with Console(stderr=True).status(text):
            yield
    else:
        print(text, file=sys.stderr, flush=True)
        yield
