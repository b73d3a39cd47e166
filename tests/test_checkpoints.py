"""Checkpoints: whatever goes wrong, the file is whole, the run goes on, and the user is told."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import jax
import pytest
from helpers import ALGORITHMS, Walk, digest

import asciime_gym as ag
from asciime_gym import _atomic, _checkpoint, _storage
from asciime_gym._atomic import Lock, replacing, sweep

TASK = Walk()
ALGORITHM = ALGORITHMS["ascii_me"]
BATCH = ALGORITHM.batch_size
HERE = Path(__file__).parent


def optimizer(generations: int = 0) -> ag.Optimizer:
    made = ag.Optimizer(ALGORITHM, TASK, centroids=64)
    if generations:
        made.fit(evaluations=generations * BATCH)
    return made


@pytest.fixture(scope="module")
def digests() -> dict[int, str]:
    """The uninterrupted run after each generation."""
    made, found = optimizer(), {}
    made.fit(evaluations=12 * BATCH, callbacks=lambda given, row: found.update({given.generation: digest(given._run)}))
    return found


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "folder" / "run.h5"


def loaded(path: Path) -> tuple[int, str]:
    """Generation and fingerprint of the run in a file."""
    made = ag.Optimizer.load(path, task=TASK)
    return made.generation, digest(made._run)


def at(generation: int, do):
    """A callback that does something once, when nothing is being written."""

    def callback(given, row):
        if given.generation == generation:
            given._checkpoints._writer.settle()
            return do()

    return callback


def messages(caught) -> list[str]:
    return [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]


# One write ---------------------------------------------------------------------------------------------------


class Faults:
    """Lets one call of those that write a file fail, before or after it has done its work."""

    def __init__(self, which: int, before: bool):
        self.left, self.before, self.hit = which, before, ""

    def shaky(self, name: str, function):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                self.hit = name
                if not self.before and not name.startswith("open"):
                    function(*args, **kwargs)
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **kwargs)

        return call

    def open(self, *args):
        return ShakyFile(open(*args), self)

    def patch(self, patch: pytest.MonkeyPatch):
        for place, name in [(os, "open"), (os, "fsync"), (os, "replace"), (Path, "mkdir"), (h5py.File, "__init__"),
                            (h5py.Group, "create_dataset"), (h5py.AttributeManager, "create")]:  # fmt: skip
            patch.setattr(place, name, self.shaky(name, getattr(place, name)))
        patch.setattr(_storage, "open", self.shaky("open a file", self.open), raising=False)


class ShakyFile:
    """An open file whose writes may fail."""

    def __init__(self, file, faults: Faults):
        self._file, self.write = file, faults.shaky("write", file.write)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()


@pytest.mark.parametrize("before", [True, False])
def test_a_save_that_fails_anywhere_leaves_the_old_file_or_the_new(path, digests, before):
    made = optimizer(2)
    made.save(path)
    old = path.read_bytes()
    made.fit(evaluations=4 * BATCH)
    hits, found = [], set()
    while True:
        faults = Faults(len(hits) + 1, before)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(OSError):
            faults.patch(patch)
            made.save(path)
        found.add(2 if path.read_bytes() == old else loaded(path))
        assert os.listdir(path.parent) == ["run.h5"], faults.hit  # neither a temporary nor a lock
        if not faults.hit:
            break
        hits.append(faults.hit)
        path.write_bytes(old)
    assert found == {2, (4, digests[4])} and loaded(path)[0] == 4
    assert {"open", "write", "fsync", "replace", "mkdir", "create_dataset", "create", "__init__"} <= set(hits)
    assert hits.count("fsync") == 2 and len(hits) > 30  # the file's and the folder's


def test_a_file_that_is_replaced_keeps_its_links_and_gets_the_users_mode(tmp_path):
    file, link = tmp_path / "disk" / "run.h5", tmp_path / "run.h5"
    link.symlink_to(file)
    before = os.umask(0o027)
    try:
        with replacing(link) as temporary:
            assert temporary.parent == file.parent
            temporary.write_text("new")
    finally:
        os.umask(before)
    assert link.is_symlink() and file.read_text() == "new" and file.stat().st_mode & 0o777 == 0o640


def test_only_dead_orphans_of_ours_are_swept(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    machine, path = _atomic._machine(), tmp_path / "run.h5"
    name = lambda file, machine, process: tmp_path / f".{file}.{machine}-{process}-0123abcd.tmp"
    orphans = [name("run.h5", machine, dead.pid), name("run.h5", machine, os.getpid())]  # a container's numbers repeat
    others = [
        path,
        name("run.h5", machine, os.getppid()),  # alive
        name("run.h5", "0" * 8, dead.pid),  # another machine's
        name("other.h5", machine, dead.pid),
        name("xrun.h5", machine, dead.pid),
        name("run.h5.h5", machine, dead.pid),
        tmp_path / f".run.h5.{machine}-{dead.pid}.tmp",
        tmp_path / f"run.h5.{machine}-{dead.pid}-0123abcd.tmp",
    ]
    for file in orphans + others:
        file.write_text("")
    with replacing(path) as temporary:  # being written by this process
        sweep(path)
        assert temporary.exists() and not any(file.exists() for file in orphans)
    assert set(tmp_path.iterdir()) == set(others)


def test_a_run_sweeps_before_it_starts(path):
    path.parent.mkdir()
    orphan = path.parent / f".run.h5.{_atomic._machine()}-{os.getpid()}-0123abcd.tmp"
    orphan.write_text("")
    optimizer().fit(evaluations=BATCH, checkpoint=path)
    assert os.listdir(path.parent) == ["run.h5"]


# Two writers -------------------------------------------------------------------------------------------------

HOLDER = """
import sys
import asciime_gym as ag
from helpers import ALGORITHMS, Walk
def hold(given, row):
    print("held", flush=True)
    sys.stdin.read()
