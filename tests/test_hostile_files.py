"""Files that are damaged, wrong or hostile: each is loaded as it is, or refused with a `FileError`."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import Walk, edited, same

import asciime_gym as ag
from asciime_gym._storage import BLOCK, contents_digest, seal

TASK = Walk()
LOADERS = {"archive": ag.load_archive, "run": lambda path: ag.Optimizer.load(path, task=TASK)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.h5"
    made = ag.Optimizer(ag.AsciiME(batch_size=24, epochs=2), TASK, centroids=64, seed=7)
    made.fit(evaluations=72, checkpoint=path)
    return path


@pytest.fixture(autouse=True)
def no_hang():
    """A load that hangs fails its test."""

    def ring(*_):
        raise AssertionError("a load took over five minutes")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def outcome(load, path: Path):
    """What was loaded, or the sentence in which it was refused."""
    try:
        loaded = load(path)
    except ag.FileError as error:
        assert str(path) in str(error) and len(str(error)) < 3000 and "\n" not in str(error)
        return str(error)
    return loaded if isinstance(loaded, ag.ArchiveView) else loaded.archive


def agrees(loaded: ag.ArchiveView, path: Path) -> bool:
    """Whether what was loaded is what bare h5py finds in the file."""
    with h5py.File(path) as file:
        elites = file["archive/elites"]
        filled = elites["fitness"][()] > -np.inf
        names = ("genotype", "fitness", "descriptor", "evaluation", "steps", "key")
        return all(np.array_equal(getattr(loaded, name), elites[name][()][filled]) for name in names)


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("loader", LOADERS)
def test_every_flipped_byte_is_noticed(loader, whole, tmp_path):
    """In data or metadata, in the digest or beside it: 1,000 files a reader."""
    random, data = np.random.default_rng(1), whole.read_bytes()
    places = np.concatenate([np.arange(0, BLOCK, 8), random.integers(BLOCK, len(data), 936)])
    path = tmp_path / "flipped.h5"
    for place in places:
        wrong = bytearray(data)
        wrong[place] ^= int(random.integers(1, 256))
        path.write_bytes(wrong)
        assert isinstance(outcome(LOADERS[loader], path), str), place


@pytest.mark.parametrize("loader", LOADERS)
def test_every_truncation_is_noticed(loader, whole, tmp_path):
    random, data = np.random.default_rng(2), whole.read_bytes()
    path = tmp_path / "cut.h5"
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, len(data) - 1, *random.integers(0, len(data), 94)]:
        path.write_bytes(data[:size])
        assert isinstance(outcome(LOADERS[loader], path), str), size
    path.write_bytes(data + b"\0")
    assert "not a complete file" in outcome(LOADERS[loader], path)


def datasets(path: Path) -> list[str]:
    names = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def replace(file, name, **options):
    del file[name]
    file.create_dataset(name, **options)


def other_file(file, name):
    """A file that must never be read: the test fails if its numbers come back."""
    path = Path(file.filename).with_name("other.h5")
    with h5py.File(path, "w") as other:
        other["data"] = file[name][()]
    return path


def huge(file, name):
    shape, dtype = file[name].shape, file[name].dtype
    replace(file, name, shape=(2**36, *shape[1:]), dtype=dtype, chunks=(1024, *shape[1:]) if shape else (1024,))


def huge_chunk(file, name):
    data = file[name][()]
    shape = (max(1, len(data)), *data.shape[1:]) if data.ndim else (1,)
    rows = 2**26 // (data.dtype.itemsize * int(np.prod(shape[1:]))) + 1
    replace(file, name, data=np.resize(data, shape), maxshape=(None, *shape[1:]), chunks=(rows, *shape[1:]))


def soft_link(file, name):
    file.move(name, "elsewhere")
    file[name] = h5py.SoftLink("/elsewhere")


def external_link(file, name):
    path = other_file(file, name)
    del file[name]
    file[name] = h5py.ExternalLink(str(path), "data")


def virtual(file, name):
    path, source = other_file(file, name), file[name]
    layout = h5py.VirtualLayout(source.shape, source.dtype)
    layout[...] = h5py.VirtualSource(str(path), "data", source.shape, source.dtype)
    del file[name]
    file.create_virtual_dataset(name, layout)


def external_storage(file, name):
    data = file[name][()]
    path = Path(file.filename).with_name("raw.bin")
    path.write_bytes(data.tobytes())
    replace(file, name, shape=data.shape or (1,), dtype=data.dtype, external=[(str(path), 0, h5py.h5f.UNLIMITED)])


def variable_text(file, name):
    replace(file, name, shape=file[name].shape or (1,), dtype=h5py.string_dtype())


def compound(file, name):
    replace(file, name, shape=file[name].shape or (1,), dtype=np.dtype([("a", "f4"), ("b", "S9")]))


def group_instead(file, name):
    del file[name]
    file.create_group(name)


def unknown_filter(file, name):
    replace(file, name, data=np.resize(file[name][()], 2000), compression="lzf")


def not_finite(file, name):
    if file[name].dtype.kind == "f" and file[name].size:
        values = file[name][()]
        values.flat[0] = np.nan
        file[name][...] = values


def out_of_range(file, name):
    if file[name].dtype.kind == "i" and file[name].size:
        file[name][...] = np.full(file[name].shape, -7, file[name].dtype)


CHANGES = {
    "removed": lambda file, name: file.__delitem__(name),
    "a row more": lambda file, name: replace(
        file, name, data=np.resize(file[name][()], (*(n + 1 for n in file[name].shape[:1]), *file[name].shape[1:]))
    ),
    "an axis more": lambda file, name: replace(file, name, data=file[name][()][..., None]),
    "none at all": lambda file, name: replace(file, name, data=file[name][()].ravel()[:0]),
    "empty": lambda file, name: replace(file, name, data=h5py.Empty("f4")),
    "another type": lambda file, name: replace(file, name, data=np.zeros(file[name].shape, np.complex64)),
    "big-endian doubles": lambda file, name: replace(file, name, data=np.zeros(file[name].shape, ">f8")),
    "huge": huge,
    "huge chunk": huge_chunk,
    "soft link": soft_link,
    "external link": external_link,
    "virtual": virtual,
    "external storage": external_storage,
    "variable text": variable_text,
    "compound": compound,
    "group": group_instead,
    "filter": unknown_filter,
    "not finite": not_finite,
    "out of range": out_of_range,
}
LARGE = ("archive/elites/genotype", "archive/elites/fitness", "state/items/observation", "history/qd_score")
# What a reader may load all the same: it never looks there, or nothing was changed.
UNREAD = ("archive/cell", "archive/dimension")
SHOWN_UNREAD = ("removed", "huge", "external link")  # changes that show it as well as all of them would
UNREAD_BY_ARCHIVE = (*UNREAD, "state/", "history/", "run/", "archive/elites/keepsake")


def harmless(name: str, change: str, loader: str, dtype: np.dtype) -> bool:
    if name.startswith(UNREAD_BY_ARCHIVE if loader == "archive" else UNREAD):
        return True
    if change == "out of range":  # key data may be any number, and history's counts of rows are not cross-checked
        return dtype.kind != "i" or name.startswith("history/")
    return change == "not finite" and dtype.kind != "f"


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("change", CHANGES)
def test_every_changed_dataset_is_noticed(change, loader, whole, tmp_path):
    """With a digest that is right for what the file has become."""
    path, before = tmp_path / "changed.h5", peak()
    with h5py.File(whole) as file:
        kinds = {name: (file[name].dtype, file[name].shape) for name in datasets(whole)}
    assert len(kinds) > 30
    for name, (dtype, shape) in kinds.items():
        if (change == "a row more" and not shape) or (change == "huge chunk" and name not in LARGE):
            continue
        if loader == "archive" and name.startswith(UNREAD_BY_ARCHIVE) and change not in SHOWN_UNREAD:
            continue
        shutil.copy(whole, path)
        with edited(path) as file:
            CHANGES[change](file, name)
        found = outcome(LOADERS[loader], path)
        if not harmless(name, change, loader, dtype):
            assert isinstance(found, str), f"{name}: {change}"
        elif not isinstance(found, str):
            assert agrees(found, path), f"{name}: {change}"
    assert peak() - before < 2**30


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


ATTRIBUTES = ("format", "schema", "versions", "algorithm", "task", "policy", "operators", "seed")
VALUES = {
    "nothing": None,
    "number": np.int64(-3),
    "float": 1.5,
    "variable text": "{}",
    "list": np.arange(5),
    "empty": h5py.Empty("S5"),
    "text": np.bytes_("hello"),
    "not UTF-8": np.bytes_(b"\xff\xfe\xfa"),
    "empty record": np.bytes_("{}"),
    "deep": np.bytes_(deep(30_000)),
    "long": np.bytes_("[" + "1," * 30_000 + "1]"),
    "digits": np.bytes_("9" * 60_000),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*written with other versions")
@pytest.mark.parametrize("loader", LOADERS)
def test_every_changed_attribute_is_noticed(loader, whole, tmp_path):
    path = tmp_path / "changed.h5"
    for name in ATTRIBUTES:
        for label, value in VALUES.items():
            shutil.copy(whole, path)
            with edited(path) as file:
                del file.attrs[name]
                if value is not None:
                    file.attrs[name] = value
            found = outcome(LOADERS[loader], path)
            # An archive is read without its run's algorithm and seed, and its task only names the dimensions.
            free = ("algorithm", "versions", "seed", "task") if loader == "archive" else ("versions",)
            assert isinstance(found, str) or name in free, f"{name}: {label}"


HOSTILE = {
    "algorithm": [
        {"batch_size": 10**12},
        {"batch_size": -1},
        {"batch_size": "many"},
        {"epochs": 1e300},
        {"buffer_capacity": 2**40},
        {"learning_rate": "NaN"},
        {"name": "evil"},
        {"unknown": 1},
    ],
    "policy": [
        {"hidden": [2**30]},
        {"hidden": [1] * 20_000},
        {"hidden": "no"},
        {"obs_size": 10**15},
        {"kind": "pickle"},
        {"activation": "__import__"},
    ],
}


@pytest.mark.parametrize("loader", LOADERS)
def test_hostile_hyperparameters_cost_nothing(loader, whole, tmp_path):
    path, before = tmp_path / "changed.h5", peak()
    for name, changes in HOSTILE.items():
        for change in changes:
            shutil.copy(whole, path)
            with edited(path) as file:
                stored = json.loads(file.attrs[name])
                file.attrs[name] = np.bytes_(json.dumps({**stored, **change}))
            found = outcome(LOADERS[loader] if name == "policy" else lambda p: ag.Optimizer.load(p, task=TASK), path)
            assert isinstance(found, str), change
    assert peak() - before < 2**30


def bomb(file, name):
    """One chunk of a few kB that would inflate to a gigabyte and more."""
    import zlib

    data = file[name][()]
    squeeze = zlib.compressobj(9)
    stream = b"".join(squeeze.compress(bytes(2**20)) for _ in range(1200)) + squeeze.flush()
    replace(file, name, shape=data.shape, dtype=data.dtype, chunks=data.shape, compression="gzip")
    file[name].id.write_direct_chunk((0,) * data.ndim, stream)


@pytest.mark.parametrize("loader", LOADERS)
def test_a_chunk_that_would_never_end_is_not_followed(loader, whole, tmp_path):
    path, before = tmp_path / "bomb.h5", peak()
    shutil.copy(whole, path)
    with edited(path) as file:
        bomb(file, "archive/first_filled")
    assert "chunk" in outcome(LOADERS[loader], path)
    assert peak() - before < 2**29


@pytest.mark.parametrize("shape", [(), (3, 1)])
def test_columns_of_another_shape_are_refused(shape, whole, tmp_path):
    path = tmp_path / "changed.h5"
    shutil.copy(whole, path)
    with edited(path) as file:
        for name in list(file["history"]):
            replace(file, f"history/{name}", data=np.resize(file[f"history/{name}"][()], shape))
    for load in (ag.load_history, LOADERS["run"]):
        with pytest.raises(ag.FileError, match="should be a column"):
            load(path)


@pytest.mark.slow
def test_a_large_and_mostly_empty_buffer_comes_back(tmp_path):
    """More than its file's size would allow a stranger, but just what its hyperparameters say."""
    from asciime_gym import _reading

    made = ag.Optimizer(ag.AsciiME(batch_size=8, epochs=1, buffer_capacity=40_000), TASK, centroids=16)
    made.fit(evaluations=16, checkpoint=tmp_path / "run.h5")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_reading, "ROOM", 2**20)
        patch.setattr(_reading, "EXPANSION", 1)
        for untrusted in (False, True):
            assert same(ag.Optimizer.load(tmp_path / "run.h5", task=TASK, untrusted=untrusted)._run, made._run)


