"""Recorded trajectories: what goes in comes out, whatever happens to the files in between."""

import contextlib
import errno
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Walk
from hypothesis import given, settings
from hypothesis import strategies as st

import asciime_gym as ag
from asciime_gym import _episodes, _reading, _trajectories
from asciime_gym._episodes import Episode, load_trajectories
from asciime_gym._files import Saved, save_run
from asciime_gym._minari import export_minari
from asciime_gym._storage import write_file
from asciime_gym._trajectories import Part, Recorder, estimate, parts_from, parts_to_arrays

OBS, ACT, DIMS = 3, 2, 2
OPERATORS = ("initial", "iso_line", "ascii")
ATTRIBUTES = {
    "algorithm": json.dumps({"name": "ascii_me"}),
    "task": json.dumps({"name": "walk", "descriptor_low": [0] * DIMS, "descriptor_high": [1] * DIMS}),
    "policy": json.dumps({"kind": "MLP", "obs_size": OBS, "act_size": ACT, "output": "linear"}),
    "operators": json.dumps(OPERATORS),
}


def generation(lengths: list[int], seed: int, time: int = 12, device: bool = False):
    """A generation whose rows live so long: what `Recorder.add` takes, but the counter and the mask."""
    random, batch = np.random.default_rng(seed), len(lengths)
    alive = np.arange(time) < np.array(lengths)[:, None]
    ended = random.random(batch) < 0.5
    draw = lambda *shape: random.standard_normal((batch, time, *shape)).astype(np.float32)
    mask = lambda array: array * alive.reshape(batch, time, *(1,) * (array.ndim - 2))
    put = jnp.asarray if device else np.asarray
    make = ag.Trajectory if device else SimpleNamespace  # the former is of JAX's arrays only
    trajectory = make(
        observation=put(mask(draw(OBS))),
        action=put(mask(draw(ACT))),
        reward=put(mask(draw())),
        alive=put(alive),
        terminated=put(alive & (np.arange(time) == np.array(lengths)[:, None] - 1) & ended[:, None]),
    )
    operator = random.integers(0, len(OPERATORS), batch).astype(np.int32)
    fitness = random.standard_normal(batch).astype(np.float32)
    return put(operator), put(fitness), put(random.random((batch, DIMS)).astype(np.float32)), trajectory


def expected(before: int, rows: tuple, keep) -> list[Episode]:
    """The slow way: a list of episodes."""
    operator, fitness, descriptor, trajectory = rows
    episodes = []
    for row in np.flatnonzero(keep):
        steps = int(trajectory.alive[row].sum())
        ended = bool(trajectory.terminated[row].any())
        episodes.append(
            Episode(
                *(np.array(getattr(trajectory, name)[row, :steps]) for name in ("observation", "action", "reward")),
                terminated=ended,
                truncated=not ended,
                fitness=float(fitness[row]),
                descriptor=np.array(descriptor[row]),
                operator=OPERATORS[int(operator[row])],
                evaluation=before + int(row),
            )
        )
    return episodes


def assert_same(ours, theirs):
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        for name in Episode._fields:
            x, y = getattr(a, name), getattr(b, name)
            assert type(x) is type(y)
            np.testing.assert_array_equal(x, y)
            if isinstance(x, np.ndarray):
                assert x.dtype == y.dtype == np.float32


def write_main(path: Path, parts: list[Part], **attributes: str) -> Path:
    write_file(path, "run", {**ATTRIBUTES, **attributes}, parts_to_arrays(parts))
    return path


