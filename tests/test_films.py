"""Elites on film: true to their episodes and to time, in every kind of file; and what is said where there is none."""

import json
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

import jax
import numpy as np
import pytest
import tyro
from PIL import Image
from test_gymnasium_env import draws
from test_render import colored
from test_thin import placed

import asciime_gym as ag
from asciime_gym import _film_files, _film_plan, _films
from asciime_gym._captions import _fitting, bar, captioned, tiled
from asciime_gym._cli_render import Render
from asciime_gym._describe import describe_problem
from asciime_gym._films import render
from asciime_gym._motion import Motion, motion
from asciime_gym.tasks._gl import NoRenderer
from asciime_gym.tasks._render import Renderer

DT, LENGTH = 0.008, 100
DESCRIPTORS = [0.0, 0.1, 0.2, 0.45, 0.7, 1.0]
WIDTH, HEIGHT = 96, 72


class Made(NamedTuple):
    archive: ag.ArchiveView
    moved: Motion  # of all of its elites


@pytest.fixture(scope="module")
def made() -> Made:
    """Six policies of the hopper's that fall at different times; one program for all tests."""
    task = ag.make_task("hopper_uni", episode_length=LENGTH)
    archive = placed(DESCRIPTORS, policy=task.policy, problem=json.loads(describe_problem(task)))
    keys = jax.random.split(jax.random.key(1), len(archive))
    strength = np.float32([0.0, 0.5, 1.0, 1.0, 2.0, 4.0])[:, None]
    archive.genotype[:] = strength * np.asarray(jax.vmap(task.policy.init)(keys)) * 4
    moved = motion(archive, range(len(archive)), task)
    archive.steps[:] = moved.steps
    return Made(archive, moved)


def frames(path) -> list[np.ndarray]:
    with Image.open(path) as film:
        return [(film.seek(i), np.asarray(film.convert("RGB")).astype(int))[1] for i in range(film.n_frames)]


def durations(path) -> list[int]:
    with Image.open(path) as film:
        return [(film.seek(i), film.info["duration"])[1] for i in range(film.n_frames)]


def poses(moved: Motion, row: int, steps) -> list[np.ndarray]:
    """An elite as it is at these steps, drawn without any film."""
    with Renderer(moved.task, WIDTH, HEIGHT) as renderer:
        place = lambda step: _films._Place(moved.position[row, step], moved.rotation[row, step])
        return [renderer.frame(_films._Pose(place(step))) for step in steps]