def test_what_is_not_finite_never_comes_in(tmp_path):
    problem = ag.Problem(policy=TASK.policy, descriptor_low=[-1], descriptor_high=[1], episode_length=2)
    made = ag.Optimizer(ag.MapElites(batch_size=8, sigma1=3e38), problem, centroids=16)
    for _ in range(2):
        genotypes = made.ask()
        made.tell(np.arange(8.0) + made.generation, np.linspace(-1, 1, 8)[:, None])
    assert not np.isfinite(genotypes).all() and made.history["refused"][-1] > 0
    made.save(tmp_path / "run.h5")
    assert np.isfinite(ag.load_archive(tmp_path / "run.h5").genotype).all()


def test_nothing_is_imported_from_the_folder_we_are_in(whole, tmp_path, monkeypatch):
    (tmp_path / "rich.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert len(ag.load_archive(whole, untrusted=True)) > 0


def test_other_versions_are_said(whole, tmp_path):
    path = tmp_path / "older.h5"
    shutil.copy(whole, path)
    with edited(path) as file:
        stored = json.loads(file.attrs["versions"])
        file.attrs["versions"] = np.bytes_(json.dumps({**stored, "jax": "0.1.0"}))
    with pytest.warns(UserWarning, match=r"other versions \(jax 0.1.0 → .*may round otherwise"):
        ag.Optimizer.load(path, task=TASK)


def test_a_missing_hyperparameter_has_to_be_given(whole, tmp_path):
    """As after an upgrade that brings a new one."""
    path = tmp_path / "older.h5"
    shutil.copy(whole, path)
    with edited(path) as file:
        stored = json.loads(file.attrs["algorithm"])
        del stored["clip"]
        file.attrs["algorithm"] = np.bytes_(json.dumps(stored))
    with pytest.raises(ag.FileError, match=r"other hyperparameters.*'clip'.*allow_changes=True"):
        ag.Optimizer.load(path, task=TASK)
    given = ag.AsciiME(batch_size=24, epochs=2, clip=0.7)
    with pytest.raises(ag.FileError, match="allow_changes=True"):
        ag.Optimizer.load(path, task=TASK, algorithm=given)
    assert ag.Optimizer.load(path, task=TASK, algorithm=given, allow_changes=True).algorithm.clip == 0.7


def test_the_buffer_is_never_read_for_an_archive(whole, tmp_path):
    path = tmp_path / "run.h5"
    shutil.copy(whole, path)
    with edited(path) as file:
        del file["state"], file["run"], file["history"], file["archive/elites/keepsake"]
    assert agrees(ag.load_archive(path), path)


HARNESS = """
import json, os, pathlib, resource, sys
import h5py
import numpy as np
import asciime_gym as ag
from asciime_gym._storage import BLOCK, seal
from helpers import Walk
from test_hostile_files import LOADERS, agrees, outcome

whole, path, loader, count = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
data, random = whole.read_bytes(), np.random.default_rng(3)
LOADERS[loader](whole)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcomes = {"refused": 0, "crashed elsewhere": 0, "right": 0, "wrong": 0, "h5py crashed": 0}
for number in range(count):
    wrong = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        place = int(random.integers(BLOCK, BLOCK + 4096) if number % 2 else random.integers(BLOCK, len(data)))
        wrong[place] ^= int(random.integers(1, 256))
    path.write_bytes(wrong)
    seal(path)
    found = outcome(LOADERS[loader], path)
    if isinstance(found, str):
        outcomes["crashed elsewhere" if "crashed the process" in found or "was ended" in found else "refused"] += 1
        continue
    child = os.fork()  # bare h5py, too, may crash
    if not child:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        os._exit(0 if agrees(found, path) else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outcomes["right" if code == 0 else "wrong" if code == 1 else "h5py crashed"] += 1
outcomes["bytes"] = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(json.dumps(outcomes))
"""


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS)
def test_bytes_flipped_by_somebody_who_knows_the_digest(loader, whole, tmp_path):
    """150 files a reader whose digest is right: refused, or loaded as bare h5py reads them; the process goes on."""
    command = [sys.executable, "-W", "ignore", "-c", HARNESS, str(whole), str(tmp_path / "flipped.h5"), loader, "150"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=here)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    print(outcomes)
    assert sum(outcomes.values()) - outcomes["bytes"] == 150
    assert outcomes["refused"] > 30 and outcomes["right"] > 30 and outcomes["wrong"] == 0, outcomes
    assert outcomes["bytes"] < 2**30


