"""Trajectories recorded by `fit`: the same run, and episodes that can be found again."""

import h5py
import numpy as np
import pytest
from helpers import ALGORITHMS, EACH, Walk, same, spent

import asciime_gym as ag

TASK = Walk()


def run(algorithm, path, generations=5, **options) -> ag.Optimizer:
    made = ag.Optimizer(algorithm, TASK, centroids=64)
    made.fit(evaluations=spent(algorithm, generations, TASK), checkpoint=path, **options)
    return made


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("record", ["elites", "all"])
def test_recording_changes_nothing_and_finds_every_elite(name, record, tmp_path):
    algorithm, path = ALGORITHMS[name], tmp_path / "run.h5"
    plain = run(algorithm, tmp_path / "plain.h5")
    made = run(algorithm, path, record_trajectories=record, checkpoint_every=2)
    assert same(plain._run, made._run)
    trajectories, archive = ag.load_trajectories(path), ag.load_archive(path)
    for elite in archive:
        episode = trajectories.of(elite)
        assert (episode.steps, episode.operator) == (elite.steps, elite.operator)
        assert episode.fitness == np.float32(elite.fitness) and (episode.descriptor == elite.descriptor).all()
        np.testing.assert_allclose(episode.reward.sum(), elite.fitness, rtol=1e-5)
        np.testing.assert_allclose(elite.policy(episode.observation), episode.action, rtol=1e-4, atol=1e-6)
    expected = (
        5 * algorithm.batch_size
        if record == "all"
        else sum(made.history[f"added_{n}"].sum() for n in made.archive.operators)
    )
    assert len(trajectories) == expected
    assert len(list(tmp_path.glob("run.trajectories-*.h5"))) == len(trajectories.parts) >= 2


def test_resumed_recording_goes_on(tmp_path):
    algorithm, path = ALGORITHMS["ascii_me"], tmp_path / "run.h5"
    whole = run(algorithm, tmp_path / "whole.h5", 6, record_trajectories="all")
    run(algorithm, path, 2, record_trajectories="all")
    first = sorted(tmp_path.glob("run.trajectories-*.h5"))
    bytes_before = [file.read_bytes() for file in first]
    part = ag.Optimizer.load(path, task=TASK)
    part.fit(evaluations=4 * algorithm.batch_size, checkpoint=path)  # a stretch that is not recorded
    part = ag.Optimizer.load(path, task=TASK)
    part.fit(evaluations=6 * algorithm.batch_size, checkpoint=path, record_trajectories="all")
    assert same(whole._run, part._run)
    assert [file.read_bytes() for file in first] == bytes_before  # written once
    batch = algorithm.batch_size
    recorded = ag.load_trajectories(path).evaluations
    np.testing.assert_array_equal(recorded, [*range(2 * batch), *range(4 * batch, 6 * batch)])
    every = ag.load_trajectories(tmp_path / "whole.h5")
    for evaluation in (0, batch + 1, 5 * batch):
        ours, theirs = ag.load_trajectories(path).episode(evaluation), every.episode(evaluation)
        np.testing.assert_array_equal(ours.observation, theirs.observation)


def test_the_checkpoint_lists_what_is_there_and_says_what_is_needed(tmp_path):
    algorithm = ALGORITHMS["map_elites"]
    with pytest.raises(ValueError, match=r"needs a checkpoint.*checkpoint=…"):
        ag.Optimizer(algorithm, TASK).fit(evaluations=10, record_trajectories="all")
    run(algorithm, tmp_path / "run.h5", 2, record_trajectories="elites")
    with h5py.File(tmp_path / "run.h5") as file:
        assert file["trajectories/name"][0] == b"run.trajectories-000001.h5"
    (tmp_path / "run.trajectories-000001.h5").unlink()
    assert len(ag.load_archive(tmp_path / "run.h5"))  # the archive does not need them
    with pytest.raises(ag.FileError, match=r"run.trajectories-000001.h5: there is no such file"):
        list(ag.load_trajectories(tmp_path / "run.h5"))


def test_episodes_of_a_run_that_was_kept_are_not_written_over(tmp_path):
    algorithm = ALGORITHMS["map_elites"]
    run(algorithm, tmp_path / "run.h5", 2, record_trajectories="all")
    (tmp_path / "run.h5").rename(tmp_path / "best.h5")
    with pytest.raises(FileExistsError, match="recorded episodes of another run"):
        run(algorithm, tmp_path / "run.h5", 2, record_trajectories="all")
    assert len(list(ag.load_trajectories(tmp_path / "best.h5"))) == 2 * algorithm.batch_size


def test_odd_names_links_and_saves_elsewhere(tmp_path):
    algorithm, path = ALGORITHMS["map_elites"], tmp_path / "f" / "2024-05-01T12:30 a.h5"
    made = ag.Optimizer(algorithm, TASK, centroids=64)
    copies = []

    def save(optimizer, row):
        optimizer.save(path.with_name("copy.h5"))
        copies.append(len(ag.load_trajectories(path.with_name("copy.h5"))))

    options = {"checkpoint": path, "record_trajectories": "all", "callbacks": save}
    made.fit(evaluations=3 * algorithm.batch_size, **options)
    assert copies == [(i + 1) * algorithm.batch_size for i in range(3)]
    link = tmp_path / "link.h5"
    link.symlink_to(path)
    assert len(list(ag.load_trajectories(link))) == 3 * algorithm.batch_size
    with pytest.warns(UserWarning, match="recorded so far"):
        made.fit(evaluations=4 * algorithm.batch_size, checkpoint=path)


def test_what_could_not_be_written_is_saved_later(tmp_path, monkeypatch):
    from asciime_gym import _trajectories

    algorithm, path, write = ALGORITHMS["map_elites"], tmp_path / "run.h5", _trajectories.write_file
    full = lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    monkeypatch.setattr(_trajectories, "write_file", full)
    with pytest.warns(RuntimeWarning, match="could not be written"):
        made = run(algorithm, path, 2, record_trajectories="all")
    monkeypatch.setattr(_trajectories, "write_file", write)
    made.save(path)
    assert len(list(ag.load_trajectories(path))) == 2 * algorithm.batch_size


def test_a_disk_that_takes_nothing_does_not_eat_the_memory(tmp_path, monkeypatch):
    from asciime_gym import _trajectories

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    algorithm = ALGORITHMS["ascii_me"]
    plain = run(algorithm, tmp_path / "plain.h5")
    monkeypatch.setattr(_trajectories, "write_file", full)
    monkeypatch.setattr(_trajectories, "MOST_BYTES", 10_000)
    with pytest.warns(RuntimeWarning, match="no trajectories are recorded any more"):
        made = run(algorithm, tmp_path / "run.h5", record_trajectories="all", checkpoint_every=1)
    assert same(plain._run, made._run)
    assert same(ag.Optimizer.load(tmp_path / "run.h5", task=TASK)._run, made._run)  # saved once it had given up
    assert len(ag.load_trajectories(tmp_path / "run.h5")) == 0