def recorded(folder: Path, generations: int = 6, batch: int = 8, flush_every: int = 2) -> tuple[Path, list[Episode]]:
    """A run's file with trajectories in several parts, and what is in them."""
    recorder, episodes = Recorder(folder / "run.h5", "all"), []
    for number in range(generations):
        lengths = [1 + (5 * number + 7 * row) % 12 for row in range(batch)]
        rows = generation(lengths, number)
        recorder.add(number * batch, *rows, np.ones(batch, bool))
        episodes += expected(number * batch, rows, np.ones(batch, bool))
        if number % flush_every == flush_every - 1:
            recorder.flush()
    recorder.flush()
    return write_main(folder / "run.h5", recorder.parts), episodes


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_goes_in_comes_out(data):
    plan = data.draw(
        st.lists(st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=6), max_size=8)
    )
    part_bytes, device = data.draw(st.sampled_from([1, 700, 2**28])), data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_trajectories, "PART_BYTES", part_bytes)
        path, episodes, before = Path(folder) / "run.h5", [], 0
        recorder = Recorder(path, "elites")
        for number, rows in enumerate(plan):
            keep = np.array([chosen for _, chosen in rows])
            made = generation([length for length, _ in rows], number, device=device)
            recorder.add(before, *made, keep)
            episodes += expected(before, made, keep)
            before += len(rows) + data.draw(st.integers(0, 3))  # steps spent inside ask count as evaluations too
            if data.draw(st.booleans()):
                recorder.flush()
            if data.draw(st.booleans()):  # saved, and gone on with
                recorder.flush()
                with _reading.open_file(write_main(path, recorder.parts), "run") as reader:
                    listed = parts_from(reader)
                assert listed == recorder.parts
                recorder = Recorder(path, "elites", listed)
        assert (recorder.pending_bytes > 0) == (sum(part.episodes for part in recorder.parts) < len(episodes))
        recorder.flush()
        assert recorder.pending_bytes == 0
        with load_trajectories(write_main(path, recorder.parts)) as trajectories:
            assert len(trajectories) == len(episodes)
            assert trajectories.steps == sum(episode.steps for episode in episodes)
            numbers = [episode.evaluation for episode in episodes]
            assert trajectories.evaluations.tolist() == numbers
            assert trajectories.table()["operator"].tolist() == [episode.operator for episode in episodes]
            assert trajectories.table()["descriptor"].shape == (len(episodes), DIMS)
            assert_same(trajectories, episodes)
            for place in data.draw(st.permutations(range(len(episodes)))):
                assert_same([trajectories.episode(numbers[place])], [episodes[place]])
            assert [number for number in range(before + 1) if number in trajectories] == numbers
        assert len(list(Path(folder).iterdir())) == 1 + len(recorder.parts)


def test_layout_of_a_part(tmp_path):
    _, episodes = recorded(tmp_path)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["run.h5", *(f"run.trajectories-00000{i}.h5" for i in (1, 2, 3))]
    with h5py.File(tmp_path / names[1]) as file:
        assert set(file) == {"steps", "episodes"} and file.attrs["record"] == b"all"
        kinds = {"evaluation": "i8", "start": "i8", "length": "i4", "terminated": "u1", "fitness": "f4",
                 "descriptor": "f4", "operator": "i4"}  # fmt: skip
        assert {name: item.dtype for name, item in file["episodes"].items()} == kinds
        assert {name: item.dtype for name, item in file["steps"].items()} == dict.fromkeys(_trajectories.STEPS, "f4")
        for group in file.values():
            for item in group.values():
                assert item.maxshape[0] is None and item.chunks
                assert (item.compression, item.compression_opts, item.shuffle, item.fletcher32) == (
                    "gzip",
                    1,
                    True,
                    True,
                )
                assert len(item.attrs["description"]) > 8
        steps = sum(episode.steps for episode in episodes[:16])
        assert file["steps/observation"].shape == (steps, OBS)
        third = slice(file["episodes/start"][3], file["episodes/start"][3] + file["episodes/length"][3])
        np.testing.assert_array_equal(file["steps/action"][third], episodes[3].action)


def test_what_is_held_is_a_copy(tmp_path):
    rows = generation([3, 5], 0)
    episodes = expected(0, rows, [True, True])
    recorder = Recorder(tmp_path / "run.h5", "all")
    recorder.add(0, *rows, [True, True])
    for array in (*rows[:3], *(getattr(rows[3], name) for name in ("observation", "action", "reward"))):
        array[:] = 0
    recorder.flush()
    assert_same(load_trajectories(write_main(tmp_path / "run.h5", recorder.parts)), episodes)


