"""The HDF5 file: what it holds, and what happens when it is not what it should be."""

import json
import os
import subprocess
import sys

import h5py
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import Walk, edited, same

import asciime_gym as ag
from asciime_gym import _storage

TASK = Walk()
PROBLEM = ag.Problem(policy=TASK.policy, descriptor_low=[-1, -1], descriptor_high=[1, 1], episode_length=12)


@pytest.fixture(scope="module")
def made() -> ag.Optimizer:
    made = ag.Optimizer(ag.AsciiME(batch_size=24, epochs=3), TASK, centroids=64, seed=7)
    made.fit(evaluations=120)
    return made


@pytest.fixture
def path(made, tmp_path):
    made.save(tmp_path / "run.h5")
    return tmp_path / "run.h5"


def test_archive_as_it_was(made, path):
    archive, live = ag.load_archive(path), made.archive
    for name in ("cell", "fitness", "descriptor", "genotype", "operator", "evaluation", "first_filled", "steps", "key"):
        np.testing.assert_array_equal(getattr(archive, name), getattr(live, name))
    assert (np.diff(archive.cell) > 0).all() and (archive.fitness > -np.inf).all()
    assert len(archive) == len(archive.fitness) and archive.coverage == len(archive) / 64
    frame = archive.to_dataframe(genotype=True)
    assert list(frame.columns[:4]) == ["cell", "objective", "measures_0", "measures_1"]
    assert frame.shape == (len(archive), 8 + TASK.policy.size)


def test_best_nearest_and_policy(path):
    archive = ag.load_archive(path)
    assert archive.best().fitness == archive.fitness.max()
    wanted = archive.descriptor[3]
    assert archive.nearest(wanted).index == 3
    observation = np.linspace(-1, 1, 5)
    action = archive.policy(3)(observation)
    expected = TASK.policy.act(jnp.asarray(archive.genotype[3]), jnp.asarray(observation, jnp.float32))
    np.testing.assert_allclose(action, expected, rtol=1e-6, atol=1e-7)  # sums of numbers near 1
    np.testing.assert_array_equal(archive[3].policy.act(observation), action)
    assert archive.policy(0).act(np.zeros((4, 5))).shape == (4, 2)
    assert len(list(archive)) == len(archive) and archive[-1].index == len(archive) - 1
    with pytest.raises(ValueError, match="last axis is 5"):
        archive.policy(0)(np.zeros(4))
    with pytest.raises(ValueError, match="2 finite numbers"):
        archive.nearest([0.1])
    with pytest.raises(IndexError, match="no row"):
        archive[len(archive)]


def test_file_explains_itself(path):
    with h5py.File(path) as file:
        attributes = dict(file.attrs)
        assert attributes["format"] == b"asciime_gym run" and attributes["schema"] == 2 and attributes["seed"] == 7
        assert json.loads(attributes["algorithm"]) == {
            "name": "ascii_me", "batch_size": 24, "epochs": 3, "iso_line_share": 0.5, "learning_rate": 0.003,
            "optimizer": "adam", "sigma1": 0.005, "sigma2": 0.05, "variance": 4.0, "cosine_floor": 0.25, "clip": 0.8,
            "discount": 0.99, "action_noise": 0.0, "buffer_capacity": None, "targets": "buffer",
        }  # fmt: skip
        assert json.loads(attributes["versions"])["jax"]
        assert set(file) == {"archive", "state", "history", "run"}
        items = {}
        file.visititems(lambda name, item: items.update({name: item}))
        assert len(items) > 40
        for name, item in items.items():
            assert len(item.attrs["description"]) > 8 and item.attrs["description"][-19:] != b"the algorithm's own", (
                name
            )
            if isinstance(item, h5py.Dataset) and item.ndim and not item.is_scale:
                assert all(dim.label for dim in item.dims), name
        genotype, fitness = file["archive/elites/genotype"], file["archive/elites/fitness"]
        np.testing.assert_array_equal(fitness.dims[0]["cell"], np.arange(64))
        assert [dim.label for dim in genotype.dims] == ["cell", "parameter"]
        assert file["history/qd_score"].dims[0]["generation"].shape == (5,)
        assert file["history/seconds"].attrs["units"] == b"s"


