"""The files in scripts/examples, and what else in scripts a user may run, at reduced size."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import asciime_gym as ag

SCRIPTS = Path(__file__).parent.parent / "scripts"


def run(script: str, *options: str, folder: Path) -> str:
    """What a script prints; it works in a folder of its own."""
    command = [sys.executable, str(SCRIPTS / script), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_here():
    names = {path.name for path in (SCRIPTS / "examples").glob("*.py")}
    assert names == {"ask_tell_numpy.py", "brax_by_hand.py", "dask_cluster.py", "hopper_v5.py"}


def test_ask_tell_numpy(tmp_path):
    out = run("examples/ask_tell_numpy.py", "--generations", "25", "--batch-size", "64", folder=tmp_path)
    archive = ag.load_archive(tmp_path / "runs" / "arm.h5")
    assert archive.coverage > 0.5 and str(archive) in out


@pytest.mark.slow
def test_hopper_v5(tmp_path):
    options = ["--batch-size", "8", "--episode-length", "30", "--algorithm", "map_elites"]
    run("examples/hopper_v5.py", "--evaluations", "16", *options, folder=tmp_path)
    out = run("examples/hopper_v5.py", "--evaluations", "24", *options, folder=tmp_path)  # goes on
    assert "3 generations, 24 evaluations" in out
    archive = ag.load_archive(tmp_path / "runs" / "hopper_v5.h5")
    touching, height = archive.descriptor.T
    assert ((touching >= 0) & (touching <= 1)).all() and ((height > 0.05) & (height < 0.5)).all()
    assert len(archive) > 2 and touching.std() > 0


@pytest.mark.slow
def test_brax_by_hand(tmp_path):
    out = run("examples/brax_by_hand.py", "--robots", "8", "--steps", "60", folder=tmp_path)
    standing = [int(count) for count in re.findall(r"(\d+) of 8 stand", out)]
    assert len(standing) == 3 and standing[0] == 8 and standing[-1] < 8


@pytest.mark.slow
def test_dask_cluster(tmp_path):
    out = run("examples/dask_cluster.py", "--generations", "12", "--batch-size", "32", folder=tmp_path)
    archive = ag.load_archive(tmp_path / "runs" / "boat.h5")
    assert archive.coverage > 0.05 and str(archive) in out
    assert set(archive.operator) >= {"ascii", "iso_line"}


@pytest.mark.slow
def test_gymnasium_study(tmp_path):
    options = ["--seeds", "0", "--batch-size", "10", "--episode-length", "40"]
    out = run("gymnasium_study.py", "--evaluations", "20", *options, folder=tmp_path)
    files = {path: path.read_bytes() for path in (tmp_path / "runs" / "hopper_v5").glob("*.h5")}
    assert len(files) == 2 and (tmp_path / "data" / "pictures" / "hopper_v5.png").stat().st_size > 10_000
    again = run("gymnasium_study.py", "--evaluations", "20", *options, folder=tmp_path)  # nothing is left to do
    assert again.count("; 0 evaluations in") == 2 and out.splitlines()[-6:] == again.splitlines()[-6:]
    assert all(path.read_bytes() == before for path, before in files.items())
    rows = re.findall(r"\| (ASCII-ME|MAP-Elites) \| 0 \| 20 \| ([\d,]+) \|", out)
    assert [name for name, _ in rows] == ["ASCII-ME", "MAP-Elites"]


@pytest.mark.slow
def test_study_and_what_a_critic_knows(tmp_path):
    small = tmp_path / "small"
    options = ["--tasks", "hopper_uni", "--seeds", "0", "--batch-size", "32", "--folder", str(tmp_path)]
    options += ["--small", str(small), "--quiet"]
    out = run("study.py", "--evaluations", "64", "--algorithms", "pga_me", *options, folder=tmp_path)
    file = tmp_path / "hopper_uni_pga_me_32_0.h5"
    archive, before = ag.load_archive(file), file.read_bytes()
    assert f"| hopper_uni | pga_me | 32 | 0 | 64 | {archive.qd_score:,.0f} |" in out
    assert len(ag.load_history(small / file.name)) == 2 and ag.load_archive(small / file.name).has_policy.sum() == 1
    again = run("study.py", "--evaluations", "64", "--algorithms", "pga_me", *options, folder=tmp_path)
    assert again == out and file.read_bytes() == before  # nothing is left to do
    rows = re.findall(
        r"^\| (elites|policy gradient|greedy actor) \| (\d+)", run("critic.py", str(file), folder=tmp_path), re.M
    )
    assert [name for name, _ in rows] == ["elites", "policy gradient", "greedy actor"]