def test_rows_that_are_not_finite_stay_out(tmp_path):
    rows = generation([4] * 7, 0)
    operator, fitness, descriptor, trajectory = rows
    fitness[0], descriptor[1, 1], trajectory.observation[2, 3, 0] = np.nan, np.inf, np.nan
    trajectory.action[3, 0, 1], trajectory.reward[4, 2], trajectory.reward[5, 4] = (
        np.inf,
        -np.inf,
        np.nan,
    )  # 5: after its end
    recorder = Recorder(tmp_path / "run.h5", "all")
    recorder.add(100, *rows, np.ones(7, bool))
    recorder.flush()
    trajectories = load_trajectories(write_main(tmp_path / "run.h5", recorder.parts))
    assert trajectories.evaluations.tolist() == [105, 106]
    recorder.add(200, operator, np.full(7, np.nan), descriptor, trajectory, np.ones(7, bool))
    assert recorder.flush() == recorder.parts and len(recorder.parts) == 1


def test_order_and_mode_are_checked(tmp_path):
    with pytest.raises(ValueError, match='"elites", "all" or None'):
        Recorder(tmp_path / "run.h5", "some")  # type: ignore
    recorder = Recorder(tmp_path / "run.h5", "all")
    rows, both = generation([2, 3], 0), np.ones(2, bool)
    recorder.add(10, *rows, both)
    for _ in range(2):  # held, then written
        with pytest.raises(ValueError, match="each once: got 11 after 11"):
            recorder.add(11, *rows, both)
        recorder.flush()
    recorder.add(12, *rows, both)
    assert "1 parts" in repr(recorder)


def test_only_the_chunks_of_an_episode_are_read(tmp_path, monkeypatch):
    """Every byte that HDF5 asks the file for is noted, and held against where the chunks are."""
    monkeypatch.setattr("asciime_gym._storage.CHUNK", 2**12)
    recorder, episodes = Recorder(tmp_path / "run.h5", "all"), []
    for number in range(40):
        rows = generation([200 + row for row in range(16)], number, time=250)
        recorder.add(number * 16, *rows, np.ones(16, bool))
        episodes += expected(number * 16, rows, np.ones(16, bool))
    part = tmp_path / recorder.flush()[0].name
    path = write_main(tmp_path / "run.h5", recorder.parts)
    chunks = {}
    with h5py.File(part) as file:
        for name in ("observation", "action", "reward"):
            dataset = file[f"steps/{name}"]
            for i in range(dataset.id.get_num_chunks()):
                info = dataset.id.get_chunk_info(i)
                rows = range(info.chunk_offset[0], info.chunk_offset[0] + dataset.chunks[0])
                chunks[name, rows] = range(info.byte_offset, info.byte_offset + info.size)
    noted = []

    class Noting:
        def __init__(self, raw):
            self.raw = raw

        def readinto(self, buffer):
            noted.append(range(self.raw.tell(), self.raw.tell() + len(buffer)))
            return self.raw.readinto(buffer)

        def __getattr__(self, name):
            return getattr(self.raw, name)

    opened = _reading._opened

    @contextlib.contextmanager
    def noting(path):
        with opened(path) as raw:
            yield Noting(raw)

    monkeypatch.setattr(_reading, "_opened", noting)
    overlap = lambda a, b: a.start < b.stop and b.start < a.stop
    touched = lambda: {key for key, place in chunks.items() if any(overlap(place, read) for read in noted)}
    with load_trajectories(path) as trajectories:
        start = dict(zip(trajectories.evaluations.tolist(), trajectories._index(0).start.tolist(), strict=True))
        for wanted in (333, 17, 639):
            noted.clear()
            episode = trajectories.episode(wanted)
            assert_same([episode], [episodes[wanted]])
            steps = range(start[wanted], start[wanted] + episode.steps)
            assert touched() == {key for key in chunks if overlap(key[1], steps)}
            assert 3 <= len(touched()) < len(chunks) / 50
            assert sum(map(len, noted)) < part.stat().st_size / 20  # HDF5's own index of the chunks among it
        noted.clear()
        assert len(list(trajectories)) == 640
        assert touched() == set(chunks)  # so the places of the chunks are right