def test_load_archive_needs_neither_brax_nor_a_compile(path):
    code = (
        "import sys, asciime_gym as ag\n"
        f"archive = ag.load_archive({str(path)!r})\n"
        "assert len(archive) and archive.best().genotype.size\n"
        "assert not any(name.split('.')[0] in ('brax', 'mujoco', 'pandas', 'matplotlib') for name in sys.modules)\n"
        "import jax\n"
        "assert not jax._src.xla_bridge.backends_are_initialized()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stdout and not done.stderr


def test_problem_and_custom_parts_come_back(tmp_path):
    made = ag.Optimizer(ag.MapElites(batch_size=8), PROBLEM, centroids=16)
    made.ask()
    made.tell(np.arange(8.0), np.linspace(-1, 1, 16).reshape(8, 2))
    made.save(tmp_path / "problem.h5")
    loaded = ag.Optimizer.load(tmp_path / "problem.h5")
    assert same(loaded._run, made._run) and loaded.task == PROBLEM
    np.testing.assert_array_equal(loaded.ask(), made.ask())

    custom = ag.AsciiME(batch_size=8, epochs=1, optimizer=optax.sgd(0.1))
    made = ag.Optimizer(custom, PROBLEM, centroids=16)
    made.save(tmp_path / "custom.h5")
    with pytest.raises(ag.FileError, match=r"optimizer of the user's own.*algorithm=…"):
        ag.Optimizer.load(tmp_path / "custom.h5")
    assert ag.Optimizer.load(tmp_path / "custom.h5", algorithm=custom).algorithm is custom
    with pytest.raises(ag.FileError, match="differs from the stored one"):
        ag.Optimizer.load(tmp_path / "custom.h5", algorithm=ag.AsciiME(batch_size=9, optimizer=optax.sgd(0.1)))


def test_a_policy_of_the_users_own_has_to_be_given_again(tmp_path):
    import equinox as eqx

    policy = ag.EquinoxPolicy(lambda key: eqx.nn.Linear(5, 2, key=key), 5, 2)
    world = Walk(policy=policy)
    made = ag.Optimizer(ag.MapElites(batch_size=8), world, centroids=16)
    made.fit(evaluations=16)
    made.save(tmp_path / "run.h5")
    archive = ag.load_archive(tmp_path / "run.h5")
    with pytest.raises(ValueError, match=r"load_archive\(path, policy=…\)"):
        archive.policy(0)
    acts = ag.load_archive(tmp_path / "run.h5", policy=policy).policy(0)(np.ones(5))
    np.testing.assert_array_equal(acts, made.archive.policy(0)(np.ones(5)))
    with pytest.raises(ag.FileError, match="policy"):
        ag.Optimizer.load(tmp_path / "run.h5")
    with pytest.raises(ag.FileError, match="differs"):
        ag.load_archive(tmp_path / "run.h5", policy=ag.MLP(5, 2))
    assert same(ag.Optimizer.load(tmp_path / "run.h5", task=world)._run, made._run)


READERS = [ag.load_archive, lambda path: ag.Optimizer.load(path, task=TASK), ag.load_history]


@pytest.mark.parametrize("read", READERS)
def test_files_that_are_not_ours(read, path, tmp_path):
    with pytest.raises(ag.FileError, match="no such file"):
        read(tmp_path / "missing.h5")
    with pytest.raises(ag.FileError, match=r"folder|not a complete file"):
        read(tmp_path)
    os.mkfifo(tmp_path / "pipe.h5")
    with pytest.raises(ag.FileError, match="not an ordinary file"):
        read(tmp_path / "pipe.h5")
    (tmp_path / "empty.h5").write_bytes(b"")
    (tmp_path / "text.h5").write_text("hello")
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        (tmp_path / f"cut{share}.h5").write_bytes(whole[: int(len(whole) * share)])
    for name in ("empty", "text", "cut0.1", "cut0.5", "cut0.9", "cut0.999"):
        with pytest.raises(ag.FileError, match=rf"{name}.*not a complete file"):
            read(tmp_path / f"{name}.h5")
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["data"] = [1, 2, 3]
    with pytest.raises(ag.FileError, match="not one of asciime_gym's"):
        read(tmp_path / "foreign.h5")
    for schema, advice in ((99, "upgrade"), (1, "the version that wrote it")):
        with edited(path) as file:
            file.attrs["schema"] = schema
        with pytest.raises(ag.FileError, match=rf"schema {schema}.*{advice}"):
            read(path)
    with edited(path) as file:
        file.attrs["schema"] = 2
        file.attrs["format"] = np.bytes_("asciime_gym trajectories")
    with pytest.raises(ag.FileError, match=r"format is 'asciime_gym trajectories'; 'asciime_gym run"):
        read(path)


@pytest.mark.parametrize("name", ["archive/elites/fitness", "archive/centroids", "history/generation"])
def test_files_that_lack_something(name, path):
    with edited(path) as file:
        del file[name]
    with pytest.raises(ag.FileError, match=f"{name} is missing"):
        ag.Optimizer.load(path, task=TASK)


def test_files_whose_parts_do_not_fit(path):
    with edited(path) as file:
        rows = file["archive/elites/genotype"][:, :-1]
        del file["archive/elites/genotype"]
        file["archive/elites/genotype"] = rows
    with pytest.raises(ag.FileError, match="should have shape"):
        ag.Optimizer.load(path, task=TASK)


def test_a_failed_save_leaves_the_old_file(made, path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_storage, "_write_array", fail)
        with pytest.raises(OSError, match="No space left"):
            made.save(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="No space left"):
            made.save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["run.h5"]  # nothing half-written is left about


def test_an_empty_archive_can_be_saved_and_says_so(tmp_path):
    made = ag.Optimizer(ag.MapElites(batch_size=8), PROBLEM, centroids=16)
    made.save(tmp_path / "run.h5")
    archive = ag.load_archive(tmp_path / "run.h5")
    assert not len(archive) and archive.coverage == 0 and archive.qd_score == 0 and "best none" in repr(archive)
    with pytest.raises(ValueError, match="empty"):
        archive.best()
    assert len(ag.load_history(tmp_path / "run.h5")) == 0


def test_numbers_of_numpy_are_numbers(tmp_path):
    made = ag.Optimizer(ag.MapElites(batch_size=int(np.int64(8)), sigma1=np.float64(0.1)), PROBLEM, centroids=16)
    made.save(tmp_path / "run.h5")
    assert ag.Optimizer.load(tmp_path / "run.h5").algorithm.sigma1 == 0.1
