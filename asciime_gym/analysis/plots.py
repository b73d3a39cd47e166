"""Pictures of archives and runs: one door for all kinds."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from .._metrics import History
from .._view import ArchiveView
from ._optional import need
from ._series import Axis
from ._sources import Source, read, refuse_twins

Kind = Literal["run", "map", "slices", "parallel", "history", "curves", "operators", "batch_sizes", "ccdf"]
StyleName = Literal["light", "dark", "transparent"]
KINDS: dict[str, str] = {
    "run": "a run's map beside its history",
    "map": "archives as maps: a strip (1-D), Voronoi cells (2-D), slices (3-D, 4-D), parallel axes (5-D and more)",
    "slices": "cuts through the cells of three or four dimensions",
    "parallel": "each elite a line across its descriptor and fitness",
    "history": "one run's QD score, coverage and best fitness",
    "curves": "the same of many runs, median and quartiles over seeds, against evaluations and time",
    "operators": "additions to the archive by operator",
    "batch_sizes": "QD score and time over batch sizes",
    "ccdf": "how many cells are at least so fit",
}

_OVER_SEEDS = ("curves", "operators", "batch_sizes", "ccdf")  # where a run must count once


def plot(
    files: Any,
    kind: Kind | None = None,
    *,
    out: str | os.PathLike | None = None,
    style: StyleName = "light",
    against: Axis | None = None,
    title: str | None = None,
) -> Any:
    """Draws archives and runs, and returns the matplotlib figure (extra `analysis`); a notebook shows it.

    Curves are medians with a band between the quartiles over seeds. Each run counts as a step function, the last value
    carried forward, within the range that all seeds of its group cover. Runs are grouped by algorithm and by whatever
    hyperparameters differ.

    **Arguments:**

    - `files`: paths, archives or optimizers: one, or a sequence.
    - `kind`: what to draw, one of `asciime_gym.analysis.KINDS`; by default `"run"` for one (`"map"`, if it has no
      history) and `"curves"` for several.
    - `out`: a file to write the picture to (.png, .svg, .pdf).
    - `style`: `"light"` for paper, `"dark"` for a dark screen, `"transparent"` for both.
    - `against`: the axis of curves, where not both of them.
    - `title`: above the picture.
    """
    need("matplotlib")
    _one_of("kind", kind, (None, *get_args(Kind)))
    _one_of("style", style, get_args(StyleName))
    _one_of("against", against, (None, *get_args(Axis)))
    sources = read(files)
    chosen = kind or default_kind(sources)
    if chosen in _OVER_SEEDS:
        refuse_twins(sources)
    return _drawn(sources, chosen, style, (against,) if against else get_args(Axis), title, out)


def default_kind(sources: Sequence[Source]) -> Kind:
    """What is drawn of these where nothing is said."""
    if len(sources) > 1:
        return "curves"
    return "run" if sources[0].history is not None and len(sources[0].history) else "map"


def plot_run(
    archive: ArchiveView,
    history: History | None,
    path: str | os.PathLike,
    title: str = "",
    style: StyleName = "light",
):
    """Draws an archive and, where that is known, how it came about, and writes the picture to a file."""
    need("matplotlib")
    name = title or "archive"
    source = Source(name, archive.problem or {}, None, None, history, archive.cells, len(archive.low), lambda: archive)
    _drawn([source], "map" if history is None else "run", style, get_args(Axis), title, path)


def _drawn(
    sources: list[Source],
    kind: Kind,
    style: StyleName,
    against: Sequence[Axis],
    title: str | None,
    out: str | os.PathLike | None,
) -> Any:
    from . import _bars, _curves, _panels
    from ._style import STYLES, drawing

    look = STYLES[style]
    with drawing(look) as figure:
        match kind:
            case "run":
                _panels.run(figure, sources, look, title)
            case "history":
                _panels.history(figure, sources, look, title)
            case "map" | "slices" | "parallel":
                _panels.maps(figure, sources, look, title, kind)
            case "curves":
                _curves.curves(figure, sources, against)
            case "operators":
                _curves.operators(figure, sources)
            case "batch_sizes":
                _bars.batch_sizes(figure, sources, look)
            case "ccdf":
                _bars.ccdf(figure, sources)
        if title and kind in _OVER_SEEDS:
            heading: Any = {"size": 12}
            figure.legends[0].set_title(title, heading)  # a title of the figure would lie on the legend
        if out is not None:
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(out, transparent=style == "transparent")
    return figure


def _one_of(name: str, value: Any, known: Sequence[Any]):
    if value not in known:
        raise ValueError(f"{name} must be one of {[word for word in known if word]}; got {value!r}")
