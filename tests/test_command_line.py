"""The command line, as it is typed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import Walk, edited

import asciime_gym as ag
from asciime_gym import __main__ as command_line
from asciime_gym._flags import argument_help


def asciime(*words, **options) -> subprocess.CompletedProcess:
    """In a process of its own, as a user's shell would; with its own width, so that words are not cut."""
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "asciime_gym", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        **options,
    )


@pytest.fixture
def small(monkeypatch):
    """`asciime run` on a task that compiles in a second; everything else is real."""
    monkeypatch.setattr(command_line, "make_task", lambda name, policy, **_: Walk(policy=policy(5, 2)))
    monkeypatch.setattr(command_line, "_CONSOLE", command_line.Console(width=200))
    load = ag.Optimizer.load
    monkeypatch.setattr(command_line.Optimizer, "load", lambda path: load(path, task=Walk(policy=ag.MLP(5, 2))))
    return command_line.main


RUN = ["run", "--task", "hopper_uni", "--batch-size", "16", "--epochs", "2", "--centroids", "32", "--seed", "3"]


def test_run_info_resume_plot(small, tmp_path, capsys):
    path = tmp_path / "new" / "run.h5"
    assert small([*RUN, "--evaluations", "48", "--out", str(path)]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"ascii_me on walk, seed 3", out) and "QD score" in out and str(path) in out
    assert "compiling" in err
    assert small(["info", str(path)]) == 0
    out = capsys.readouterr().out
    for word in ("batch_size=16", "epochs=2", "seed", "48 in", "of 32 cells", "jax"):
        assert word in out
    assert small(["resume", str(path), "--evaluations", "80", "--quiet"]) == 0
    assert ag.load_history(path)["evaluations"].tolist() == [16, 32, 48, 64, 80]
    whole = ag.Optimizer(ag.AsciiME(batch_size=16, epochs=2), Walk(policy=ag.MLP(5, 2)), seed=3, centroids=32)
    whole.fit(evaluations=80)
    np.testing.assert_array_equal(ag.load_archive(path).genotype, whole.archive.genotype)
    assert small(["plot", str(path)]) == 0
    assert (tmp_path / "new" / "run.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
def test_record_info_export(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    path, csv = tmp_path / "run.h5", tmp_path / "elites.csv"
    assert small([*RUN, "--evaluations", "48", "--out", str(path), "--record-trajectories", "all"]) == 0
    assert "trajectories of all: up to" in capsys.readouterr().err
    assert small(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "48 episodes" in out and "schema 2" in out and "sha256" in out
    assert small(["export", str(path), "--csv", str(csv), "--minari", "walk-v0"]) == 0
    assert "48 episodes" in capsys.readouterr().out
    lines = csv.read_text().splitlines()
    assert len(lines) == 1 + len(ag.load_archive(path)) and lines[0].startswith("cell,objective,measures_0")
    ag.load_archive(path).save(tmp_path / "archive.h5")
    assert small(["info", str(tmp_path / "archive.h5")]) == 0  # an archive without a run
    assert small(["plot", str(tmp_path / "archive.h5")]) == 0
    assert (tmp_path / "archive.png").stat().st_size > 10_000
    with edited(path) as file:
        file.attrs["task"] = np.bytes_(file.attrs["task"].replace(b'"walk"', b'"[/x]\\u001b[31m"'))
    assert small(["info", str(path)]) == 0  # what a file says is shown, not obeyed
    assert "[/x]?[31m" in capsys.readouterr().out
    assert small(["export", str(path)]) == 2
    assert "--csv FILE" in capsys.readouterr().err


def test_another_runs_file_is_refused(small, tmp_path, capsys):
    path = tmp_path / "run.h5"
    assert small([*RUN, "--evaluations", "16", "--out", str(path), "--quiet"]) == 0
    capsys.readouterr()
    assert small([*RUN, "--evaluations", "16", "--out", str(path)]) == 2
    assert re.search(r"already holds a run.*asciime resume.*--overwrite", capsys.readouterr().err)
    assert small([*RUN, "--evaluations", "32", "--out", str(path), "--overwrite", "--quiet"]) == 0
    assert len(ag.load_history(path)) == 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([*RUN, "--evaluations", "0"], "evaluations must be a whole number"),
        ([*RUN, "--evaluations", "-5"], "evaluations must be a whole number"),
        ([*RUN, "--seconds", "0"], "seconds must be above 0"),
        (["run", "--batch-size", "0"], "batch_size must be a whole number of at least 1"),
        ([*RUN, "--seed", "-1", "--evaluations", "16"], "seed must be"),
        ([*RUN, "--centroids", "0", "--evaluations", "16"], "at least 1 cell"),
        (["info", "missing.h5"], "missing.h5: there is no such file"),
        (["resume", "missing.h5", "--evaluations", "10"], "there is no such file"),
        (["plot", "missing.h5"], "there is no such file"),
    ],
)
def test_errors_are_one_clear_line(words, answer, small, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert small(words) == 2
    err = capsys.readouterr().err.strip()
    assert err.startswith("asciime: ") and answer in err and "\n" not in err
    assert not list(tmp_path.rglob("*.h5"))


def test_a_folder_that_is_not_writable(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere, whatever the mode
    assert small([*RUN, "--evaluations", "16", "--out", str(tmp_path / "run.h5")]) == 2
    assert "not writable" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(small, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert small([*RUN, "--evaluations", "16", "--out", str(tmp_path / "file" / "run.h5")]) == 2
    assert "cannot be made" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*could not be written")
def test_an_end_that_is_not_saved_is_no_success(small, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("asciime_gym._checkpoint.save_run", full)
    out = tmp_path / "run.h5"
    assert small([*RUN, "--evaluations", "32", "--out", str(out), "--quiet"]) == 1
    assert f"not saved in {out}" in capsys.readouterr().err and not out.exists()


def test_help_is_worth_reading():
    top = asciime("--help")
    assert top.returncode == 0 and all(
        word in top.stdout for word in ("run", "resume", "info", "export", "tasks", "plot", "compare")
    )
    run = asciime("run", "--help").stdout
    for word in (
        "--algorithm",
        "--task",
        "--evaluations",
        "--seconds",
        "--out",
        "--iso-line-share",
        "fraction of them",
    ):
        assert word in run
    other = asciime("run", "--algorithm", "map_elites", "--help").stdout
    assert "--sigma1" in other and "--epochs" not in other
    assert asciime().returncode == 0  # nothing asked: help, too


def test_tasks_are_listed():
    out = asciime("tasks").stdout
    for name in ag.TASKS:
        assert name in out
    assert "6,664" in out and "5,187" in out and "contact rate, 4 feet" in out


@pytest.mark.parametrize(
    ("flag", "word", "known"),
    [("--task", "hoper", "hopper_uni"), ("--algorithm", "ascii", "ascii_me"), ("--backend", "bullet", "spring")],
)
def test_unknown_words_name_the_known_ones(flag, word, known):
    done = asciime("run", flag, word)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and known in said and word in said and flag in said


def test_every_field_has_a_help_text():
    import dataclasses

    for algorithm in ag.ALGORITHMS.values():
        texts = argument_help(algorithm.__doc__)
        assert {field.name for field in dataclasses.fields(algorithm)} == set(texts)


def test_the_main_job_passes_options_through():
    sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
    try:
        from run import arguments, out_file
    finally:
        sys.path.pop(0)
    default = arguments([])
    assert default[:2] == ["--algorithm", "ascii_me"] and "--seconds" in default and "--overwrite" in default
    given = arguments(["--task", "ant_omni", "--evaluations=5000", "--out", "x.h5"])
    assert "--seconds" not in given and "--overwrite" not in given and given.count("--task") == 1
    assert out_file(given) == Path("x.h5")


@pytest.mark.slow
def test_plots_of_one_two_and_four_dimensions(tmp_path):
    from asciime_gym._view import ArchiveView
    from asciime_gym.analysis.plots import plot_run

    for dims in (1, 2, 4):
        problem = ag.Problem(
            policy=ag.MLP(2, 1), descriptor_low=[0] * dims, descriptor_high=[1] * dims, episode_length=1
        )
        made = ag.Optimizer(ag.MapElites(batch_size=64), problem, centroids=48)
        made.ask()
        made.tell(np.arange(64), np.random.default_rng(0).random((64, dims)))
        path = tmp_path / f"{dims}.png"
        plot_run(made.archive, made.history, path, title=f"{dims} dimensions")
        assert path.stat().st_size > 10_000
        assert isinstance(made.archive, ArchiveView)
    empty = ag.Optimizer(ag.MapElites(batch_size=64), problem, centroids=48)
    with pytest.raises(ValueError, match="empty"):
        plot_run(empty.archive, empty.history, tmp_path / "empty.png")


def test_the_command_line_makes_a_device_for_each_core():
    data = Path(__file__).parent.parent / "data" / "hopper_uni.h5"
    script = f"""
import os, jax
from asciime_gym.__main__ import main
assert main(["info", {str(data)!r}]) == 0
print("devices", jax.device_count(), len(os.sched_getaffinity(0)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    devices, cores = done.stdout.rpartition("devices ")[2].split()
    assert done.returncode == 0 and devices == cores
