"""The command `asciime explore`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from .analysis.explorer import explore

_CONSOLE = Console()


@dataclasses.dataclass
class Explore:
    """Make a page for the browser that shows an archive and lets its elites move; it needs no network."""

    file: Annotated[Path, tyro.conf.Positional]
    """An HDF5 file of asciime_gym."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The page; by default beside the file, FILE.html."""
    title: str | None = None
    """At the top of the page; by default the task, algorithm and seed."""
    map_only: bool = False
    """Without motion: a small page, made at once."""
    quiet: bool = False
    """Show no progress."""

    def __call__(self) -> int:
        out = self.out or self.file.with_suffix(".html")
        explore(self.file, out, title=self.title, motion=not self.map_only, progress=not self.quiet)
        _CONSOLE.print(f"page  {out} ({out.stat().st_size / 1e6:,.1f} MB)", markup=False, soft_wrap=True)
        return 0
