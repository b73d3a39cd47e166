"""How far a generation has got that is evaluated on the host: the evaluator reports, and `fit` listens."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

EVERY = 0.2  # seconds between two reports that are passed on
_listener: ContextVar[Callable[[int], None] | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def listening(listener: Callable[[int], None]) -> Iterator[None]:
    """Within it `listener` hears, now and then, how many episodes of the generation under way are done."""
    last = float("-inf")

    def now_and_then(done: int):
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            listener(done)

    token = _listener.set(now_and_then)
    try:
        yield
    finally:
        _listener.reset(token)


def report(done: int):
    """So many episodes of the generation under way are done."""
    listener = _listener.get()
    if listener is not None:
        listener(done)
