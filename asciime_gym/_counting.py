"""How many of a known number are done, shown while it goes on."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ._progress import LINE_EVERY


@contextlib.contextmanager
def counting(wanted: bool | None, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields what shows how many are done: on a bar that vanishes at the end, or, if wanted, on a line now and then."""
    terminal = sys.stderr.isatty()
    if wanted is False or not (wanted or terminal):
        yield lambda done: None
    elif terminal:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        with Progress(*columns, *times, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        last = time.monotonic()  # what is soon done needs no line

        def line(done: int):
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY:
                last = time.monotonic()
                print(f"{title}: {done:,} of {total:,}", file=sys.stderr, flush=True)

        yield line
