"""What the making of a page shows while it works."""

import sys
from contextlib import AbstractContextManager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps(AbstractContextManager):
    """A bar on a terminal, lines elsewhere; `wanted=None` shows nothing where there is no terminal."""

    def __init__(self, wanted: bool | None, title: str):
        terminal = sys.stderr.isatty()
        self._lines = wanted is True and not terminal
        columns = (SpinnerColumn(), TextColumn("[bold]{task.fields[title]}"), BarColumn(bar_width=24))
        texts = (TextColumn("{task.fields[text]}"), TimeElapsedColumn())
        shown = terminal and wanted is not False
        self._bar = Progress(*columns, *texts, console=Console(stderr=True), disable=not shown)
        self._title = "".join(letter if letter.isprintable() else "?" for letter in title)  # it comes from a file
        self._task = self._bar.add_task("", total=1.0, title=escape(self._title), text="")

    def say(self, text: str):
        """What is being done now."""
        self._bar.update(self._task, text=escape(text))
        if self._lines:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)

    def done(self, count: int, total: int):
        """So many episodes of all were played."""
        self._bar.update(self._task, completed=count / total)
        self.say(f"{count:,} of {total:,} episodes played again")

    def __enter__(self) -> "Steps":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()