optimizer = ag.Optimizer(ALGORITHMS["map_elites"], Walk(), centroids=64)
optimizer.fit(evaluations=100, callbacks=hold, checkpoint=sys.argv[1])
"""


def script(code: str, *words, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, cwd=HERE, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)


def test_two_runs_on_one_file_and_a_dead_one_lets_go(path):
    with script(HOLDER, path) as holder:
        assert holder.stdout.readline() == "held\n"
        made = optimizer()
        refused = rf"run.h5 is being written by another run \(process {holder.pid} on {socket.gethostname()}\); wait"
        with pytest.raises(BlockingIOError, match=refused):
            made.fit(evaluations=BATCH, checkpoint=path)
        with pytest.raises(BlockingIOError, match=refused):
            made.save(path)
        assert made.generation == 0 and not path.exists()  # before any work was done
        holder.kill()
    made.fit(evaluations=BATCH, checkpoint=path)
    assert loaded(path)[0] == 1 and os.listdir(path.parent) == ["run.h5"]


def test_two_optimizers_of_one_process(path, digests):
    made, other = optimizer(), optimizer(1)

    def meanwhile(given, row):
        with pytest.raises(BlockingIOError, match="another run"):
            other.fit(evaluations=2 * BATCH, checkpoint=path, overwrite=True)
        with pytest.raises(BlockingIOError, match="another run"):
            other.save(path)
        made.save(path)  # one's own file is another matter
        assert loaded(path) == (given.generation, digests[given.generation])

    made.fit(evaluations=4 * BATCH, callbacks=meanwhile, checkpoint=path, checkpoint_every=2)
    assert loaded(path) == (4, digests[4])
    other.save(path)
    assert loaded(path)[0] == 1


FORKS = """
import os, signal, sys, time
from asciime_gym._atomic import Lock
Lock(sys.argv[1]).take()
if os.fork():
    print(os.getpid(), flush=True)
    sys.stdin.read()
os.close(1)
time.sleep(60)
"""


def test_a_forked_process_does_not_keep_the_lock(path):
    with script(FORKS, path, start_new_session=True) as parent:
        parent.stdout.readline()
        with pytest.raises(BlockingIOError), Lock(path):
            pass
        parent.kill()
        parent.wait()
        with Lock(path):
            os.killpg(parent.pid, signal.SIGKILL)  # which shows that the child was alive


HAMMER = """
import os, sys
from asciime_gym._atomic import Lock
taken, inside = 0, sys.argv[1] + ".inside"
while taken < 100:
    try:
        with Lock(sys.argv[1]):
            os.mkdir(inside)  # fails if another process is in here
            os.rmdir(inside)
            taken += 1
    except BlockingIOError:
        pass