def test_each_part_is_verified_once(tmp_path, monkeypatch):
    path, episodes = recorded(tmp_path)
    verified, sealed = [], _reading._sealed
    monkeypatch.setattr(_reading, "_sealed", lambda path, raw: verified.append(path.name) or sealed(path, raw))
    with load_trajectories(path) as trajectories:
        assert len(trajectories) == 48 and trajectories.steps and verified == ["run.h5"]  # parts only when needed
        for evaluation in (40, 3, 41, 5, 3):
            assert_same([trajectories.episode(evaluation)], [episodes[evaluation]])
        assert verified == ["run.h5", "run.trajectories-000003.h5", "run.trajectories-000001.h5"]
        list(trajectories), list(trajectories)
        assert len(verified) == 4


def test_episodes_may_be_read_for_ever_from_any_number_of_parts(tmp_path, monkeypatch):
    path, episodes = recorded(tmp_path, generations=12, flush_every=2)
    monkeypatch.setattr(_reading, "ROOM", 10_000)
    monkeypatch.setattr(_reading, "EXPANSION", 0)
    monkeypatch.setattr(_episodes, "_OPEN", 2)
    monkeypatch.setattr(_episodes, "_BLOCK", 20)
    random = np.random.default_rng(0)
    with load_trajectories(path) as trajectories:
        for place in (*random.integers(0, len(episodes), 200), *[5] * 300):
            assert_same([trajectories.episode(place)], [episodes[place]])
            assert len(trajectories._files) <= 2
        assert_same(trajectories, episodes)
    assert not trajectories._files
    assert_same(trajectories, episodes)  # closed is not gone


def test_the_runs_own_arrays_are_not_read(tmp_path, monkeypatch):
    path, _ = recorded(tmp_path)
    with _reading.open_file(path, "run") as reader:
        parts = parts_from(reader)
    state = {"state/items/observation": np.zeros((100, 7)), "archive/centroids": np.zeros((4, 2))}
    write_file(path, "run", dict(ATTRIBUTES), parts_to_arrays(parts) | state)
    read, dataset = set(), _reading.Reader._dataset
    monkeypatch.setattr(
        _reading.Reader,
        "_dataset",
        lambda self, name, *args: read.add(name.split("/")[0]) or dataset(self, name, *args),
    )
    load_trajectories(path).episode(3)
    assert read == {"trajectories", "episodes", "steps"}


def test_an_orphan_is_written_over(tmp_path):
    path, rows, both = tmp_path / "run.h5", generation([2, 3], 0), np.ones(2, bool)
    first = Recorder(path, "all")
    first.add(0, *rows, both)
    listed = first.flush()
    write_main(path, listed)
    first.add(2, *rows, both)
    first.flush()  # and killed before the main file was saved
    assert (tmp_path / "run.trajectories-000002.h5").exists()
    assert load_trajectories(path).evaluations.tolist() == [0, 1]
    again, other = Recorder(path, "all", listed), generation([5, 6], 1)
    again.add(2, *other, both)
    write_main(path, again.flush())
    assert_same(load_trajectories(path), [*expected(0, rows, both), *expected(2, other, both)])
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    "fault", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("Can't decrement id")]
)
def test_a_failed_write_keeps_what_is_held(tmp_path, monkeypatch, fault):
    recorder, rows, both = Recorder(tmp_path / "run.h5", "all"), generation([2, 3], 0), np.ones(2, bool)
    monkeypatch.setattr(_trajectories, "PART_BYTES", 1)
    for number in range(3):
        recorder.add(2 * number, *rows, both)
    calls = []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) in (2, 3):
            raise fault
        return write_file(*args, **kwargs)

    monkeypatch.setattr(_trajectories, "write_file", failing)
    held = recorder.pending_bytes
    for _ in range(2):
        with pytest.raises(OSError):
            recorder.flush()
        assert len(recorder.parts) == 1 and recorder.pending_bytes == held * 2 // 3
    recorder.add(6, *rows, both)
    assert [part.first for part in recorder.flush()] == [0, 2, 4, 6]
    episodes = [episode for before in (0, 2, 4, 6) for episode in expected(before, rows, both)]
    assert_same(load_trajectories(write_main(tmp_path / "run.h5", recorder.parts)), episodes)