def nearest(picture: np.ndarray, among: list[np.ndarray]) -> int:
    """Which of these a picture of few colours shows; the words in its corner aside."""
    below = np.s_[HEIGHT // 4 : HEIGHT]
    away = [np.abs(picture[below].astype(int) - other[below].astype(int)).mean() for other in among]
    assert min(away) < 4, away
    return int(np.argmin(away))


@draws
def test_a_gif_is_the_best_elites_episode_in_true_speed(made, tmp_path):
    path = render(made.archive, tmp_path / "walk.gif", width=WIDTH, height=HEIGHT)
    best, steps = len(made.archive) - 1, int(made.moved.steps[-1])
    shown = frames(path)
    assert made.archive.best().index == best and shown[0].shape == (HEIGHT + bar(WIDTH), WIDTH, 3)
    times = [*range(0, steps - 1, 5), steps - 1]  # 25 a second
    assert len(shown) == len(times) > 3
    expected = poses(made.moved, best, times)
    assert [nearest(frame, expected) for frame in shown] == [*range(len(times))]
    assert durations(path)[:-1] == [40] * (len(times) - 1) and durations(path)[-1] == 40 + 800


@draws
def test_a_full_size_gif_is_small_and_the_robot_large(made, tmp_path):
    path = render(made.archive, tmp_path / "walk.gif", descriptor=[0.05], seconds=0.4)
    shown = frames(path)
    assert len(shown) == 11 and shown[0].shape == (360 + bar(480), 480, 3)  # 50 steps: every fifth, and the last
    assert path.stat().st_size / len(shown) < 3e6 / 51  # of a whole episode
    rows, _ = np.nonzero(colored(shown[0][:360], "robot"))
    assert np.ptp(rows) > 0.5 * 360


@pytest.mark.slow
@draws
def test_side_by_side_and_the_last_pose_stays(made, tmp_path):
    path = render(made.archive, tmp_path / "grid.gif", grid="3x2", width=WIDTH, height=HEIGHT, stride=10)
    shown, steps = frames(path), made.moved.steps
    high, wide = HEIGHT + bar(WIDTH) + 2, WIDTH + 2
    assert shown[0].shape == (2 * high - 2, 3 * wide - 2, 3) and steps.min() < steps.max() - 20
    assert len(shown) == len(np.unique([*range(0, steps.max(), 10), steps.max() - 1]))
    for row in range(6):  # of one dimension, from left to right and then down
        y, x = row // 3 * high, row % 3 * wide
        tile = [frame[y : y + HEIGHT, x : x + WIDTH] for frame in shown]
        expected = poses(made.moved, row, [0, steps[row] - 11, steps[row] - 1])
        assert nearest(tile[0], expected) == 0 and nearest(tile[-1], expected) == 2
        still = [frame for number, frame in enumerate(tile) if 10 * number >= steps[row] - 1]
        assert all(np.abs(frame - still[0]).max() < 60 and np.abs(frame - still[0]).mean() < 0.5 for frame in still[1:])


@draws
def test_a_strip_of_moments(made, tmp_path):
    row = 1
    path = render(made.archive, tmp_path / "strip.png", descriptor=DESCRIPTORS[row], width=WIDTH, height=HEIGHT)
    (strip,) = frames(path)
    wide = WIDTH + 2
    whole = 8 * wide - 2
    assert strip.shape == (HEIGHT + bar(WIDTH) + bar(whole), whole, 3)
    expected = poses(made.moved, row, np.linspace(0, made.moved.steps[row] - 1, 8).round().astype(int))
    assert [nearest(strip[:, x * wide : x * wide + WIDTH], expected) for x in range(8)] == [*range(8)]
    path = render(made.archive, tmp_path / "strips.png", grid=(2, 1), width=WIDTH, height=HEIGHT)
    assert frames(path)[0].shape[0] == 2 * strip.shape[0] + 2


@draws
def test_an_mp4(made, tmp_path):
    path = render(made.archive, tmp_path / "walk.mp4", width=97, height=73, stride=10, fps=12.5)
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run([_film_files.ffmpeg(), "-i", str(path), *raw], capture_output=True, timeout=100)
    height, steps = 73 + bar(97) + (73 + bar(97)) % 2, int(made.moved.steps[-1])
    shown = np.frombuffer(done.stdout, np.uint8).reshape(-1, height, 98, 3)
    assert len(shown) == len({*range(0, steps, 10), steps - 1}) and b"12.50 fps" in done.stderr
    assert np.abs(shown[0].astype(int) - shown[-1])[HEIGHT // 4 : HEIGHT].max() > 100  # the robot is elsewhere


def test_an_mp4_says_what_to_install(made, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(FileNotFoundError, match=r"apt install ffmpeg.*pip install imageio-ffmpeg.*\.gif"):
        render(made.archive, tmp_path / "walk.mp4")


def test_an_ffmpeg_that_fails_is_quoted(tmp_path):
    pictures = iter([np.zeros((4, 4, 3), np.uint8)] * 3)
    code = "import sys; print('first', file=sys.stderr); sys.exit('no such codec')"
    with pytest.raises(OSError, match=r"walk\.mp4: ffmpeg .* could not write it: no such codec"):
        _film_files._pipe([sys.executable, "-c", code], pictures, tmp_path / "walk.mp4")


WRONG = {
    r"a film's name ends in \.gif, \.mp4 or \.png": {"out": "walk.avi"},
    "1 finite number": {"descriptor": [0.4, 0.6]},
    r"3x2 for example; got '3'": {"grid": "3"},
    r"3x2 for example; got '0x3'": {"grid": "0x3"},
    r"3x2 for example; got \(3, 0\)": {"grid": (3, 0)},
    "needs 12 elites with a policy; the archive has 6": {"grid": "4x3"},
    "not both": {"descriptor": [0.4], "grid": "2x2"},
    "fps must be a number above 0; got 0": {"fps": 0},
    "stride must be a whole number of steps, at least 1; got 0": {"stride": 0},
    "seconds must be a number above 0; got -1": {"seconds": -1},
    "at least 16 wide": {"width": 0},
    "at most 8,192": {"width": 5000, "grid": "2x2"},
    "at most 50 pictures a second, and this would be 125: take a stride of 3 or more": {"stride": 1},
}


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_is_said_before_any_work(said, made, tmp_path, monkeypatch):
    monkeypatch.setattr(_films, "motion", lambda *_: pytest.fail("it was played"))
    options = {**WRONG[said]}
    with pytest.raises(ValueError, match=said):
        render(made.archive, tmp_path / options.pop("out", "walk.gif"), **options)
    assert not os.listdir(tmp_path)


def test_archives_that_cannot_be_filmed(made, tmp_path):
    out, nobody = tmp_path / "walk.gif", placed([0.0, 1.0])
    nobody.genotype[:] = np.nan
    with pytest.raises(ValueError, match="none of the archive's 2 elites has a policy"):
        render(nobody, out)
    for problem, name in (({"kind": "problem", "name": "Problem"}, "Problem"), (None, "an unknown task")):
        with pytest.raises(ValueError, match=f"only the robots of make_task.*hopper_uni.*is of {name}"):
            render(placed([0.0, 1.0], problem=problem), out)
    broken = {"kind": "task", "name": "unicycle", "backend": "spring", "episode_length": 250, "lanes": None}
    for problem, why in ((broken, "unknown task 'unicycle'"), ({"kind": "task"}, "backend")):
        with pytest.raises(ValueError, match=f"robot cannot be made here: .*{why}"):
            render(placed([0.0, 1.0], problem=problem), out)
    with pytest.raises(ValueError, match="the archive is empty"):
        render(ag.Optimizer(ag.MapElites(batch_size=8), ag.make_task("hopper_uni"), centroids=4).archive, out)
    with pytest.raises(ag.FileError, match=r"nothing\.h5"):
        render(tmp_path / "nothing.h5", out)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        (tmp_path / "folder.gif").mkdir()
        render(made.archive, tmp_path / "folder.gif")


def test_only_those_with_a_policy_are_filmed(made):
    thin = made.archive.thinned(3)
    assert np.flatnonzero(thin.has_policy).tolist() == [0, 3, 5]
    assert _film_plan.chosen_rows(thin, [0.2], 1, 1) == [0]
    assert _film_plan.chosen_rows(thin, None, 3, 1) == [0, 3, 5]


def test_tiles_lie_as_their_descriptors_do():
    corners = placed([[0, 0], [0.1, 1], [1, 0.1], [0.9, 0.9], [0.5, 0.5]])
    # The best is in the middle; the corner (0.9, 0.9) is nearest to it.
    assert _film_plan.chosen_rows(corners, None, 2, 2) == [1, 4, 0, 2]
    five = _film_plan.chosen_rows(corners, None, 5, 1)
    assert five == [0, 1, 4, 3, 2]  # one line: by the first dimension


def test_no_renderer_is_a_sentence(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "off")
    with pytest.raises(NoRenderer, match="MUJOCO_GL=off"):
        render(made.archive, tmp_path / "walk.gif")
    made.archive.save(tmp_path / "archive.h5")
    assert tyro.cli(Render, args=[str(tmp_path / "archive.h5"), "-o", str(tmp_path / "walk.gif"), "--quiet"])() == 2
    assert capsys.readouterr().err == "asciime: MUJOCO_GL=off switches rendering off; unset it to draw pictures\n"


@draws
@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png"])
def test_a_film_that_fails_leaves_the_old_one(suffix, made, tmp_path, monkeypatch):
    path = tmp_path / f"walk{suffix}"
    path.write_bytes(b"old")
    whole, count = Renderer.frame, iter(range(99))

    def frame(self, physics):
        if next(count) == 3:
            raise OSError("the driver is gone")
        return whole(self, physics)

    monkeypatch.setattr(Renderer, "frame", frame)
    with pytest.raises(OSError, match="the driver is gone"):
        render(made.archive, path, width=WIDTH, height=HEIGHT)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == [path.name]


@draws
def test_the_command(made, tmp_path, capsys):
    made.archive.thinned(3).save(tmp_path / "archive.h5")
    out = tmp_path / "new" / "walk.gif"
    words = [str(tmp_path / "archive.h5"), "-o", str(out), "--descriptor", "-0.4", "--seconds", "0.1", "--width", "96"]
    assert tyro.cli(Render, args=words)() == 0
    said = capsys.readouterr()
    assert str(out) in said.out.replace("\n", "") and "hopper_uni: compiling" in said.err
    first, expected = frames(out)[0], [poses(made.moved, row, [0])[0] for row in (3, 0, 5)]
    assert first.shape == (72 + bar(96), 96, 3) and nearest(first, expected) == 1
    words = [str(tmp_path / "archive.h5"), "--grid", "2x1", "--seconds", "0.1", "--quiet"]
    assert tyro.cli(Render, args=words)() == 0
    assert (tmp_path / "archive.gif").exists() and capsys.readouterr().err == ""


def test_times_of_a_gif_add_up():
    """A GIF counts hundredths of a second; 30 a second take 3.33 of them each."""
    times = _film_files._durations(31, 30.0)
    assert set(times[:-1]) == {30, 40} and sum(times[:-1]) == 1000


def test_long_episodes_have_fewer_pictures():
    steps = np.array([250, 10])
    assert _film_plan.pace(".gif", 0.05, steps, None, None, None) == (2, pytest.approx(10))
    assert _film_plan.pace(".gif", 0.05, steps, None, None, 5.0) == (1, pytest.approx(20))
    assert _film_plan.pace(".mp4", 0.008, steps, None, None, None) == (2, pytest.approx(62.5))
    assert _film_plan.pace(".gif", 0.008, steps, 10.0, None, None) == (5, 10.0)
    assert _film_plan.moments(".gif", 0.008, np.array([7, 12]), 5, None).tolist() == [[0, 5, 10, 11]] * 2
    assert _film_plan.moments(".gif", 0.1, np.array([7, 12]), 2, 0.5).tolist() == [[0, 2, 4]] * 2
    assert _film_plan.moments(".png", 0.1, np.array([8, 15]), 1, None).tolist() == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 2, 4, 6, 8, 10, 12, 14],
    ]


def test_words_fit_under_the_picture():
    left, right = "(0.12, 0.34, 0.56, 0.78)", "fitness 1,234"
    assert _fitting(f"{left}  {right}", 264, 17).getlength(f"{left}  {right}") <= 264
    picture = np.full((72, 280, 3), 128, np.uint8)
    made = captioned(picture, left, right, "1.00 s")
    line = made[72:].astype(int).sum(axis=2) < 300  # ink
    columns = np.flatnonzero(line.any(axis=0))
    assert made.shape == (72 + bar(280), 280, 3) and 0 < columns[0] < 20 and 260 < columns[-1] < 279
    assert np.diff(columns).max() > 8  # a gap between the two
    assert (made[40:72] == 128).all() and not (made[:30, 200:] == 128).all()
    sheet = tiled([picture, picture + 1, picture + 2], 2)
    assert sheet.shape == (146, 562, 3) and sheet[0, 281].tolist() != [128] * 3 and sheet[145, 0].tolist() == [130] * 3
