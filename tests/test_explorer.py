"""The explorer's page, apart from a browser: what is in it, and that it says what the archive says."""

import base64
import hashlib
import json
import re
import zlib
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from explorer_pages import HOSTILE, data_of, made_archive, moving_archive
from helpers import Walk
from matplotlib.colors import to_hex, to_rgb

import asciime_gym as ag
from asciime_gym._cli_explore import Explore
from asciime_gym._motion import motion
from asciime_gym.analysis import _cells
from asciime_gym.analysis.explorer import _colours, _layout, _moves, _page, _poses, explore
from asciime_gym.analysis.explorer._progress import Steps

FOLDER = Path(_page.__file__).parent


def test_three_is_the_copy_that_came_from_its_makers():
    lines = (FOLDER / "three/VERSION.txt").read_text().splitlines()
    stated = {name: digest for word, digest, name in (line.split() for line in lines if line.startswith("sha256"))}
    files = {path.name: path for path in (FOLDER / "three").iterdir() if path.name != "VERSION.txt"}
    assert stated == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    revision = re.search(r'const t="(\d+)"', files["three.module.min.js"].read_text())
    assert revision is not None and lines[0].startswith(f"three.js 0.{revision[1]}.")
    assert "MIT" in files["LICENSE"].read_text()


def random_turns(random: np.random.Generator, *shape: int) -> np.ndarray:
    turns = random.normal(size=(*shape, 4))
    return turns / np.linalg.norm(turns, axis=-1, keepdims=True)


