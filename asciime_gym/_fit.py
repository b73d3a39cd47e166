"""The driver of `Optimizer.fit`: budgets, interrupts, callbacks and checkpoints round the one loop."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._checkpoint import Checkpoints
from ._loop import CHUNK
from ._metrics import History
from ._spread import agreed
from ._view import ArchiveView

if TYPE_CHECKING:
    from ._optimizer import Optimizer

CHUNK_SECONDS = 2.0  # a device call lasts about this long, so that interrupts and checkpoints are not kept waiting

StoppedBy = Literal["evaluations", "seconds", "callback", "interrupt"]
STOPS = ("evaluations", "seconds", "interrupt", "abort")  # what a process finds out by itself
Callback = Callable[["Optimizer", dict[str, Any]], Any]


class Result(NamedTuple):
    """What `fit` returns."""

    archive: ArchiveView
    history: History
    stopped_by: StoppedBy

    def __repr__(self) -> str:
        return f"Result(stopped_by={self.stopped_by!r},\n  archive={self.archive},\n  history={self.history})"


class Budget(NamedTuple):
    """When to stop: totals over the life of the run, whichever is reached first."""

    evaluations: int | None
    seconds: float | None

    def spent(self, evaluations: int, seconds: float) -> StoppedBy | None:
        if self.evaluations is not None and evaluations >= self.evaluations:
            return "evaluations"
        if self.seconds is not None and seconds >= self.seconds:
            return "seconds"
        return None


def check_budget(evaluations: int | None, seconds: float | None) -> Budget:
    if evaluations is None and seconds is None:
        raise ValueError("fit needs a budget: evaluations=…, seconds=…, or both (the first reached stops)")
    if evaluations is not None and (evaluations != int(evaluations) or not 0 < evaluations < 2**31):
        raise ValueError(f"evaluations must be a whole number from 1 to {2**31 - 1:,}; got {evaluations}")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ValueError(f"seconds must be above 0; got {seconds}")
    return Budget(None if evaluations is None else int(evaluations), seconds)


class Pace:
    """How many generations make a chunk of about `CHUNK_SECONDS`."""

    def __init__(self, one_by_one: bool):
        self._one_by_one, self._seconds_each = one_by_one, None

    def measured(self, generations: int, seconds: float):
        self._seconds_each = max(seconds / max(generations, 1), 1e-6)

    def next(self, seconds_left: float | None) -> int:
        if self._one_by_one or self._seconds_each is None:
            return 1
        wish = CHUNK_SECONDS if seconds_left is None else min(CHUNK_SECONDS, seconds_left)
        return max(1, min(CHUNK, int(wish / self._seconds_each)))


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Within it Ctrl-C and SIGTERM are counted, and what is yielded tells how many there were; the third raises."""
    received = []

    def receive(number, frame):
        received.append(number)
        if len(received) > 2:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: len(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drive(
    optimizer: "Optimizer",
    budget: Budget,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints,
    display: Any,
) -> StoppedBy:
    """Runs chunks of generations until there is a reason to stop, and sees to it that the last of them is saved."""
    with interruptible() as interrupted, display:
        try:
            stopped = _chunks(optimizer, budget, callbacks, checkpoints, display, interrupted)
        except BaseException:
            if interrupted() < 3:  # the third is not kept waiting
                checkpoints.end(newest=interrupted() < 2)
            raise
        checkpoints.end()
        agreed(0)  # no process goes on before the file is there
        return stopped


def _chunks(
    optimizer: "Optimizer",
    budget: Budget,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints,
    display: Any,
    interrupted: Callable[[], int],
) -> StoppedBy:
    """Runs generations until a budget is spent, a callback returns False or the user interrupts."""
    pace = Pace(one_by_one=bool(callbacks) or optimizer._recorder is not None)
    display.compiling()
    optimizer._advance(0, budget.evaluations)  # no generation: compiles
    while True:
        stopped = budget.spent(optimizer.evaluations, optimizer.seconds)
        stopped = stopped or ("interrupt" if interrupted() else None)
        left = None if budget.seconds is None else budget.seconds - optimizer.seconds
        count = min(pace.next(left), checkpoints.next_in(optimizer.generation))
        # All processes do what the first one says: so many generations, or one of the reasons to stop.
        plan = agreed(-1 - STOPS.index("abort" if interrupted() > 1 else stopped) if stopped else count)
        if plan < 0 and STOPS[-1 - plan] == "abort":  # not in a device call, which would lose the run
            raise KeyboardInterrupt
        if plan < 0:
            return STOPS[-1 - plan]  # type: ignore
        begin = time.perf_counter()
        generations = optimizer._advance(plan, budget.evaluations)
        pace.measured(generations, time.perf_counter() - begin)
        row = optimizer.history.last()
        display.show(row)
        answers = [callback(optimizer, row) for callback in callbacks]
        if agreed(any(answer is False for answer in answers)) and interrupted() < 2:
            return "callback"
        checkpoints.after(optimizer.generation)
