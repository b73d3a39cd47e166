"""Callbacks for `Optimizer.fit` that keep a log: as CSV, for TensorBoard."""

import csv
import io
import json
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._atomic import replacing
from ._describe import describe_algorithm, describe_problem
from ._metrics import History
from ._spread import first_process

if TYPE_CHECKING:
    from ._optimizer import Optimizer
else:
    Optimizer = Any  # the type checks of the tests would want it imported

CLOCK = "seconds"  # the one column that a run does not repeat exactly


class CsvLog:
    """Writes the history to a CSV file, a row per generation as it ends.

    The file always holds what the history does: rows that it lacks are added, and rows of generations that a resumed
    run repeats are replaced. A file of another run is refused. A write that fails is warned of, and made up for.

    **Arguments:**

    - `path`: the file.
    - `overwrite`: whether it may replace a file that holds something else.
    """

    def __init__(self, path: str | os.PathLike, *, overwrite: bool = False):
        self.path, self.overwrite = Path(path), overwrite
        self._next: int | None = None  # the generation whose row comes next, if the file is in step

    def __call__(self, optimizer: Optimizer, row: dict[str, Any]):
        if not first_process():
            return
        generation = int(row["generation"])
        try:
            if self._next == generation and self.path.exists():
                with open(self.path, "a", newline="", encoding="utf-8") as file:
                    file.write(_csv([_texts(optimizer.history, row)]))
            else:
                self._begin(optimizer.history)
            self._next = generation + 1
        except OSError as error:
            self._next = None
            warnings.warn(f"{self.path}: the log could not be written ({error})", UserWarning, stacklevel=2)

    def _begin(self, history: History):
        """Writes all rows so far, in the place of those of them that are there already."""
        columns = history.to_dict()
        rows = [_texts(history, dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        if self.path.exists() and not self.overwrite:
            self._check(list(columns), rows)
        with replacing(self.path) as temporary:
            temporary.write_text(_csv([list(columns), *rows]), encoding="utf-8", newline="")
        self.overwrite = False  # from now on it is this run's

    def _check(self, header: list[str], rows: list[list[str]]):
        """The file holds this run: its generations, up to the one that has just ended, are the same but for time."""
        text = self.path.read_text(encoding="utf-8", errors="replace")
        found = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))  # a last line may have been cut off
        if not text:
            return
        known = max(1, len(rows) - 1)  # the newest need not be the same: another machine may round otherwise
        clock = header.index(CLOCK)
        told = lambda row: [text for place, text in enumerate(row) if place != clock]
        same = all(told(a) == told(b) for a, b in zip(found[1 : known + 1], rows[:known], strict=False))
        if found[:1] != [header] or not same:
            raise ValueError(
                f"{self.path} is not the log of this run; choose another name, or CsvLog(path, overwrite=True)"
            )


def _texts(history: History, row: dict[str, Any]) -> list[str]:
    """A row as text: the shortest that gives the same numbers back."""
    return [str(history.kind(name)(row[name])) for name in history.columns]


def _csv(rows: list[list[str]]) -> str:
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return page.getvalue()


class TensorBoardLog:
    """Writes the history to a folder that TensorBoard reads (extra `analysis`), a step per generation as it ends.

    Steps are evaluations. A run that is resumed writes its history again from the start, in a new file that tells
    TensorBoard to forget the old one: nothing is shown twice, nothing is lost. A folder of another run is refused.

    **Arguments:**

    - `folder`: one per run.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self._writer: Any = None
        self._events: Any = None  # modules of the extra
        self._summaries: Any = None
        self._next: int | None = None

    def __call__(self, optimizer: Optimizer, row: dict[str, Any]):
        if not first_process():
            return
        generation = int(row["generation"])
        try:
            if self._writer is not None and self._next == generation:
                self._write(optimizer.history, row, time.time())
                self._writer.flush()
            else:
                self._begin(optimizer)
            self._next = generation + 1
        except OSError as error:
            self._writer = None
            warnings.warn(f"{self.folder}: the log could not be written ({error})", UserWarning, stacklevel=2)

    def close(self):
        """Lets go of the file; all that was told is in it already."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def _begin(self, optimizer: Optimizer):
        """A new file with all rows so far."""
        from .analysis._optional import need

        writers, events = need("tensorboardX.event_file_writer"), need("tensorboardX.proto.event_pb2")
        self._events, self._summaries = events, need("tensorboardX.proto.summary_pb2")
        self.close()
        self._claim(optimizer)
        # TensorBoard reads files in the order of their names, which begin with whole seconds.
        self._writer = writers.EventsWriter(str(self.folder / "events"), f".{time.time_ns():020d}")
        columns = optimizer.history.to_dict()
        start = events.SessionLog(status=events.SessionLog.START)
        self._writer.write_event(events.Event(step=0, wall_time=time.time(), session_log=start))
        begun = time.time() - float(columns[CLOCK][-1])
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            self._write(optimizer.history, row, begun + float(row[CLOCK]))
        self._writer.flush()

    def _claim(self, optimizer: Optimizer):
        """Marks the folder as this run's."""
        path = self.folder / "run.json"
        algorithm, task = describe_algorithm(optimizer.algorithm), describe_problem(optimizer.task)
        run = {"algorithm": json.loads(algorithm), "task": json.loads(task), "seed": optimizer.seed}
        text = json.dumps(run, sort_keys=True, indent=1) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ValueError(f"{self.folder} is the log of another run ({path.name} says which); choose another folder")
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def _write(self, history: History, row: dict[str, Any], when: float):
        made, event = self._summaries.Summary, self._events.Event
        values = [
            made.Value(tag=tag, simple_value=float(row[name]))
            for name, tag in tags(history).items()
            if np.isfinite(row[name])  # an empty archive has no best fitness
        ]
        self._writer.write_event(event(step=int(row["evaluations"]), wall_time=when, summary=made(value=values)))


def tags(history: History) -> dict[str, str]:
    """What each column is called in TensorBoard, which draws together what stands before the stroke."""
    groups = {"qd_score": "archive", "coverage": "archive", "max_fitness": "archive"}
    group = lambda name: "additions" if name.startswith("added_") else groups.get(name, "run")
    return {name: f"{group(name)}/{name.removeprefix('added_')}" for name in history.columns if name != "evaluations"}
