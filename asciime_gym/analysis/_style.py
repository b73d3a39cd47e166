"""How pictures look: colours, styles for print and for dark screens, words and units on axes."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ._colours import OTHERS
from ._sources import Group

# Okabe and Ito's colours, which stay apart in all common kinds of colour blindness; one each, in every picture.
ALGORITHMS = {
    "ascii_me": "#D55E00",
    "map_elites": "#0072B2",
    "pga_me": "#009E73",
    "dcrl_me": "#CC79A7",
    "memes": "#E69F00",
    "ppga": "#56B4E9",
}
# So that curves can be told apart without colours, too: on paper, say.
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (7, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 3)))
STEPS = (1, 2, 2.5, 5, 10)  # between ticks
WORDS = {
    "qd_score": "QD score (sum of fitness)",
    "coverage": "coverage (% of cells)",
    "max_fitness": "best fitness (sum of rewards)",
    "fitness": "fitness (sum of rewards)",
    "evaluations": "evaluations (episodes)",
}


class Style(NamedTuple):
    """Colours of all that is not data."""

    paper: str
    ink: str
    faint: str  # grid lines
    empty: str  # cells without an elite
    edge: str  # between cells
    start: float = 0.0  # where the colours of fitness begin: the darkest cannot be seen on a dark screen

    @property
    def fitness(self) -> ListedColormap:
        """The colours of fitness: even to the eye, in grey too, and safe for colour-blind ones."""
        return ListedColormap(matplotlib.colormaps["viridis"](np.linspace(self.start, 1, 256)))


STYLES = {
    "light": Style(paper="#FFFFFF", ink="#202020", faint="#DEDEDE", empty="#E4E4E4", edge="#FFFFFF"),
    "dark": Style(paper="#14171C", ink="#E3E3E3", faint="#353A42", empty="#272B32", edge="#14171C", start=0.2),
    # No paper; a grey that can be read on white and on a dark page alike.
    "transparent": Style(paper="none", ink="#7B7B7B", faint="#7B7B7B40", empty="#7B7B7B48", edge="none", start=0.15),
}


class Picture(Figure):
    """A figure that a notebook shows, and that no window or global state knows of."""

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()


@contextlib.contextmanager
def drawing(style: Style) -> Iterator[Picture]:
    """A new picture; what is drawn on it within looks so, whatever settings the user has."""
    settings: dict[str, Any] = {
        "figure.facecolor": style.paper,
        "axes.facecolor": style.paper,
        "savefig.facecolor": style.paper,
        "text.color": style.ink,
        "axes.labelcolor": style.ink,
        "axes.edgecolor": style.ink,
        "axes.titlesize": 10.5,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": style.faint,
        "grid.linewidth": 0.7,
        "xtick.color": style.ink,
        "ytick.color": style.ink,
        "hatch.linewidth": 0.8,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "lines.linewidth": 1.8,
        "font.size": 10,
        "figure.titlesize": 12,
        "figure.dpi": 100,
        "savefig.dpi": 150,
        "pdf.fonttype": 42,  # letters stay letters in print
        "svg.fonttype": "none",
    }
    with matplotlib.style.context(["default", settings]):
        yield Picture(layout="constrained")


def shades(groups: list[Group]) -> dict[str, tuple[str, Any]]:
    """Colour and dashes of each group: the algorithm's own, lighter and darker where it has several groups."""
    groups = list({group.label: group for group in groups}.values())  # the same ones in every task
    algorithms = list(dict.fromkeys(group.algorithm for group in groups))
    strangers = [name for name in algorithms if name not in ALGORITHMS]
    looks = {}
    for algorithm in algorithms:
        own = [group for group in groups if group.algorithm == algorithm]
        known = algorithm in ALGORITHMS
        base = ALGORITHMS[algorithm] if known else OTHERS[strangers.index(algorithm) % len(OTHERS)]
        place = list(ALGORITHMS).index(algorithm) if known else strangers.index(algorithm) + 1
        for number, group in enumerate(own):
            light = 0.0 if len(own) == 1 else -0.4 + 0.9 * number / (len(own) - 1)
            dash = place if len(own) == 1 else number
            looks[group.label] = (mixed(base, light) if light else base, DASHES[dash % len(DASHES)])
    return looks


def mixed(colour: str, light: float) -> str:
    """A colour with so much white in it; black where the number is below 0."""
    towards = np.ones(3) if light > 0 else np.zeros(3)
    mixture = (1 - abs(light)) * np.array(to_rgb(colour)) + abs(light) * towards
    return to_hex((mixture[0], mixture[1], mixture[2]))


def numbers(axes: Any, which: str = "both", bins: int = 5):
    """Few ticks, thousands with commas."""
    for name in ("x", "y") if which == "both" else (which,):
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(MaxNLocator(bins, steps=STEPS))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def with_unit(descriptor: str) -> str:
    """The name of a descriptor's dimension; a rate has no unit but its bounds."""
    return f"{descriptor} (share of steps)" if descriptor.startswith("contact rate") else descriptor


def time_unit(seconds: float) -> tuple[float, str]:
    """How many seconds make the unit that suits a span of time, and its name."""
    if seconds > 3 * 3600:
        return 3600.0, "h"
    return (60.0, "min") if seconds > 600 else (1.0, "s")


def seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def legend(figure: Any, entries: dict[str, Any]):
    """Above everything, in as many columns as there is room for."""
    letters = 9.5 * figure.get_figwidth()
    columns = int(np.clip(letters // (max(map(len, entries)) + 8), 1, len(entries)))
    rows = -(-len(entries) // columns)
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=-(-len(entries) // rows))


def blank(axes: Any):
    """Hides panels that nothing is drawn in."""
    for each in axes:
        each.set_visible(False)
