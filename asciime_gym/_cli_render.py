"""The command `asciime render`."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from ._films import render
from .tasks._gl import NoRenderer

_CONSOLE = Console()


@dataclasses.dataclass
class Render:
    """Film elites of an archive as they move.

    The best one, the one nearest to --descriptor, or with --grid the best ones of several regions. Where an episode
    ended early, the last pose stays.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """An HDF5 file of asciime_gym, of one of the robots in `asciime tasks`."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The film: .gif, .mp4 (which needs ffmpeg), or .png (a strip of moments); by default a .gif beside the file."""
    descriptor: tuple[float, ...] | None = None
    """Film the elite nearest to it; by default the best."""
    grid: str | None = None
    """Film so many elites of different regions, across x down: 3x3."""
    width: int | None = None
    """Pixels of each elite's picture."""
    height: int | None = None
    """Pixels of each elite's picture, without the line under it."""
    fps: float | None = None
    """Pictures a second that are shown; by default as many as make the speed true, fewer are slow motion."""
    stride: int | None = None
    """Steps from picture to picture; by default those that make the film smooth, and a .gif small."""
    seconds: float | None = None
    """How much of the episode; by default all of it."""
    quiet: bool = False
    """Show no progress."""

    def __call__(self) -> int:
        out = self.out or self.file.with_suffix(".gif")
        try:
            render(
                self.file,
                out,
                descriptor=self.descriptor,
                grid=self.grid,
                width=self.width,
                height=self.height,
                fps=self.fps,
                stride=self.stride,
                seconds=self.seconds,
                progress=not self.quiet,
            )
        except NoRenderer as error:
            print(f"asciime: {error}", file=sys.stderr)
            return 2
        _CONSOLE.print(f"film  {out} ({out.stat().st_size / 1e6:,.1f} MB)", markup=False, soft_wrap=True)
        return 0
