"""What a run shows while it works."""

import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY = 10.0  # seconds between lines where there is no terminal to redraw


def progress_display(wanted: bool | None, title: str, evaluations: int | None, seconds: float | None):
    """A live bar on a terminal, a line now and then elsewhere; `None` shows nothing where there is no terminal."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return Silent()
    return Bar(title, evaluations, seconds) if terminal else Lines(title)


def _figures(row: dict[str, Any]) -> str:
    return f"QD score {row['qd_score']:,.0f} · coverage {100 * row['coverage']:.1f} % · best {row['max_fitness']:,.1f}"


class Silent(AbstractContextManager):
    def say(self, text: str):
        """Something to know before the work begins."""

    def compiling(self):
        """The program is being compiled."""

    def show(self, row: dict[str, Any]):
        """A chunk of generations has ended; `row` is the newest of the history."""

    def __exit__(self, *exception) -> None:
        return None


class Lines(AbstractContextManager):
    """Plain lines, for logs."""

    def __init__(self, title: str):
        self._title, self._last = title, float("-inf")

    def say(self, text: str):
        self._print(text)

    def compiling(self):
        self._print("compiling (up to a minute the first time; later runs find it in the cache)")

    def show(self, row: dict[str, Any]):
        if time.monotonic() - self._last >= LINE_EVERY:
            self._last = time.monotonic()
            rate = row["evaluations"] / max(row["seconds"], 1e-9)
            self._print(f"{row['evaluations']:,} evaluations · {_figures(row)} · {rate:,.0f}/s")

    def _print(self, text: str):
        print(f"{self._title}: {text}", file=sys.stderr, flush=True)

    def __exit__(self, *exception) -> None:
        return None


class Bar(AbstractContextManager):
    """A bar that fills towards whichever budget is nearer."""

    def __init__(self, title: str, evaluations: int | None, seconds: float | None):
        self._evaluations, self._seconds = evaluations, seconds
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[title]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=1.0, title=title, figures="")

    def say(self, text: str):
        self._progress.console.print(text)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def compiling(self):
        self._progress.update(self._task, figures="compiling (up to a minute the first time)")

    def show(self, row: dict[str, Any]):
        shares = [row["evaluations"] / self._evaluations] if self._evaluations else []
        shares += [row["seconds"] / self._seconds] if self._seconds else []
        rate = row["evaluations"] / max(row["seconds"], 1e-9)
        figures = f"{row['evaluations']:,} evaluations ({rate:,.0f}/s) · {_figures(row)}"
        self._progress.update(self._task, completed=min(1.0, max(shares, default=0.0)), figures=figures)

    def __exit__(self, *exception) -> None:
        self._progress.stop()
