"""The commands `asciime plot` and `asciime compare`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from ._atomic import replacing
from .analysis import KINDS, compare, plot
from .analysis._comparison import Family
from .analysis._series import Axis
from .analysis.plots import Kind, StyleName

Files = Annotated[tuple[Path, ...], tyro.conf.Positional]
Out = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
Format = Literal["terminal", "markdown", "csv"]
_SUFFIXES: dict[str, Format] = {".md": "markdown", ".markdown": "markdown", ".csv": "csv"}
_KINDS = "What to draw. " + "; ".join(f"{kind}: {about}" for kind, about in KINDS.items()) + "."
_CONSOLE = Console()


@dataclasses.dataclass
class Plot:
    """Draw archives and runs.

    Of one run its map and history, of several the median and quartiles over seeds of what they reached; --kind draws
    something else.
    """

    files: Files
    """HDF5 files of asciime_gym."""
    kind: Annotated[Kind | None, tyro.conf.arg(help=_KINDS)] = None
    out: Out = None
    """The picture (.png, .svg, .pdf); by default beside the file, or KIND.png here for several."""
    dark: bool = False
    """For a dark screen."""
    transparent: bool = False
    """Without a background, and readable on any."""
    against: Axis | None = None
    """The axis of curves, if not both."""
    title: str | None = None
    """Above the picture."""

    def __call__(self) -> int:
        if self.dark and self.transparent:
            raise ValueError("a picture is either --dark or --transparent, not both")
        style: StyleName = "dark" if self.dark else "transparent" if self.transparent else "light"
        beside = self.files[0].with_suffix(".png") if len(self.files) == 1 else Path(f"{self.kind or 'curves'}.png")
        out = self.out or beside
        plot(self.files, self.kind, out=out, style=style, against=self.against, title=self.title)
        _CONSOLE.print(f"picture  {out}", markup=False, soft_wrap=True)
        return 0


@dataclasses.dataclass
class Compare:
    """Compare runs of several seeds, by task and algorithm.

    Median and quartiles at equal evaluations and at equal seconds, Wilcoxon-Mann-Whitney tests with Holm-Bonferroni
    correction and effect sizes, and where there are several batch sizes their efficiency scores.
    """

    files: Files
    """HDF5 files of runs."""
    evaluations: float | None = None
    """Compare when this many were spent; by default as many as all runs of the task have."""
    seconds: float | None = None
    """Compare after this much time; by default as much as all runs of the task took."""
    reference: str | None = None
    """Test only this algorithm against the others."""
    alpha: float = 0.05
    """Below which a corrected p is called significant."""
    family: Family = "task"
    """Which tests are corrected together: those of a task for one metric at one budget, or all."""
    format: Format | None = None
    """By default what the name of the output says (.md, .csv), or tables for a terminal."""
    out: Out = None
    """A file to write to."""

    def __call__(self) -> int:
        found = compare(
            self.files,
            evaluations=self.evaluations,
            seconds=self.seconds,
            reference=self.reference,
            alpha=self.alpha,
            family=self.family,
        )
        form = self.format or _SUFFIXES.get(self.out.suffix.lower() if self.out else "", "terminal")
        text = {"markdown": found.to_markdown, "csv": found.to_csv, "terminal": found.__repr__}[form]
        if self.out is not None:
            with replacing(self.out) as temporary:
                temporary.write_text(text().rstrip("\n") + "\n", encoding="utf-8")
            _CONSOLE.print(f"comparison  {self.out}", markup=False, soft_wrap=True)
        elif form == "terminal":
            _CONSOLE.print(found)
        else:
            print(text().rstrip("\n"))
        return 0
