"""Checkpoints of a run: when they are due, and the thread that writes them while the device goes on."""

import os
import re
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._atomic import Lock, real, sweep
from ._files import Saved, save_run, trimmed
from ._loop import CHUNK
from ._spread import agreed, first_process
from ._trajectories import PART_BYTES, Recorder

CHECKPOINT_SECONDS = 60.0


def host_copy(saved: Saved) -> Saved:
    """The run as it stands, out of the device's reach: the run itself is given away to the next device call."""
    copy = saved._replace(run=jax.tree.map(_host, trimmed(saved).run), history=saved.history.copy())
    if int(copy.run.generation) != len(copy.history):  # better the last good file than one that cannot go on
        raise RuntimeError("the run was cut off within a generation")
    return copy


def _host(leaf: Any) -> np.ndarray:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.array(jax.random.key_data(leaf) if is_key else leaf)  # np.asarray may be the device's own memory


class Writer:
    """Writes a run to one file in a thread, and has the file's lock until it is closed.

    One write at a time; of the copies that wait for it only the newest is kept. A write that fails is remembered, and
    leaves the file as it was.
    """

    def __init__(self, path: str | os.PathLike, recorder: Recorder | None = None):
        self.path, self._recorder = Path(path).absolute(), recorder  # a callback may change the working folder
        self.asked: int | None = None  # the generation that came last
        self.written: int | None = None  # the generation in the file, once this writer has written it
        self.failures = 0
        self._causes: dict[str, str] = {}  # of failures, by kind
        self._told = 0  # how many of them
        self._next: Saved | None = None
        self._busy = self._closed = False
        self._changed = threading.Condition()
        self._lock = Lock(path)
        self._lock.take()

    def put(self, saved: Saved):
        """Has a copy written as soon as the write under way has ended, unless a newer one comes before."""
        with self._changed:
            self._next, self.asked = saved, int(saved.run.generation)
            if self._busy:
                return
            self._busy = True
        try:
            threading.Thread(target=self._work, name=f"writes {self.path.name}", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            self._work()

    def write(self, saved: Saved):
        """Writes at once, in the caller's thread; raises if that fails."""
        self.settle(drop=True)
        self._write(saved)

    def settle(self, drop: bool = False):
        """Waits until nothing is being written; `drop`: not for what waits behind the write under way."""
        with self._changed:
            if drop:
                self._next = None
            self._changed.wait_for(lambda: not self._busy)

    def close(self):
        """Lets go of the file; a write that nobody waited for does so when it ends."""
        with self._changed:
            self._next, self._closed = None, True
            if not self._busy:
                self._lock.release()

    def failed(self, error: Exception):
        """Remembers why a write failed; not the error itself, which would keep the copy alive."""
        cause = _cause(error)
        with self._changed:
            self.failures += 1
            self._causes.setdefault(re.sub(r"\d+", "", cause), cause)

    def news(self) -> list[str]:
        """Causes of failures that were not asked for before."""
        with self._changed:
            news = list(self._causes.values())[self._told :]
            self._told += len(news)
        return news

    def causes(self) -> str:
        return "; ".join(self._causes.values())

    def _work(self):
        while True:
            with self._changed:
                saved, self._next = self._next, None
                if saved is None:
                    self._busy = False
                    if self._closed:
                        self._lock.release()
                    self._changed.notify_all()
                    return
            try:
                self._write(saved)
            except Exception as error:
                self.failed(error)

    def _write(self, saved: Saved):
        self._lock.take()  # again, in case the folder was removed with the lock in it
        if self._recorder is not None:  # what the file lists has to be there before it
            saved = saved._replace(parts=tuple(self._recorder.flush(int(saved.run.evaluations))))
        save_run(self.path, saved)
        self.written = int(saved.run.generation)


def _cause(error: Exception) -> str:
    """What went wrong, in the system's words where it has any: HDF5's are long, and differ from time to time."""
    if not isinstance(error, OSError) or not error.errno:
        return f"{error}".partition("\n")[0] or type(error).__name__
    place = error.filename if isinstance(error.filename, str) else ""
    return os.strerror(error.errno) + (f": {place}" if place and not place.endswith(".tmp") else "")


class Checkpoints:
    """Saves now and then, and at the end; a save that fails does not stop the run.

    **Arguments:**

    - `path`: the file; `None`: nothing is saved.
    - `every`: generations between saves; by default about a minute's worth.
    - `current`: gives the run as it stands.
    - `ours`: files that may be written over, beside those that `overwrite` allows.
    - `recorder`: of trajectories, which are written before the file that lists them.
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        every: int | None,
        current: Callable[[], Saved],
        *,
        ours: set[Path],
        overwrite: bool,
        recorder: Recorder | None = None,
    ):
        if every is not None and every < 1:
            raise ValueError(f"checkpoint_every counts generations and must be at least 1; got {every}")
        self._every, self._current, self._recorder = every, current, recorder
        self._time = time.monotonic()
        self._writer = None if path is None else _by_the_first(lambda: _writer(Path(path), ours, overwrite, recorder))

    @property
    def written(self) -> bool:
        """Whether the file holds this run."""
        return self._writer is not None and self._writer.written is not None

    def next_in(self, generation: int) -> int:
        """Generations that may pass before a checkpoint is due."""
        return CHUNK if self._every is None else self._every - generation % self._every

    def after(self, generation: int):
        """Has the run written if that is due, and tells of writes that failed."""
        due = time.monotonic() - self._time >= CHECKPOINT_SECONDS
        if self._every is not None:
            due = generation % self._every == 0
        if due or (self._recorder is not None and self._recorder.pending_bytes > PART_BYTES):
            self._put()
        self._tell()

    def end(self, newest: bool = True):
        """Waits until the newest state is in the file, or else the write under way has ended; tells what is missing."""
        writer, generations = self._writer, len(self._current().history)
        if writer is None:
            return
        wanted = newest and generations > 0
        if fresh := wanted and writer.asked != generations:
            self._put()
        writer.settle(drop=not newest)
        if wanted and not fresh and writer.written != generations:  # it was due just now, and failed
            self._put()
            writer.settle()
        self._tell()
        if writer.failures:
            warnings.warn(_summary(writer, generations), RuntimeWarning, stacklevel=2)

    def save(self, path: str | os.PathLike) -> bool:
        """Saves at once if this is the file that checkpoints go to, and says whether it is."""
        if self._writer is None or real(path) != real(self._writer.path):
            return False
        self._writer.write(self._current())
        return True

    def close(self):
        """Lets go of the file."""
        if self._writer is not None:
            self._writer.close()

    def _put(self):
        self._time = time.monotonic()
        if self._writer is None:
            return
        try:
            self._writer.put(host_copy(self._current()))
        except Exception as error:  # no memory for the copy, or a run that a failed device call has taken away
            self._writer.failed(error)

    def _tell(self):
        """Warns of writes that failed, once per cause."""
        if self._writer is None:
            return
        text = "The run goes on, the last complete file stays, and the next checkpoint tries again"
        for cause in self._writer.news():
            message = f"{self._writer.path}: a checkpoint could not be written ({cause}). {text}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def _summary(writer: Writer, generations: int) -> str:
    """What is and what is not saved at the end of a run in which writes failed."""
    count = f"{writer.failures} checkpoints" if writer.failures > 1 else "a checkpoint"
    failed = f"{writer.path}: {count} of the run could not be written ({writer.causes()})"
    if writer.written == generations:
        return f"{failed}, but the last one was: the file holds generation {generations} of {generations}"
    holds = f"the last complete file holds generation {writer.written} of {generations}"
    if writer.written is None:
        holds = f"of {generations} generations none was saved by this fit"
    return f"{failed}. The end of the run is not saved; {holds}. Mend the cause, and optimizer.save(…) saves the rest"


def _by_the_first(make: Callable[[], Any]) -> Any:
    """What the first of several processes makes, `None` in the others; if it fails, so do they."""
    made = error = None
    if first_process():
        try:
            made = make()
        except Exception as failure:
            error = failure
    if agreed(error is not None):
        raise error or RuntimeError("the first process cannot write the checkpoint; its own error says why")
    return made


def _writer(path: Path, ours: set[Path], overwrite: bool, recorder: Recorder | None) -> Writer:
    """Finds out before any work is done that the checkpoint could not or should not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; the checkpoint needs a file name, {path / 'run.h5'} say")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {path.parent} cannot be made ({error.strerror}); choose another for the checkpoint"
        raise type(error)(message) from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{path.parent} is not writable; choose another folder for the checkpoint")
    writer = Writer(path, recorder)
    foreign = real(path) not in ours and not overwrite
    if foreign and recorder is not None and recorder.next_part.exists():
        writer.close()
        raise FileExistsError(
            f"{recorder.next_part} holds recorded episodes of another run; choose another name for the checkpoint, or "
            "replace them: overwrite=True or `--overwrite`"
        )
    if foreign and path.exists():
        writer.close()
        raise FileExistsError(
            f"{path} already holds a run. Go on with it: Optimizer.load({str(path)!r}) or `asciime resume "
            f"{path}`; or replace it: overwrite=True or `--overwrite`"
        )
    sweep(path)
    return writer