CRASHER = "import os, signal, sys; os.kill(os.getpid(), signal.{})"


@pytest.mark.parametrize(("number", "said"), [("SIGSEGV", r"crashed the process"), ("SIGXCPU", "crashed the process")])
def test_a_parser_that_dies_is_a_sentence(number, said, whole, tmp_path, monkeypatch):
    from asciime_gym import _untrusted

    path = tmp_path / "other.h5"
    shutil.copy(whole, path)
    with edited(path) as file:
        file.attrs["written"] = np.bytes_("by somebody else")
    monkeypatch.setattr(_untrusted, "_START", CRASHER.format(number))
    with pytest.raises(ag.FileError, match=rf"{path}: .*{said}"):
        ag.load_archive(path)
    assert len(ag.load_archive(path, untrusted=False)) == len(ag.load_archive(whole))  # which this process wrote
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(ag.FileError, match="untrusted=False"):
        ag.load_archive(path)


def test_a_parser_that_hangs_is_a_sentence(whole, monkeypatch):
    from asciime_gym import _untrusted

    monkeypatch.setattr(_untrusted, "_START", "import time; time.sleep(100)")
    monkeypatch.setattr(_untrusted, "SECONDS", 1)
    with pytest.raises(ag.FileError, match="took over 2 s and was ended"):
        ag.load_archive(whole, untrusted=True)


def test_untrusted_files_are_read_in_another_process(whole, tmp_path):
    live = ag.load_archive(whole)
    archive = ag.load_archive(whole, untrusted=True)
    np.testing.assert_array_equal(archive.genotype, live.genotype)
    assert len(ag.load_history(whole, untrusted=True)) == 3
    loaded = ag.Optimizer.load(whole, task=TASK, untrusted=True)
    assert same(loaded._run, ag.Optimizer.load(whole, task=TASK)._run)
    path = tmp_path / "cut.h5"
    path.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(ag.FileError, match=rf"{path}: not a complete file"):
        ag.load_archive(path, untrusted=True)
    with pytest.raises(ag.FileError, match="no such file"):
        ag.load_archive(tmp_path / "missing.h5", untrusted=True)


def test_the_digest_is_of_everything_after_the_block(whole):
    import hashlib

    data = whole.read_bytes()
    expected = hashlib.sha256(data[BLOCK:]).hexdigest()
    assert contents_digest(whole) == (expected, len(data) - BLOCK)
    assert expected.encode() in data[:BLOCK] and data[BLOCK:].startswith(b"\x89HDF")
    assert seal(whole) == expected and whole.read_bytes() == data
    assert os.path.getsize(whole) == len(data)
