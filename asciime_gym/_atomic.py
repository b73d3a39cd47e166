"""Files that are whole or not there at all, that no two runs write at once, and whose remains are swept up."""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: two runs of one process are still kept apart, two processes are not
    fcntl = None

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)  # file systems without any
_writing: set[Path] = set()  # temporaries that this process has open
_held: dict[Path, "Lock"] = {}  # locks that this process has
_guard = threading.RLock()


def real(path: str | os.PathLike) -> Path:
    """The file itself, whatever links lead to it: a link stays one when the file is replaced."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary file in the same folder that takes the place of `path` if all goes well, and is removed if not."""
    path = real(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _writing.add(temporary)
    try:
        # The mode follows the umask, which cannot be asked for without changing it under other threads' feet.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        yield temporary
        _flush(temporary, os.O_RDWR)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        _writing.discard(temporary)
    _flush_folder(path.parent)


def _flush(path: Path, flags: int):
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_folder(folder: Path):
    """Makes a rename survive a power cut."""
    if os.name == "nt":  # no folder can be opened there
        return
    try:
        _flush(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # what some network file systems say
            raise


def sweep(path: str | os.PathLike):
    """Removes what runs that were killed on this machine while they wrote `path`, or episodes of it, left beside it."""
    path = real(path)
    name = rf"(?:{re.escape(path.name)}|{re.escape(path.stem)}\.trajectories-\d+{re.escape(path.suffix)})"
    ours = re.compile(rf"\.{name}\.{_machine()}-([1-9]\d{{0,8}})-[0-9a-f]{{8}}\.tmp")
    with contextlib.suppress(OSError):  # what cannot be removed does no harm
        for name in os.listdir(path.parent):
            match, orphan = ours.fullmatch(name), path.parent / name
            if match and orphan not in _writing and not _alive(int(match[1])) and not orphan.is_dir():
                orphan.unlink(missing_ok=True)


def _machine() -> str:
    """Part of a temporary's name: on a folder that machines share, each sweeps its own."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _alive(process: int) -> bool:
    """Whether another process of that number runs here; if in doubt, it does."""
    if process == os.getpid():  # ours would be in `_writing`: in containers a new run often has the old one's number
        return False
    if os.name == "nt":  # where signal 0 is not harmless
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


class Lock:
    """Keeps other runs from writing a file: an advisory lock on `.NAME.lock` beside it, which ends with its process."""

    def __init__(self, path: str | os.PathLike):
        self._path = real(path)
        self._file = self._path.with_name(f".{self._path.name}.lock")
        self._handle: int | None = None

    def take(self):
        """Takes the lock, or takes it again where the folder was removed with it; `BlockingIOError` if it is taken."""
        with _guard:
            if _held.setdefault(self._file, self) is not self:
                raise self._refusal("in this process")
            try:
                if not self._in_place():
                    self._close()
                    self._open()
            except BaseException:
                self._close()
                del _held[self._file]
                raise

    def release(self):
        """Lets go, and removes the lock's file."""
        with _guard:
            if _held.get(self._file) is not self:
                return
            if (
                self._in_place()
            ):  # only who has the lock removes its file, and whoever takes it looks whether it is there
                with contextlib.suppress(OSError):
                    self._file.unlink()
            self._close()
            del _held[self._file]

    def __enter__(self) -> "Lock":
        self.take()
        return self

    def __exit__(self, *exception) -> None:
        self.release()

    def _open(self):
        if fcntl is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        while not self._in_place():  # until it was not removed between opening and locking
            self._close()
            self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._refusal(os.pread(self._handle, 200, 0).decode(errors="replace")) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
        assert self._handle is not None
        with contextlib.suppress(OSError):  # a full disk: the name of the holder is a courtesy
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _in_place(self) -> bool:
        """Whether what is open is what other runs find."""
        try:
            return self._handle is not None and os.path.samestat(os.fstat(self._handle), os.stat(self._file))
        except OSError:
            return False

    def _close(self):
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    def _refusal(self, holder: str) -> BlockingIOError:
        return BlockingIOError(
            f"{self._path} is being written by another run ({holder or 'another process'}); wait for it to end, "
            "or choose another file"
        )


def _let_go():
    """In a forked process: the parent's locks are the parent's alone, and end with it."""
    global _guard
    _guard = threading.RLock()
    for lock in _held.values():
        lock._close()
    _held.clear()
    _writing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