def test_a_checkpoint_lists_what_was_there_when_it_was_taken(tmp_path):
    recorder, rows, both = Recorder(tmp_path / "run.h5", "all"), generation([2, 3], 0), np.ones(2, bool)
    for number in range(4):
        recorder.add(2 * number, *rows, both)
    assert [part.last for part in recorder.flush(before=4)] == [3]
    assert [part.last for part in recorder.flush()] == [3, 7]
    assert [part.last for part in recorder.flush(before=4)] == [3]
    assert recorder.flush(before=0) == []


def test_one_thread_adds_while_another_flushes(tmp_path):
    recorder, episodes, done = Recorder(tmp_path / "run.h5", "all"), [], threading.Event()

    def flush():
        while not done.is_set():
            recorder.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for number in range(40):
            rows = generation([3, 1, 4], number)
            recorder.add(3 * number, *rows, np.ones(3, bool))
            episodes += expected(3 * number, rows, np.ones(3, bool))
    finally:
        done.set()
        thread.join()
    recorder.flush()
    assert_same(load_trajectories(write_main(tmp_path / "run.h5", recorder.parts)), episodes)


def test_errors_of_the_user(tmp_path):
    path, _ = recorded(tmp_path)
    trajectories = load_trajectories(path)
    for evaluation in (-1, 48, 10**12):
        with pytest.raises(LookupError, match=r"was not recorded.*entered the archive"):
            trajectories.episode(evaluation)
    with pytest.raises(TypeError):  # our own, or in the tests the type checker's
        trajectories.episode(1.5)  # type: ignore
    with pytest.raises(TypeError, match="expected an elite"):
        trajectories.of(3)
    assert "48 episodes" in repr(trajectories) and "3 parts" in repr(trajectories)
    assert "evaluation 3" in repr(trajectories.episode(3))
    none = load_trajectories(write_main(tmp_path / "none.h5", []))
    assert len(none) == none.steps == len(none.evaluations) == 0 and list(none) == [] and 3 not in none
    assert none.table()["descriptor"].shape == (0, DIMS)
    assert "none recorded" in repr(none)
    with pytest.raises(LookupError, match="record_trajectories="):
        none.episode(0)
    with pytest.raises(ag.FileError, match="no such file"):
        load_trajectories(tmp_path / "missing.h5")


GOOD = Part("run.trajectories-000001.h5", "0" * 64, 2, 5, 0, 1)


@pytest.mark.parametrize(
    "parts",
    [
        *([GOOD._replace(name=name)] for name in (
            "/etc/run.trajectories-000001.h5", "../run.trajectories-000001.h5", "a/run.trajectories-000001.h5",
            "a\\run.trajectories-000001.h5", "a\x00run.trajectories-000001.h5", "..", ".", "", "run.h5",
            "run.trajectories-000002.h5", "run.trajectories-1.h5", "run.trajectories-000001.h5/x",
            "run.trajectories-00000١.h5",
        )),
        *([GOOD._replace(digest=digest)] for digest in ("", "0" * 63, "0" * 65, "g" * 64, "A" * 64)),
        *([GOOD._replace(**change)] for change in (
            {"episodes": 0}, {"episodes": -1}, {"episodes": 3}, {"steps": 1}, {"first": -1}, {"first": 1}, {"last": 0},
        )),
        [GOOD, GOOD], [GOOD, GOOD._replace(name="run.trajectories-000002.h5")],
    ],
)  # fmt: skip
def test_hostile_lists_of_parts_are_refused(tmp_path, parts):
    with pytest.raises(ag.FileError, match=r"run\.h5: row [01] of trajectories"):
        load_trajectories(write_main(tmp_path / "run.h5", parts))


