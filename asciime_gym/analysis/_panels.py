"""Pictures made of maps: one, several with one scale of colours, or one beside its history."""

from collections.abc import Sequence
from typing import Any, Literal

from ._curves import history_panels
from ._maps import COLUMNS, colour_bar, drawer, fitness_scale, strip
from ._sources import Source, one_task, read_archives
from ._style import Style

MapKind = Literal["map", "slices", "parallel"]
# In inches: of a map alone, and of one beside others.
SIZES = {"strip": (7.6, 4.6), "voronoi": (6.4, 5.2), "slices": (8.2, 7.6), "row": (11.5, 3.4), "parallel": (9.5, 5.2)}
PARTS = {"strip": (5.2, 3.6), "voronoi": (4.0, 4.15), "slices": (6.0, 6.4), "row": (9.0, 3.2), "parallel": (7.0, 4.4)}


def run(figure: Any, sources: Sequence[Source], style: Style, title: str | None):
    """One archive, and how it came about."""
    source = _only(sources, "run")
    left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1))
    width, height = _one_map(left, source, style, "map")
    figure.set_size_inches(width + 4.6, max(height, 5.2))
    history_panels(right, source)
    figure.suptitle(_headline(source, title))


def history(figure: Any, sources: Sequence[Source], style: Style, title: str | None):
    """How one archive came about."""
    source = _only(sources, "history")
    figure.set_size_inches(6.4, 6)
    history_panels(figure, source)
    figure.suptitle(title or _who(source))


def maps(figure: Any, sources: Sequence[Source], style: Style, title: str | None, kind: MapKind):
    """Archives of one task side by side, with one scale of fitness."""
    if len(sources) == 1:
        figure.set_size_inches(*_one_map(figure.subfigures(), sources[0], style, kind))
        figure.suptitle(_headline(sources[0], title))
        return
    task = one_task(sources, "archives that are drawn side by side")
    read_archives(sources)
    scale = fitness_scale([source.archive for source in sources], style)
    columns = min(len(sources), COLUMNS)
    rows = -(-len(sources) // columns)
    width, height = PARTS[_shape(sources[0], kind)]
    figure.set_size_inches(width * columns + 1, height * rows + 0.3)
    left, right = figure.subfigures(1, 2, width_ratios=(width * columns, 1))
    parts = left.subfigures(rows, columns, squeeze=False)
    drawn = []
    for part, source in zip(parts.flat, sources, strict=False):
        drawn.append(drawer(source.archive, kind)(part.subfigures(), source.archive, style, scale))
        who = source.name if source.algorithm is None else f"{source.algorithm_name}, seed {source.seed}"
        part.suptitle(f"{who}\n{_figures(source)}", fontsize=10)
    if drawer(sources[0].archive, kind) is strip:  # whose heights are to be compared
        highest = max(above.get_ylim()[1] for above, _ in drawn)
        for above, _ in drawn:
            above.set_ylim(top=highest)
    colour_bar(right, scale, None)
    figure.suptitle(title or task)


def _one_map(figure: Any, source: Source, style: Style, kind: MapKind) -> tuple[float, float]:
    """Draws one archive with its scale of fitness; the size that suits it."""
    scale = fitness_scale([source.archive], style)
    axes = drawer(source.archive, kind)(figure, source.archive, style, scale)
    colour_bar(figure, scale, axes)
    return SIZES[_shape(source, kind)]


def _shape(source: Source, kind: MapKind) -> str:
    name = drawer(source.archive, kind).__name__
    return "row" if name == "slices" and source.dims == 3 else name


def _headline(source: Source, title: str | None) -> str:
    return f"{title or _who(source)}: {_figures(source)}"


def _figures(source: Source) -> str:
    archive = source.archive
    return f"{100 * archive.coverage:.1f} % of {archive.cells:,} cells, QD score {archive.qd_score:,.0f}"


def _who(source: Source) -> str:
    if source.algorithm is None:
        return source.name
    return f"{source.algorithm_name} on {source.task_name}, seed {source.seed}"


def _only(sources: Sequence[Source], kind: str) -> Source:
    if len(sources) > 1:
        raise ValueError(
            f"the kind {kind!r} draws one file; {len(sources)} were given: use 'curves' or 'map' for several"
        )
    return sources[0]