"""


def test_the_lock_is_ones_own_though_its_file_comes_and_goes(path):
    path.parent.mkdir()
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(script(HAMMER, path, stderr=subprocess.PIPE)) for _ in range(3)]
        errors = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * 3, errors
    assert not os.listdir(path.parent)


def test_a_lock_whose_file_its_holder_removes_just_now_is_taken_anew(path, monkeypatch):
    lock_file, flock, calls = path.parent / ".run.h5.lock", _atomic.fcntl.flock, []

    def late(handle, how):
        calls.append(handle)
        if len(calls) == 1:
            lock_file.unlink()  # by a run that ends between our opening and our locking it
        flock(handle, how)

    with monkeypatch.context() as patch:
        patch.setattr(_atomic.fcntl, "flock", late)
        lock = Lock(path)
        lock.take()
    with open(lock_file) as other, pytest.raises(BlockingIOError):  # as another process finds it
        flock(other, _atomic.fcntl.LOCK_EX | _atomic.fcntl.LOCK_NB)
    lock.release()
    assert len(calls) == 2 and not os.listdir(path.parent)


# While the run goes on ---------------------------------------------------------------------------------------


def test_the_run_goes_on_while_a_copy_is_written(path, digests, monkeypatch):
    """Each file holds what the run was at its generation, and the newest copy is the next to be written."""
    may_write, written = threading.Event(), {}

    def slow(path, saved):
        assert may_write.wait(60)
        written[int(saved.run.generation)] = (digest(saved.run), len(saved.history))
        save(path, saved)

    def go_on(given, row):
        if given.generation == 7:  # five generations after the copy of the second was made
            assert not path.exists()
            may_write.set()
            given._checkpoints._writer.settle()
            assert loaded(path) == (6, digests[6])

    save = _checkpoint.save_run
    monkeypatch.setattr(_checkpoint, "save_run", slow)
    optimizer().fit(evaluations=9 * BATCH, callbacks=go_on, checkpoint=path, checkpoint_every=2)
    last = {8: (digests[8], 8)} if 8 in written else {}  # the end may come before it could begin
    assert written == {2: (digests[2], 2), 6: (digests[6], 6), 9: (digests[9], 9)} | last
    assert loaded(path) == (9, digests[9])


def test_a_copy_shares_no_memory_with_the_device():
    made = optimizer(2)
    copy = _checkpoint.host_copy(made._saved())
    assert all(leaf.flags.owndata for leaf in jax.tree.leaves(copy.run))
    before = digest(copy.run)
    assert before == digest(made._run)
    made.fit(evaluations=5 * BATCH)
    assert digest(copy.run) == before and len(copy.history) == 2


def test_a_reader_does_not_stop_the_run(path, recwarn):
    made, readers = optimizer(), []
    read = at(3, lambda: readers.append(h5py.File(path)))  # which HDF5 locks
    made.fit(evaluations=6 * BATCH, callbacks=read, checkpoint=path, checkpoint_every=1)
    assert readers[0]["run/generation"][()] == 2 and loaded(path)[0] == 6 and not messages(recwarn)
    readers[0].close()


# What ends a run ---------------------------------------------------------------------------------------------


def test_a_run_that_a_callback_stops_is_saved(path, digests):
    optimizer().fit(evaluations=10**6, callbacks=at(5, lambda: False), checkpoint=path, checkpoint_every=2)
    assert loaded(path) == (5, digests[5])


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_run_whose_callback_fails_is_saved(error, path, digests):
    def fail():
        raise error

    made = optimizer()
    with pytest.raises(error):
        made.fit(evaluations=10**6, callbacks=at(5, fail), checkpoint=path)
    assert loaded(path) == (5, digests[5]) and os.listdir(path.parent) == ["run.h5"]
    made.fit(evaluations=6 * BATCH, checkpoint=path)
    assert loaded(path) == (6, digests[6])


def test_a_device_call_that_fails_leaves_the_last_file(path, digests):
    made = optimizer()
    advance = made._advance

    def fail(count, budget):
        if made.generation < 5:
            return advance(count, budget)
        jax.tree.map(lambda leaf: leaf.delete(), made._run)  # as it is when it was given to a call
        raise RuntimeError("out of memory")

    made._advance = fail
    with pytest.raises(RuntimeError, match="out of memory"), pytest.warns(RuntimeWarning) as caught:
        made.fit(evaluations=10**6, callbacks=lambda *_: None, checkpoint=path, checkpoint_every=2)
    assert loaded(path) == (4, digests[4])
    assert "the last complete file holds generation 4 of 5" in messages(caught)[-1]


@pytest.mark.parametrize("presses", [2, 3])
def test_impatience(presses, path, digests, monkeypatch):
    """A second Ctrl-C waits for the write under way and saves no more; a third does not wait."""
    may_write, save = threading.Event(), _checkpoint.save_run
    monkeypatch.setattr(_checkpoint, "save_run", lambda *args: may_write.wait(60) and save(*args))

    def press(given, row):
        if given.generation == 3:
            if presses == 2:
                may_write.set()
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        optimizer().fit(evaluations=10**6, callbacks=press, checkpoint=path, checkpoint_every=2)
    if presses == 3:
        assert not path.exists()
        with pytest.raises(BlockingIOError), Lock(path):  # still being written
            pass
        may_write.set()
        for thread in threading.enumerate():
            if thread.name == "writes run.h5":
                thread.join()
    assert loaded(path) == (2, digests[2])
    with Lock(path):
        pass


# What goes wrong with the disk -------------------------------------------------------------------------------


def test_a_folder_that_is_removed_is_made_again(path, digests, recwarn):
    remove = at(3, lambda: shutil.rmtree(path.parent))
    optimizer().fit(evaluations=6 * BATCH, callbacks=remove, checkpoint=path, checkpoint_every=2)
    assert loaded(path) == (6, digests[6]) and not messages(recwarn)
    assert os.listdir(path.parent) == ["run.h5"]


def test_a_folder_that_is_taken_away_for_good(path, digests):
    elsewhere = path.parent.with_name("elsewhere")

    def take_away():
        path.parent.rename(elsewhere)
        path.parent.write_text("a file now")

    made = optimizer()
    with pytest.warns(RuntimeWarning) as caught:
        result = made.fit(evaluations=9 * BATCH, callbacks=at(3, take_away), checkpoint=path, checkpoint_every=2)
    first, last = messages(caught)  # once per cause, and once at the end
    assert f"{path}: a checkpoint could not be written (File exists: {path.parent})" in first and "goes on" in first
    assert "The end of the run is not saved; the last complete file holds generation 2 of 9" in last
    assert result.stopped_by == "evaluations" and digest(made._run) == digests[9]
    assert loaded(elsewhere / "run.h5") == (2, digests[2])
    path.parent.unlink()
    made.save(path)
    assert loaded(path) == (9, digests[9])


def test_every_cause_is_told_once_and_the_next_checkpoint_tries_again(path, digests, monkeypatch):
    causes = {2: PermissionError(13, "no"), 3: PermissionError(13, "no"), 4: OSError(30, "no"), 5: OSError(30, "no")}
    replace = os.replace
    now = []

    def shaky(source, target):
        if now[-1] in causes and str(target).endswith("run.h5"):
            raise causes[now[-1]]
        replace(source, target)

    def step(given, row):
        given._checkpoints._writer.settle()
        now.append(given.generation)

    monkeypatch.setattr(os, "replace", shaky)
    with pytest.warns(RuntimeWarning) as caught:
        optimizer().fit(evaluations=7 * BATCH, callbacks=step, checkpoint=path, checkpoint_every=1)
    *told, last = messages(caught)
    assert ["Permission denied" in told[0], "Read-only file system" in told[1]] == [True, True] and len(told) == 2
    assert "4 checkpoints of the run could not be written" in last and "holds generation 7 of 7" in last
    assert loaded(path) == (7, digests[7]) and os.listdir(path.parent) == ["run.h5"]


def test_nothing_saved_is_said_to_be(path, monkeypatch):
    monkeypatch.setattr(os, "fsync", Faults(-1, True).shaky("fsync", lambda handle: os.close(-1)))
    made = optimizer()
    with pytest.warns(RuntimeWarning) as caught:
        made.fit(evaluations=2 * BATCH, checkpoint=path)
    assert "of 2 generations none was saved by this fit" in messages(caught)[-1] and not path.exists()


FULL = """
import json, os, sys, warnings
import asciime_gym as ag
from helpers import ALGORITHMS, Walk, digest
folder, frees = sys.argv[1], sys.argv[2] == "frees"
filler = os.path.join(folder, "filler")
def fill(given, row):
    given._checkpoints._writer.settle()
    if given.generation == 3:
        with open(filler, "wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(4096))
                except OSError:
                    break
            file.truncate(file.tell() - 4096 * int(sys.argv[3]))
    if given.generation == 6 and frees:
        os.remove(filler)
optimizer = ag.Optimizer(ALGORITHMS["ascii_me"], Walk(), centroids=64)
path = os.path.join(folder, "run.h5")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    optimizer.fit(evaluations=24 * 8, callbacks=fill, checkpoint=path, checkpoint_every=1)
print(json.dumps([digest(optimizer._run), [str(w.message) for w in caught], sorted(os.listdir(folder))]))
"""


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted: that needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(("frees", "left"), [("stays full", 0), ("stays full", 8), ("frees", 2)])  # pages
def test_a_disk_that_is_full(small_disk, digests, frees, left):
    """In a process of its own, because HDF5 is known to take the interpreter with it."""
    with script(FULL, small_disk, frees, left, stderr=subprocess.PIPE) as process:
        out, err = process.communicate()
    assert process.returncode == 0 and not err, (process.returncode, err)
    end, told, files = json.loads(out)
    assert end == digests[8] and len(told) == 2 and "No space left on device" in told[0]
    generation = 8 if frees == "frees" else 2
    assert loaded(small_disk / "run.h5") == (generation, digests[generation])
    assert f"holds generation {generation} of 8" in told[1]
    assert files == (["run.h5"] if frees == "frees" else ["filler", "run.h5"])


class Disk:
    """What a power cut would leave: contents as they were when they were last flushed, names as their folder's were."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder, self.kept, self.renamed, self.states = folder, {}, [], []
        self._fsync, self._replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "replace", self.replace)

    def fsync(self, handle: int):
        self._fsync(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self.kept, self.renamed = self.after_renames(), []
        else:
            self.kept[path.name] = path.read_bytes()
        self.note()

    def replace(self, old, new):
        self._replace(old, new)
        self.renamed.append((Path(old).name, Path(new).name))
        self.note()

    def after_renames(self) -> dict[str, bytes]:
        names = dict(self.kept)
        for old, new in self.renamed:
            names[new] = names.pop(old, b"")  # never flushed: the name is there, the contents are not
        return names

    def note(self):
        self.states += [dict(self.kept), self.after_renames()]


def test_a_power_cut_at_any_moment(tmp_path, monkeypatch, digests):
    """A file and the parts that it lists are on the disk together, or the previous ones are."""
    disk, generations = Disk(tmp_path, monkeypatch), 4
    made = optimizer()
    options = {"checkpoint": tmp_path / "run.h5", "checkpoint_every": 1, "record_trajectories": "all"}
    made.fit(evaluations=generations * BATCH, **options)
    monkeypatch.undo()
    found = []
    for number, state in enumerate(disk.states):
        folder = tmp_path / f"state_{number}"
        folder.mkdir()
        for name, data in state.items():
            (folder / name).write_bytes(data)
        if "run.h5" in state:
            loaded = ag.Optimizer.load(folder / "run.h5", task=TASK)
            assert digest(loaded._run) == digests[loaded.generation]
            assert len(list(ag.load_trajectories(folder / "run.h5"))) == loaded.evaluations
            found.append(loaded.generation)
    assert found == sorted(found) and found[-1] == generations and len(disk.states) > 2 * len(set(found))
