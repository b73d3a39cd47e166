"""Worker processes of ours, seen from the process that started them."""

import contextlib
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import cloudpickle

from . import _worker_main

PATIENCE = 5.0  # seconds that a worker has to end by itself


class WorkerError(RuntimeError):
    """What was asked of a worker raised there, or the worker died of it."""


class WorkerDied(WorkerError):
    """The process is gone."""


class Worker:
    """A process that keeps one object and calls its methods, one call at a time.

    It starts from nothing rather than as a fork, since a copy of a process with JAX's threads may hang; and it does
    not import the user's script, which needs no `if __name__ == "__main__"`: what comes from there is sent by value.
    It ends when its input does: with this object, or with the process that started it, however that ends.
    """

    def __init__(self, name: str):
        self.name, self._process = name, _start()
        self._finalizer = weakref.finalize(self, _end, [self._process])

    def open(self, kind: Literal["environments", "function"], kept: Any):
        """Sends what the worker is to keep; an answer will tell whether it could."""
        try:
            packed = cloudpickle.dumps(kept)
        except Exception as error:
            raise TypeError(f"{self.name}: this cannot be sent to a worker process ({error}): {kept!r}") from error
        self.ask("open", sys.path, kind, packed)

    def ask(self, method: str, *arguments: Any):
        """Begins a call; `answer` waits for its end."""
        message = pickle.dumps((method, arguments), pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(BrokenPipeError):  # it has died, which `answer` will find
            _worker_main.send(self._process.stdin, message)

    def answer(self) -> Any:
        reply = _worker_main.receive(self._process.stdout)
        if reply is None:
            raise WorkerDied(f"The worker process died ({self._how()})")
        fine, answer = pickle.loads(reply)
        if not fine:
            raise WorkerError(f"In the worker process:\n{answer}")
        return answer

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        code = self._process.returncode
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"

    def kill(self):
        """Ends it in the middle of whatever it does; who waits for its answer finds it dead."""
        self._process.kill()


def end(workers: Iterable[Worker], at_once: bool = False):
    """Ends workers, all at the same time: by and by, or at once."""
    workers = list(workers)
    _end([worker._process for worker in workers], at_once)
    for worker in workers:
        worker._finalizer.detach()


def _start() -> subprocess.Popen:
    """Ctrl-C and SIGTERM are for the parent to act on: a blocked signal stays blocked in what is started."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        command = [sys.executable, "-P", str(Path(_worker_main.__file__))]  # -P: not with this folder's modules
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: list[subprocess.Popen], at_once: bool = False):
    for process in processes:
        if at_once:
            process.kill()
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()  # at which it closes what it keeps, and ends
    for process in processes:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