def matrices(turns: np.ndarray) -> np.ndarray:
    w, x, y, z = np.moveaxis(turns / np.linalg.norm(turns, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def unpacked(text: str, grain: float, frames: int, parents: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Places and turning matrices of the links, read slowly and with matrices only."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).astype(int)
    low, high = planes.reshape(2, -1)
    folded = low + 256 * high
    changes = np.where(folded % 2, -(folded + 1) // 2, folded // 2).reshape(-1, frames)
    series = iter(np.cumsum(changes, axis=1))
    places, turns = [], []
    for parent in parents:
        place = grain * np.stack([next(series) for _ in range(3)], axis=-1)
        parts = [next(series) / _poses.TURN for _ in range(4 if parent < 0 else 3)]
        if parent >= 0:
            parts.insert(0, np.sqrt(np.maximum(0, 1 - sum(part**2 for part in parts))))
        turn = matrices(np.stack(parts, axis=-1))
        if parent >= 0:
            place = places[parent] + np.einsum("fij,fj->fi", turns[parent], place)
            turn = turns[parent] @ turn
        places.append(place)
        turns.append(turn)
    return np.stack(places, axis=1), np.stack(turns, axis=1)


def test_packed_poses_are_where_they_were():
    random = np.random.default_rng(0)
    frames, parents = 90, [-1, 0, 1, 0, 3]
    position = np.cumsum(random.normal(0, 0.05, (frames, 5, 3)), axis=0).astype(np.float32)
    joints = random_turns(random, frames, 5) + np.eye(4)[0] * 3  # as of joints: not half way round
    rotation = np.zeros((frames, 5, 4))
    for link, parent in enumerate(parents):
        own = joints[:, link] / np.linalg.norm(joints[:, link], axis=1, keepdims=True)
        rotation[:, link] = own if parent < 0 else _poses._times(rotation[:, parent], own)
    rotation *= random.choice([-1.0, 1.0], (frames, 5, 1))  # either sign is the same turn
    text, grain = _poses.packed(position, rotation.astype(np.float32), parents)
    place, turn = unpacked(text, grain, frames, parents)
    np.testing.assert_allclose(place, position, atol=_poses.GRAIN)  # half a grain along each of three axes
    np.testing.assert_allclose(turn, matrices(rotation), atol=0.006)
    assert grain == _poses.GRAIN


def test_packed_poses_may_lead_far():
    position = np.zeros((40, 1, 3), np.float32)
    position[:, 0, 0] = np.linspace(0, 500, 40)
    text, grain = _poses.packed(position, np.tile(np.float32([1, 0, 0, 0]), (40, 1, 1)), [-1])
    place, _ = unpacked(text, grain, 40, [-1])
    np.testing.assert_allclose(place, position, atol=0.51 * 500 / _poses.FARTHEST)


def test_poses_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="finite"):
        _poses.packed(np.full((2, 1, 3), np.nan, np.float32), np.ones((2, 1, 4), np.float32), [-1])


@pytest.mark.parametrize(
    "steps, stride, frames", [(1, 2, [0]), (2, 2, [0, 1]), (5, 2, [0, 2, 4]), (6, 2, [0, 2, 4, 5])]
)
def test_first_and_last_pose_are_kept(steps, stride, frames):
    assert _poses.frames_of(steps, stride).tolist() == frames


def test_cells_of_one_axis_meet_between_their_centres():
    archive = made_archive(1, 16)
    found = _layout.layout(archive)
    centres = archive.centroids[:, 0]
    for place, cell in enumerate(found["order"]):
        low, high = found["edges"][place : place + 2]
        inside = np.linspace(low, high, 7)[1:-1]
        assert (np.abs(inside[:, None] - centres).argmin(axis=1) == cell).all()
    assert (found["edges"][0], found["edges"][-1]) == (0.0, 1.0)


def test_cells_of_two_axes_are_those_of_the_pictures():
    archive = made_archive(2, 64)
    ours, theirs = _layout.layout(archive)["polygons"], _cells.polygons(archive)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.reshape(one, (-1, 2)), other, atol=1e-4)


@pytest.mark.parametrize("dims", [3, 4])
def test_slices_are_those_of_the_pictures(dims):
    archive = made_archive(dims, 64)
    found = _layout.layout(archive)
    labels = np.frombuffer(base64.b64decode(found["labels"]), "<u4")
    labels = labels.reshape(found["rows"], found["levels"], found["pixels"], found["pixels"])
    for row in range(found["rows"]):
        for column in range(found["levels"]):
            fixed = [column, row][: dims - 2]
            np.testing.assert_array_equal(labels[row, column], _cells.slice_cells(archive, fixed, found["levels"]))


def test_fitness_has_the_colours_of_the_pictures():
    viridis = [to_hex(matplotlib.colormaps["viridis"](i / 16)) for i in range(17)]
    np.testing.assert_allclose([to_rgb(c) for c in _colours.FITNESS], [to_rgb(c) for c in viridis], atol=0.01)


def test_the_page_says_what_the_archive_says(tmp_path):
    archive = made_archive(2, 64)
    data = data_of(explore(archive, tmp_path / "page.html"))
    elites = data["elites"]
    np.testing.assert_array_equal(elites["cell"], archive.cell)
    np.testing.assert_array_equal(np.float32(elites["fitness"]), archive.fitness)
    np.testing.assert_array_equal(np.float32(elites["descriptor"]), archive.descriptor)
    np.testing.assert_array_equal([data["operators"][i] for i in elites["operator"]], archive.operator)
    np.testing.assert_array_equal(elites["evaluation"], archive.evaluation)
    np.testing.assert_array_equal(elites["first"], archive.first_filled)
    assert (data["cells"], tuple(data["names"])) == (64, archive.descriptor_names)


def test_sources_of_a_merged_archive_are_named(tmp_path):
    first = ag.Optimizer(ag.MapElites(batch_size=8), Walk(policy=ag.MLP(5, 2)), seed=0, centroids=16)
    second = ag.Optimizer(ag.MapElites(batch_size=8), Walk(policy=ag.MLP(5, 2)), seed=1, centroids=16)
    for name, optimizer in (("first.h5", first), ("second.h5", second)):
        optimizer.fit(evaluations=16, checkpoint=tmp_path / name, progress=False)
    merged = ag.merge([tmp_path / "first.h5", tmp_path / "second.h5"])
    data = data_of(explore(merged, tmp_path / "page.html"))
    assert data["sources"] == ["first.h5", "second.h5"]
    np.testing.assert_array_equal(data["elites"]["source"], merged.source)


def test_names_from_a_file_stay_names(tmp_path):
    archive = made_archive(2, 16, names=(HOSTILE, "y"), operators=("initial", HOSTILE, "ascii"))
    path = explore(archive, tmp_path / "page.html", title=HOSTILE)
    text = path.read_text(encoding="utf-8")
    assert HOSTILE not in text and "<img" not in text
    data = data_of(path)
    assert (data["names"][0], data["operators"][1], data["title"]) == (HOSTILE, HOSTILE, HOSTILE)


def test_the_page_has_nothing_to_fetch(tmp_path):
    text = explore(made_archive(1, 16), tmp_path / "page.html").read_text(encoding="utf-8")
    own = "".join(_page.source(name) for name in (*_page.SCRIPTS, "page.html", "page.css"))
    assert not re.findall(r"https?://|innerHTML|insertAdjacentHTML|document\.write|\bfetch\(|eval\(|@import|url\(", own)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None and policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]


@pytest.mark.parametrize("name", ["page.h5", "page", "page.txt"])
def test_a_page_is_not_written_over_something_else(tmp_path, name):
    with pytest.raises(ValueError, match=r"ends in \.html"):
        explore(made_archive(1, 16), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_an_empty_archive_has_no_page(tmp_path):
    with pytest.raises(ValueError, match="the archive is empty"):
        explore(made_archive(1, 16, fitness=np.full(16, -np.inf)), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_an_unknown_task_has_a_map_and_the_reason_why_it_does_not_move(tmp_path, capsys):
    optimizer = ag.Optimizer(ag.MapElites(batch_size=8), Walk(policy=ag.MLP(5, 2)), centroids=16)
    optimizer.fit(evaluations=16, checkpoint=tmp_path / "walk.h5", progress=False)
    archive = ag.load_archive(tmp_path / "walk.h5")
    data = data_of(explore(archive, tmp_path / "page.html", progress=True))
    assert "can be shown moving" in data["motion"]["why_not"] and len(data["elites"]["cell"]) == len(archive)
    assert "the map only" in capsys.readouterr().err


def test_the_command(tmp_path, capsys):
    optimizer = ag.Optimizer(ag.MapElites(batch_size=8), Walk(policy=ag.MLP(5, 2)), seed=3, centroids=16)
    optimizer.fit(evaluations=16, checkpoint=tmp_path / "walk.h5", progress=False)
    assert Explore(tmp_path / "walk.h5", map_only=True, quiet=True)() == 0
    data = data_of(tmp_path / "walk.html")
    assert "map_elites, seed 3" in data["title"] and "made without" in data["motion"]["why_not"]
    assert "walk.html" in capsys.readouterr().out


@pytest.fixture(scope="module")
def moving(tasks) -> ag.ArchiveView:
    return moving_archive(tasks["hopper_uni"], 24)


@pytest.mark.slow  # plays a robot's episodes
def test_poses_of_the_page_are_those_of_the_episodes(moving, tmp_path):
    path = explore(moving, tmp_path / "page.html")
    found = data_of(path)["motion"]
    poses = re.search(r'id="poses">([^<]*)<', path.read_text(encoding="utf-8"))
    assert poses is not None and found["rows"] == np.flatnonzero(moving.has_policy).tolist()
    moved = motion(moving, found["rows"])
    begin = 0
    for number, end in enumerate(found["ends"]):
        frames = _poses.frames_of(found["lengths"][number], found["stride"])
        place, turn = unpacked(poses[1][begin:end], found["grains"][number], len(frames), found["parents"])
        np.testing.assert_allclose(place, moved.position[number, frames], atol=_poses.GRAIN)
        np.testing.assert_allclose(turn, matrices(moved.rotation[number, frames]), atol=0.006)
        begin = end
    assert found["lengths"] == moved.steps.tolist() and found["stride"] == 2


@pytest.mark.slow  # plays a robot's episodes
def test_too_many_poses_are_thinned_out(moving, monkeypatch):
    whole, pieces = _moves.moves(moving, Steps(False, ""))
    monkeypatch.setattr(_moves, "MOST", sum(map(len, pieces)) // 2)
    thin, fewer = _moves.moves(moving, Steps(False, ""))
    assert thin["stride"] > whole["stride"] and sum(map(len, fewer)) <= _moves.MOST
    assert thin["lengths"] == whole["lengths"]


@pytest.mark.slow
def test_a_page_of_a_full_archive_is_small(tasks, tmp_path):
    path = explore(moving_archive(tasks["ant_uni"], 1024, scale=0.5), tmp_path / "page.html")
    found = data_of(path)["motion"]
    assert len(found["rows"]) == 1023 and np.mean(found["lengths"]) > 100
    assert path.stat().st_size < 15e6
    print(json.dumps({"bytes": path.stat().st_size, "stride": found["stride"]}))
