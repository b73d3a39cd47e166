"""Who evaluates individuals for `map_evaluator`: worker processes of ours, or an executor of the user's."""

import abc
import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

from ._workers import Worker, WorkerDied, WorkerError, end


class CannotStart(RuntimeError):
    """No worker can be had: no individual is to blame."""


class Crew(abc.ABC):
    """Takes individuals, and gives a future for each."""

    at_once: int | None  # how many it works on at the same time, where that is known

    @abc.abstractmethod
    def submit(self, genotype: Any) -> Future: ...

    @abc.abstractmethod
    def begun(self, future: Future) -> float | None:
        """Since when (on the monotonic clock) it has been worked on, as far as that is known."""

    @abc.abstractmethod
    def drop(self, future: Future) -> bool:
        """Nobody waits for this one any more; returns whether its worker is free."""

    @abc.abstractmethod
    def close(self, at_once: bool = False): ...


class OwnCrew(Crew):
    """Worker processes, each with a thread that waits for it; one that dies is replaced.

    A process has one individual at a time, so that whoever kills it is known, and nobody else is lost with it.
    """

    def __init__(self, function: Callable, workers: int):
        self.at_once, self._function = workers, function
        self._shift: _Shift | None = None

    def submit(self, genotype: Any) -> Future:
        if self._shift is None:
            self._shift = _Shift(self._function)
            weakref.finalize(self, self._shift.end)
        shift, future = self._shift, Future()
        shift.jobs.put((future, genotype))
        if shift.threads < (self.at_once or 1):
            shift.threads += 1
            threading.Thread(target=_work, args=(shift,), daemon=True).start()
        return future

    def begun(self, future: Future) -> float | None:
        return self._shift.busy.get(future, (None, None))[1] if self._shift else None

    def drop(self, future: Future) -> bool:
        """Its process is killed; the thread starts another."""
        worker, _ = self._shift.busy.get(future, (None, None)) if self._shift else (None, None)
        if worker is not None:
            worker.kill()
        return True

    def close(self, at_once: bool = False):
        shift, self._shift = self._shift, None
        if shift is not None:
            shift.end(at_once)


class _Shift:
    """What the threads of a crew share. They do not hold the crew itself, so that it can go, and they with it."""

    def __init__(self, function: Callable):
        self.function, self.threads = function, 0
        self.jobs: queue.SimpleQueue = queue.SimpleQueue()
        self.busy: dict[Future, tuple[Worker, float]] = {}
        self._staff: list[Worker] = []
        self._changing, self._over = threading.Lock(), False

    def hire(self) -> Worker:
        worker = Worker("map_evaluator")
        try:
            worker.open("function", self.function)
            worker.answer()
            with self._changing:
                if self._over:
                    raise CancelledError("the evaluator was closed")
                self._staff.append(worker)
        except BaseException as error:
            end([worker], at_once=True)
            raise error if isinstance(error, CancelledError) else CannotStart(str(error)) from error
        return worker

    def leave(self, worker: Worker):
        with self._changing:
            known = worker in self._staff
            if known:
                self._staff.remove(worker)
        if known:  # else whoever took it from the list ends it
            end([worker])

    def end(self, at_once: bool = False):
        with self._changing:
            if self._over:  # by `close`, and then when the crew is collected
                return
            self._over, staff = True, list(self._staff)
            self._staff.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                self.jobs.get_nowait()[0].cancel()
        for _ in range(self.threads):
            self.jobs.put(None)
        end(staff, at_once)


def _work(shift: _Shift):
    """One thread of a crew: hands one job after the other to its process, until there is none."""
    worker: Worker | None = None
    while (job := shift.jobs.get()) is not None:
        future, genotype = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            worker = worker or shift.hire()
            shift.busy[future] = worker, time.monotonic()
            worker.ask("call", genotype)
            result = worker.answer()
        except BaseException as error:
            if worker is not None and (isinstance(error, WorkerDied) or not isinstance(error, WorkerError)):
                shift.leave(worker)
                worker = None
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            shift.busy.pop(future, None)
        del job, future, genotype  # which nobody else may want any more
    if worker is not None:
        shift.leave(worker)


class BorrowedCrew(Crew):
    """Any `concurrent.futures.Executor`, which stays the user's to shut down."""

    def __init__(self, function: Callable, executor: Executor):
        self._function, self._executor = function, executor
        # Dask takes two calls with equal arguments for the same, and would not try again what has failed.
        client = getattr(executor, "_client", None)
        self._options = {"pure": False} if type(executor).__module__.startswith("distributed.") else {}
        threads = sum(client.nthreads().values()) if client and self._options else None
        self.at_once = getattr(executor, "_max_workers", threads)

    def submit(self, genotype: Any) -> Future:
        try:
            return self._executor.submit(self._function, genotype, **self._options)
        except BrokenExecutor as error:
            raise broken(self._executor) from error

    def begun(self, future: Future) -> float | None:
        return None

    def drop(self, future: Future) -> bool:
        """One that has begun cannot be stopped: its worker is free again when it ends."""
        return future.cancel()

    def close(self, at_once: bool = False):
        pass


def broken(executor: Any) -> RuntimeError:
    return RuntimeError(
        f"{executor} is broken: one of its processes died, and it takes no more work. optimizer.ask() gives the same "
        "rows again for another executor. Without executor=… map_evaluator has processes of its own, and replaces "
        "those that die"
    )
