"""The data that is shipped, and the README's commands on it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_gymnasium_env import can_draw

import asciime_gym as ag
from asciime_gym._motion import motion

ROOT = Path(__file__).parent.parent
DATA = ROOT / "data"
STUDIES = sorted((DATA / "study").glob("*.h5"))


def commands() -> list[str]:
    """What the README does with the data, a command a line."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("asciime") and "data/" in line]


@pytest.mark.parametrize("task", ag.TASKS)
def test_an_archive_of_each_task(task):
    path = DATA / f"{task}.h5"
    assert path.stat().st_size < 3_000_000
    archive, history = ag.load_archive(path), ag.load_history(path)
    assert archive.has_policy.sum() == 96 and archive.cells == 1024 and archive.problem["name"] == task
    assert history["evaluations"][-1] >= 100_000 and archive.evaluation.max() < history["evaluations"][-1]
    assert set(archive.operator) == {"iso_line", "ascii"} or set(archive.operator) == {"initial", "iso_line", "ascii"}
    np.testing.assert_allclose(history["qd_score"][-1], archive.qd_score, rtol=1e-5)
    assert len(archive) == round(history["coverage"][-1] * 1024)
    elite = archive.best(with_policy=True)
    action = elite.policy(np.zeros(elite.policy.policy.obs_size))
    assert np.isfinite(action).all() and len(action) == elite.policy.policy.act_size
    places = (archive.descriptor[archive.has_policy] - archive.low) / (archive.high - archive.low)
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(96)
    assert apart.min() > {1: 0.004, 2: 0.05, 4: 0.15}[places.shape[1]]  # well spread


def test_runs_to_compare():
    kinds = {(run.task_name, run.algorithm_name, run.batch_size) for run in map(_source, STUDIES)}
    for algorithm in ("map_elites", "pga_me", "dcrl_me"):
        assert ("walker2d_uni", algorithm, 256) in kinds
    assert len({batch for task, algorithm, batch in kinds if (task, algorithm) == ("hopper_uni", "ascii_me")}) >= 3
    assert sum(path.stat().st_size for path in DATA.rglob("*")) < 40_000_000


def _source(path: Path):
    from asciime_gym.analysis._sources import read

    return read(path)[0]


def test_the_readme_uses_all_of_it():
    text = "\n".join(commands())
    for word in ("info", "plot", "compare", "render", "explore", "export", "--grid", "--descriptor", "--dark"):
        assert word in text, word
    for kind in ("map", "slices", "parallel", "operators", "batch_sizes", "ccdf"):
        assert f"--kind {kind}" in text, kind


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_the_readme_s_commands(command, tmp_path):
    """As typed, in a folder where data/ is what it is in a clone."""
    if "render" in command and not can_draw():
        pytest.skip("MuJoCo can draw off screen neither with EGL nor with OSMesa here")
    shutil.copytree(DATA, tmp_path / "data", ignore=shutil.ignore_patterns("pictures"))
    there = set(tmp_path.rglob("*"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"cwd": tmp_path, "env": {**os.environ, "PATH": path}, "timeout": 900}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    made = [file for file in set(tmp_path.rglob("*")) - there if file.is_file() and not file.name.endswith(".lock")]
    named = re.findall(r"(?:-o|--csv|--small) (\S+)", command)
    assert sorted(str(file.relative_to(tmp_path)) for file in made) == sorted(named)
    assert named or len(done.stdout.splitlines()) > 5
    for file in made:
        assert file.stat().st_size > 500
        if file.suffix in (".png", ".gif"):
            with Image.open(file) as picture:
                assert np.asarray(picture.convert("L")).std() > 5


@pytest.mark.slow
def test_their_elites_move_as_they_did():
    """Rounding may differ between machines; an episode that lasts all 250 steps here and there is the same one."""
    archive = ag.load_archive(DATA / "hopper_uni.h5")
    rows = np.flatnonzero(archive.has_policy)
    moved = motion(archive, rows.tolist())
    assert np.mean(np.abs(moved.steps - archive.steps[rows]) <= 5) > 0.8