def test_lists_of_parts_that_do_not_fit_are_refused(tmp_path):
    arrays = parts_to_arrays([GOOD])
    for name in arrays:
        for hostile in (np.zeros(3), np.zeros((1, 1), arrays[name].dtype), None):
            wrong = {key: value for key, value in arrays.items() if key != name}
            wrong |= {} if hostile is None else {name: hostile}
            write_file(tmp_path / "run.h5", "run", dict(ATTRIBUTES), wrong)
            with pytest.raises(ag.FileError):
                load_trajectories(tmp_path / "run.h5")


def test_parts_that_are_not_the_listed_ones_are_refused(tmp_path):
    path, episodes = recorded(tmp_path)
    second = tmp_path / "run.trajectories-000002.h5"
    good = second.read_bytes()

    def refused(match: str):
        with load_trajectories(path) as trajectories:
            assert_same([trajectories.episode(3)], [episodes[3]])  # the others are as they were
            with pytest.raises(ag.FileError, match=match):
                trajectories.episode(20)
            with pytest.raises(ag.FileError, match=match):
                list(trajectories)

    second.unlink()
    refused("run.trajectories-000002.h5: there is no such file")
    second.mkdir()
    refused("run.trajectories-000002.h5: a folder")
    second.rmdir()
    second.write_bytes((tmp_path / "run.trajectories-000003.h5").read_bytes())
    refused("run.trajectories-000002.h5: not the part that run.h5 lists")
    second.write_bytes(path.read_bytes())
    refused("run.trajectories-000002.h5: its format is")
    for place in (0, 30, 600, len(good) // 2, len(good) - 1):
        second.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        refused("run.trajectories-000002.h5")
    second.write_bytes(good[:-9])
    refused("not a complete file")
    second.write_bytes(good)
    assert_same(load_trajectories(path), episodes)


def test_parts_that_contradict_themselves_are_refused(tmp_path):
    """With a digest that is right: whoever made it may have made it to mislead."""
    recorder, rows, all_ = Recorder(tmp_path / "run.h5", "all"), generation([2, 3, 4], 0), np.ones(3, bool)
    recorder.add(5, *rows, all_)
    (part,) = recorder.flush()
    with h5py.File(tmp_path / part.name) as file:
        good = {f"{group}/{name}": file[group][name][()] for group in file for name in file[group]}
    huge = np.iinfo(np.int64).max
    hostile = {
        "episodes/evaluation": ([5, 5, 7], [5, 7, 6], [4, 6, 7], [5, -huge, 7], [5, huge, 7]),
        "episodes/start": ([0, 2, 6], [1, 2, 5], [0, -huge, 5], [0, 2, huge]),
        "episodes/length": ([2, 3, 5], [0, 5, 4], [-1, 6, 4], [2**31 - 1, 3, 4]),
        "episodes/terminated": ([0, 1, 2],),
        "episodes/fitness": ([0, np.nan, 0], [0, 0, np.inf]),
        "episodes/operator": ([0, 1, 3], [-1, 0, 0]),
    }
    wrong = [{name: np.array(values, good[name].dtype)} for name, lists in hostile.items() for values in lists]
    wrong += [{"episodes/descriptor": good["episodes/descriptor"][:, :1]}, {"steps/reward": good["steps/reward"][:-1]}]
    wrong += [
        {"steps/observation": good["steps/observation"][:, :2]},
        {"steps/action": np.full((9, ACT), np.nan, "f4")},
    ]
    wrong += [{name: array.astype(np.float64)} for name, array in good.items()]

    def load(arrays: dict):
        digest = write_file(tmp_path / part.name, "trajectories", {"record": "all"}, arrays, resizable=True)
        return load_trajectories(write_main(tmp_path / "run.h5", [part._replace(digest=digest)]))

    assert_same(load(good), expected(5, rows, all_))
    for change in wrong:
        with pytest.raises(ag.FileError, match=r"run\.trajectories-000001\.h5"):
            list(load(good | change))
    for name in good:
        with pytest.raises(ag.FileError, match=f"{name} is missing"):
            list(load({key: array for key, array in good.items() if key != name}))


def test_every_elites_episode_is_its_own(tmp_path):
    """A run driven by hand: what was recorded of an elite is what its policy did, and gave its fitness."""
    task = Walk()
    optimizer = ag.Optimizer(ag.AsciiME(batch_size=24, epochs=3), task, centroids=64, seed=3)
    recorder = Recorder(tmp_path / "walk.h5", "elites")
    for _ in range(5):
        before, genotypes = optimizer.evaluations, optimizer.ask()
        evaluation = task.evaluate(genotypes, optimizer.evaluation_key, life=optimizer.life)
        operator = optimizer._pending("test")[0].operator
        feedback = optimizer.tell(evaluation.fitness, evaluation.descriptor, evaluation.trajectory)
        recorder.add(before, operator, evaluation.fitness, evaluation.descriptor, evaluation.trajectory, feedback.added)
    parts = tuple(recorder.flush(before=optimizer.evaluations))
    save_run(tmp_path / "walk.h5", Saved(optimizer.algorithm, task, 3, optimizer._run, optimizer.history, parts))
    trajectories, archive = load_trajectories(tmp_path / "walk.h5"), ag.load_archive(tmp_path / "walk.h5")
    assert len(archive) > 10 and len(trajectories) >= len(archive)
    assert len(trajectories) == sum(
        optimizer.history[name].sum() for name in optimizer.history.columns if "added" in name
    )
    for elite in archive:
        episode = trajectories.of(elite)
        assert (episode.evaluation, episode.steps, episode.fitness) == (elite.evaluation, elite.steps, elite.fitness)
        assert episode.operator == elite.operator
        np.testing.assert_array_equal(episode.descriptor, elite.descriptor)
        np.testing.assert_allclose(episode.reward.sum(), elite.fitness, rtol=1e-5)
        np.testing.assert_allclose(elite.policy(episode.observation), episode.action, rtol=1e-4, atol=1e-5)
        assert episode.terminated or episode.steps == task.episode_length
    stranger = archive[0]
    stranger.fitness += 1
    with pytest.raises(ValueError, match="another run's"):
        trajectories.of(stranger)


def test_a_policy_of_the_users_own_and_another_folder(tmp_path, monkeypatch):
    path, episodes = recorded(tmp_path)
    with _reading.open_file(path, "run") as reader:
        parts = parts_from(reader)
    write_main(path, parts, policy=json.dumps({"kind": "custom", "type": "Mine", "size": 7}))
    monkeypatch.chdir(tmp_path)
    trajectories = load_trajectories("run.h5")
    monkeypatch.chdir("/")
    assert_same(trajectories, episodes)


def test_estimate():
    problem = ag.Problem(policy=ag.MLP(27, 8), descriptor_low=[0], descriptor_high=[1], episode_length=250)
    everything = estimate(problem, "all", 100_000)
    assert everything.bytes == 100_000 * (250 * (27 + 8 + 1) * 4 + 33)
    assert everything.text == (
        "trajectories of all: up to 36 kB an episode, 3.6 GB for 100,000 evaluations; less where episodes end early"
    )
    some = estimate(problem, "elites", 100_000, elites_share=0.1)
    assert some.bytes == round(everything.bytes * 0.1) and "if 10 % of them enter the archive" in some.text
    assert estimate(problem, "all", None).bytes * 100_000 == everything.bytes


# Minari ------------------------------------------------------------------------------------------------------


@pytest.fixture
def minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return pytest.importorskip("minari")


@pytest.mark.parametrize("output", ["linear", "tanh"])
def test_minari_opens_and_iterates(minari, tmp_path, output):
    _, episodes = recorded(tmp_path)
    path = tmp_path / "run.h5"
    with _reading.open_file(path, "run") as reader:
        parts = parts_from(reader)
    policy = json.loads(ATTRIBUTES["policy"]) | {"output": output}
    made = export_minari(write_main(path, parts, policy=json.dumps(policy)), "mine/walk-v0", author="me")
    loaded = minari.load_dataset("mine/walk-v0")
    assert len(made) == len(loaded) == len(episodes) and loaded.total_steps == sum(e.steps for e in episodes)
    bound = 1 if output == "tanh" else np.inf
    assert loaded.action_space.shape == (ACT,) and (loaded.action_space.high == bound).all()
    assert loaded.observation_space.shape == (OBS,) and (loaded.observation_space.low == -np.inf).all()
    assert loaded.observation_space.dtype == loaded.action_space.dtype == np.float32
    for ours, theirs in zip(episodes, loaded.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(theirs.observations, [*ours.observation, ours.observation[-1]])
        np.testing.assert_array_equal(theirs.actions, ours.action)
        np.testing.assert_array_equal(theirs.rewards, ours.reward)
        assert theirs.observations.dtype == theirs.actions.dtype == np.float32
        assert theirs.terminations.tolist() == [False] * (ours.steps - 1) + [ours.terminated]
        assert theirs.truncations.tolist() == [False] * (ours.steps - 1) + [ours.truncated]
        assert f"total_steps={ours.steps}" in repr(theirs)
    for ours, said in zip(episodes, loaded.storage.get_episode_metadata(range(len(episodes))), strict=True):
        assert (said["evaluation"], said["fitness"], said["operator"]) == (ours.evaluation, ours.fitness, ours.operator)
        np.testing.assert_array_equal(said["descriptor"], ours.descriptor)
    metadata = loaded.storage.metadata
    assert metadata["algorithm_name"] == "ascii_me" and metadata["author"] == {"me"}
    assert "a second time" in metadata["description"] and "walk" in metadata["description"]


def test_minari_refuses(minari, tmp_path, monkeypatch):
    path, _ = recorded(tmp_path)
    export_minari(path, "walk-v0")
    with pytest.raises(ValueError, match="already"):
        export_minari(path, "walk-v0")
    assert len(minari.load_dataset("walk-v0")) == 48
    for name in ("walk", "", "../walk-v0", "a b-v0", "/walk-v0"):
        with pytest.raises(ValueError, match="name with a version"):
            export_minari(path, name)
    with pytest.raises(ValueError, match=r"fit\(checkpoint=…, record_trajectories="):
        export_minari(write_main(tmp_path / "none.h5", []), "none-v0")
    with pytest.raises(Exception, match="Nowhere"):
        export_minari(path, "nowhere-v0", env_id="Nowhere-v0")
    (tmp_path / "run.trajectories-000003.h5").unlink()
    with pytest.raises(ag.FileError, match="there is no such file"):
        export_minari(path, "half-v0")
    assert set(minari.list_local_datasets()) == {"walk-v0"}  # and nothing half made
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r"pip install 'asciime_gym\[minari\]'"):
        export_minari(path, "walk-v1")


def test_minari_does_not_hold_all_episodes(minari, tmp_path, monkeypatch):
    path, _ = recorded(tmp_path)
    storage = sys.modules["minari.dataset._storages.hdf5_storage"].HDF5Storage
    handed, update = [], storage.update_episodes
    monkeypatch.setattr(storage, "update_episodes", lambda self, given: handed.append(given) or update(self, given))
    export_minari(path, "walk-v0")
    assert [hasattr(given, "__next__") for given in handed] == [True]
