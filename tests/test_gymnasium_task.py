"""Environments that nobody here wrote, as tasks."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, TimeLimit
from helpers import same, sized, vanished, workers
from small_envs import Blind, Clumsy, Forgetful, Shaped, Track, Witness

import asciime_gym as ag
from asciime_gym.tasks._host_rollout import Actor
from asciime_gym.tasks._scaling import Scaling

KEY = jax.random.key(7)
linear = lambda obs, act: ag.MLP(obs, act, hidden=())
place_and_time = ag.FinalObservation(0, 1)


def track(end=5.0, noise=0.0, limit=None, **options) -> ag.GymnasiumTask:
    make = lambda: Track(end, noise)
    options = {"episode_length": 10, "num_envs": 3, "vectorization": "sync", "policy": linear} | options
    options = {"descriptor": place_and_time, "descriptor_low": [-9, 0], "descriptor_high": [9, 10]} | options
    return ag.GymnasiumTask(make if limit is None else lambda: TimeLimit(make(), limit), **options)


def constant(*outputs: float) -> np.ndarray:
    """Genotypes of linear policies that always give the same."""
    return np.array([[0.0, 0.0, output] for output in outputs], np.float32)


def hopper(**options) -> ag.GymnasiumTask:
    options = {"episode_length": 60, "num_envs": 4, "vectorization": "sync", "descriptor": place_and_time} | options
    options |= {"policy": ag.MapElites.default_policy}
    return ag.GymnasiumTask("Hopper-v5", descriptor_low=[0.7, -0.2], descriptor_high=[1.5, 0.2], **options)


# What an episode is ------------------------------------------------------------------------------------------


def test_a_known_answer():
    """Output -1 is action -1, 0 is 1, 1 and all beyond are 3; the track ends past 5."""
    done = track().evaluate(constant(-1.0, 0.0, 1.0, 7.5), KEY)
    np.testing.assert_array_equal(done.fitness, [-55.0, 21.0, 9.0, 9.0])
    np.testing.assert_array_equal(done.steps, [10, 6, 2, 2])
    np.testing.assert_array_equal(done.descriptor, [[-10, 10], [6, 6], [6, 2], [6, 2]])
    path = done.trajectory
    np.testing.assert_array_equal(path.alive.sum(axis=1), [10, 6, 2, 2])
    np.testing.assert_array_equal(path.terminated.sum(axis=1), [0, 1, 1, 1])
    assert path.terminated[1, 5] and path.terminated[2, 1]
    np.testing.assert_array_equal(
        path.observation[1, :7, 0], [0, 1, 2, 3, 4, 5, 0]
    )  # before each step; 0 after the end
    np.testing.assert_array_equal(path.reward[1, :7], [1, 2, 3, 4, 5, 6, 0])
    np.testing.assert_array_equal(path.action[3, :3, 0], [7.5, 7.5, 0])  # as the policy gave it
    assert all(leaf.dtype in (jnp.float32, jnp.bool_) for leaf in jax.tree.leaves(path))


def test_who_cuts_an_episode_off():
    """The task's length, or the environment's own limit where that is shorter; neither is an end."""
    for options in ({"episode_length": 4}, {"limit": 4, "episode_length": 10}, {"limit": 4, "episode_length": 4}):
        done = track(**options).evaluate(constant(0.0, 1.0), KEY)
        np.testing.assert_array_equal(done.steps, [4, 2])
        np.testing.assert_array_equal(done.fitness, [10.0, 9.0])
        np.testing.assert_array_equal(done.trajectory.terminated.sum(axis=1), [0, 1])
    ended = track(end=3.5, episode_length=4).evaluate(constant(0.0), KEY)  # ends on the very last step
    assert ended.steps[0] == 4 and ended.trajectory.terminated[0, 3]
    with pytest.raises(ValueError, match="episode_length"):
        track(episode_length=None)
    assert hopper(episode_length=None).episode_length == 1000


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (ag.FinalObservation(1), [6.0]),
        (ag.MeanInfo("place"), [3.5]),
        (ag.MeanInfo("pair", "even"), [3.5, 7.0, 0.5]),
        (ag.MeanPredicate(lambda played: played.next_observation[:, 0] > 4), [2 / 6]),
        (ag.MeanPredicate(lambda played: played.info["pair"] > 4), [2 / 6, 4 / 6]),
        (lambda played: [played.reward.max(), played.action[0, 0], played.steps, played.terminated], [6, 0, 6, 1]),
    ],
)
@pytest.mark.parametrize("vectorization", ["sync", "async", "vector"])
def test_descriptors(descriptor, expected, vectorization):
    if vectorization == "vector":
        vectorization = SyncVectorEnv([Track] * 3, autoreset_mode=AutoresetMode.DISABLED)
        bounds = {"num_envs": None}
    else:
        bounds = {"num_envs": 2}
    bounds |= {"descriptor_low": [0] * len(expected), "descriptor_high": [9] * len(expected)}
    with track(descriptor=descriptor, vectorization=vectorization, **bounds) as task:
        done = task.evaluate(constant(0.0), KEY)
    np.testing.assert_allclose(done.descriptor[0], expected, rtol=1e-6)


def test_a_descriptor_that_is_not_there_or_too_long():
    with pytest.raises(KeyError, match=r"'height' is not in the info .* \['even', 'pair', 'place'\]"):
        track(descriptor=lambda played: played.info["height"]).evaluate(constant(0.0), KEY)
    with pytest.raises(ValueError, match="must return 2 numbers"):
        track(descriptor=ag.FinalObservation(0)).evaluate(constant(0.0), KEY)
    with pytest.raises(ValueError, match=r"\[6\] or \[6, dims\]; got shape \(2,\)"):
        track(descriptor=ag.MeanPredicate(lambda played: [1, 2])).evaluate(constant(0.0), KEY)
    assert track(descriptor=ag.MeanInfo("place", "even")).descriptor_names == ("mean place", "mean even")
    assert track(descriptor_names=["a", "b"]).descriptor_names == ("a", "b")


def test_actions_are_scaled_to_their_bounds():
    """[-1, 1] to two bounds; one bound clips; without any, the output as it is."""
    give = np.array([[-1.0, -7.0, -3.0, 5.0], [0.5, 7.0, 2.0, -8.0], [9.0, 0.0, 0.5, 0.25]], np.float32)
    scaled = Scaling(Shaped.action_space)(give)
    expected = [[[-2, -7], [0, 1]], [[2.5, 7], [2, -8]], [[4, 0], [0.5, 0.25]]]
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled, np.array(expected, np.float32))
    unit = spaces.Box(-1, 1, (3,), np.float32)
    some = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    assert Scaling(unit)(some).tobytes() == some.tobytes()  # nothing is lost where there is nothing to scale


def test_boxes_of_any_shape():
    bounds = {"descriptor_low": [-9] * 4, "descriptor_high": [9] * 4}
    task = ag.GymnasiumTask(
        Shaped, descriptor=ag.MeanInfo("action"), **bounds, episode_length=2, vectorization="sync", policy=linear
    )
    genotype = np.zeros((1, 20), np.float32)
    genotype[0, 16:] = [0.5, 7.0, 2.0, -8.0]
    done = task.evaluate(genotype, KEY)
    np.testing.assert_array_equal(done.descriptor[0], [2.5, 7, 2, -8])
    np.testing.assert_array_equal(done.trajectory.observation[0, 0], [1, 2, 3, 4])


class Spaces(gymnasium.Env):
    """Nothing but spaces."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or spaces.Box(-1, 1, (2,))
        self.action_space = action or spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Spaces(action=spaces.Discrete(3)), "continuous, a Box of floats; got Discrete"),
        (lambda: Spaces(action=spaces.MultiBinary(3)), "continuous, a Box of floats; got MultiBinary"),
        (lambda: Spaces(action=spaces.Box(0, 9, (2,), np.int32)), "continuous; got a Box of int32"),
        (lambda: Spaces(observation=spaces.Discrete(3)), "arrays of numbers, a Box; got Discrete"),
        (lambda: Spaces(observation=spaces.Dict(a=spaces.Box(-1, 1))), "FlattenObservation"),
        (lambda: Spaces(observation=spaces.Box(-1, 1, (0,))), "no number"),
        ("CartPole-v1", "CartPole-v1: a policy's actions are continuous"),
        (lambda: "env", "must return a gymnasium.Env"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_the_reason(made, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ag.GymnasiumTask(
            made, descriptor=place_and_time, descriptor_low=[0, 0], descriptor_high=[1, 1], episode_length=5
        )


def test_a_dict_can_be_flattened():
    made = lambda: FlattenObservation(
        Spaces(observation=spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, (3,))))
    )
    task = ag.GymnasiumTask(
        made, descriptor=place_and_time, descriptor_low=[0, 0], descriptor_high=[1, 1], episode_length=5
    )
    assert (task.policy.obs_size, task.policy.act_size) == (5, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_envs": 0}, "num_envs"),
        ({"episode_length": 0}, "at least 1 step"),
        ({"policy": lambda obs, act: ag.MLP(obs, 7)}, "observation size 2 and action size 1"),
        ({"descriptor_low": [0]}, "descriptor_low"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        track(**options)


def test_wrong_kinds_are_refused():
    """As a user meets them: without the type checks that the other tests run under."""
    cases = {
        "make(3.5)": "expected the id of an environment",
        "make('Pendulum-v1', vectorization='threads')": 'vectorization must be "async", "sync" or',
        "make('Pendulum-v1', episode_length=2.5)": "episode_length must be a whole number",
        "make('Pendulum-v1', descriptor='place')": "descriptor must be a function of an episode",
        "ag.map_evaluator(3)": "expected a function of one genotype",
        "ag.map_evaluator(print, 4)": "expected a concurrent.futures.Executor",
        "ag.map_evaluator(print, retries=0.5)": "retries must be a whole number",
        "ag.map_evaluator(print, timeout=-1)": "timeout must be above 0",
    }
    code = "import asciime_gym as ag\ndef make(env, descriptor=len, **options):\n"
    code += "    ag.GymnasiumTask(env, descriptor=descriptor, descriptor_low=[0], descriptor_high=[1], **options)\n"
    for case in cases:
        code += f"try:\n    {case}\n    print('nothing')\nexcept (ValueError, TypeError) as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for words, line in zip(cases.values(), done.stdout.splitlines(), strict=True):
        assert words in line


def test_it_cannot_be_part_of_a_program():
    task = track()
    with pytest.raises(TypeError, match="played on the host"):
        jax.jit(lambda genotypes: task.evaluate(genotypes, KEY).fitness)(jnp.asarray(constant(0.0)))


# The same episodes, wherever they are played -----------------------------------------------------------------


def policies(task: ag.GymnasiumTask, count: int) -> np.ndarray:
    """Of which some fall soon and some do not."""
    drawn = jax.lax.map(task.policy.init, jax.random.split(jax.random.key(1), count))
    return np.asarray(drawn * jnp.linspace(1.0, 4.0, count)[:, None])


@pytest.fixture(scope="module")
def reference() -> tuple[np.ndarray, ag.Evaluation]:
    task = hopper(num_envs=1)
    genotypes = policies(task, 13)
    done = task.evaluate(genotypes, KEY)
    assert len(set(done.steps.tolist())) > 3 and done.trajectory.terminated.any()
    return genotypes, done


@pytest.mark.parametrize(
    "options",
    [
        {"num_envs": 2},
        {"num_envs": 5},
        {"num_envs": 40},
        {"vectorization": "async", "num_envs": 1},
        {"vectorization": "async", "num_envs": 5},
        {"vectorization": "async", "num_envs": None},
        {"reuse": False},
    ],
)
def test_the_same_episodes_in_any_number_of_environments(options, reference):
    genotypes, expected = reference
    with hopper(**options) as task:
        assert same(task.evaluate(genotypes, KEY), expected)
        assert same(task.evaluate(genotypes, KEY), expected)  # after others have played in them
        life = jnp.asarray(np.random.default_rng(0).integers(1, 60, len(genotypes)))
        assert same(task.evaluate(genotypes, KEY, life=life), expected)
        without = task.evaluate(genotypes, KEY, trajectory=False)
        assert without.trajectory is None and same(without.fitness, expected.fitness)
        assert not same(task.evaluate(genotypes, jax.random.key(8)).fitness, expected.fitness)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_the_same_episodes_in_a_vector_environment_of_the_users(kind, reference):
    genotypes, expected = reference
    make = lambda: gymnasium.make("Hopper-v5")
    options = {"context": "spawn"} if kind is AsyncVectorEnv else {}
    venv = kind([make] * 3, autoreset_mode=AutoresetMode.DISABLED, **options)
    try:
        with hopper(vectorization=venv, num_envs=None) as task:
            assert task.num_envs == 3
            assert same(task.evaluate(genotypes, KEY), expected)
            assert same(task.evaluate(genotypes, KEY), expected)
        assert not venv.closed  # it is the user's
    finally:
        venv.close()


def test_a_vector_environment_that_will_not_do():
    venv = SyncVectorEnv([Track] * 2)
    with pytest.raises(ValueError, match=r"AutoresetMode\.DISABLED"):
        track(vectorization=venv)
    venv = SyncVectorEnv([Track] * 2, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ValueError, match="num_envs=3 cannot change that"):
        track(vectorization=venv)
    with pytest.raises(ValueError, match="reuse=False"):
        track(vectorization=venv, num_envs=2, reuse=False)


def test_a_row_alone_and_among_others(reference):
    """An elite can be replayed from the key that it remembers."""
    genotypes, expected = reference
    task = hopper()
    keys = jax.vmap(lambda row: jax.random.fold_in(KEY, row))(jnp.arange(len(genotypes)))
    for row in (0, 6, 12):
        alone = task.episodes(jnp.asarray(genotypes[row : row + 1]), keys[row : row + 1])
        assert same(alone, jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], expected))


@pytest.mark.parametrize("policy", [ag.MLP(11, 3), ag.MLP(27, 8, hidden=(128, 128), activation="relu", output="tanh")])
def test_a_policy_acts_alike_whoever_acts_beside_it(policy):
    """Bit for bit, for any number of environments and of rows."""
    rng = np.random.default_rng(0)
    genotypes = rng.normal(size=(33, policy.size)).astype(np.float32) / 8
    seen = rng.normal(size=(33, policy.obs_size)).astype(np.float32)
    actor = Actor(policy)
    together = actor.of(genotypes, 33)(np.arange(33), seen)
    assert np.abs(together - np.asarray(jax.vmap(policy.act)(genotypes, seen))).max() < 1e-5
    for num_envs in (1, 2, 3, 8, 20):
        act = actor.of(genotypes, num_envs)
        for start in range(0, 33, num_envs):
            rows = np.arange(start, min(start + num_envs, 33))[::-1]
            assert act(rows, seen[rows]).tobytes() == together[rows].tobytes()
    for row in range(33):
        alone = actor.of(genotypes[row : row + 1], 4)(np.array([0]), seen[row : row + 1])
        assert alone.tobytes() == together[row : row + 1].tobytes()


def test_seeds_come_from_keys():
    task = track(noise=1.0)
    done = task.evaluate(constant(0.0, 0.0, 0.0, 0.0), KEY)
    starts = np.asarray(done.trajectory.observation[:, 0, 0])
    assert len(set(starts.tolist())) == 4
    seeds = [int(jax.random.bits(jax.random.fold_in(KEY, row)) >> 1) for row in range(4)]
    np.testing.assert_array_equal(starts, [np.float32(np.random.default_rng(seed).normal()) for seed in seeds])


def test_an_environment_that_keeps_something_of_the_episode_before():
    options = {"descriptor": place_and_time, "descriptor_low": [-9, 0], "descriptor_high": [9, 10], "policy": linear}
    options |= {"episode_length": 3, "vectorization": "sync"}
    fitness = lambda **more: ag.GymnasiumTask(Forgetful, **options, **more).evaluate(constant(*[-1.0] * 5), KEY).fitness
    assert not same(fitness(num_envs=1), fitness(num_envs=2))
    assert same(fitness(num_envs=1, reuse=False), fitness(num_envs=2, reuse=False))
    assert fitness(num_envs=2, reuse=False).tolist() == [-6.0] * 5


def test_bipedal_walker_is_known_to():
    options = {"descriptor": place_and_time, "descriptor_low": [-9, -9], "descriptor_high": [9, 9]}
    results = []
    for num_envs in (1, 4):
        options |= {"episode_length": 120, "vectorization": "sync", "num_envs": num_envs}
        task = ag.GymnasiumTask("BipedalWalker-v3", **options)
        results.append(task.evaluate(8 * policies(task, 12), KEY))
    assert same(*results) and len(set(results[0].steps.tolist())) > 2


# Rows that are not numbers -----------------------------------------------------------------------------------


def test_who_does_not_act_in_numbers_is_refused():
    genotypes = np.concatenate([constant(0.0, np.nan, 0.0), [[1e38, 1e38, 0.0]]]).astype(np.float32)
    task = track(end=50.0)
    done = task.evaluate(genotypes, KEY)
    assert np.isfinite(done.fitness).tolist() == [True, False, True, False]
    assert np.isfinite(done.descriptor).all(axis=1).tolist() == [True, False, True, False]
    assert done.steps[1] == 1 and done.steps[0] == 10


def test_who_sees_no_numbers_is_refused():
    options = {"descriptor": place_and_time, "descriptor_low": [-9, 0], "descriptor_high": [9, 10], "policy": linear}
    task = ag.GymnasiumTask(lambda: Blind(end=99), episode_length=10, vectorization="sync", **options)
    done = task.evaluate(constant(0.0, 1.0), KEY)
    assert np.isnan(done.fitness).all() and done.steps.tolist() == [4, 4]
    optimizer = ag.Optimizer(ag.MapElites(batch_size=4), task, centroids=8)
    optimizer.fit(evaluations=8)
    assert optimizer.history["refused"].tolist() == [4, 4] and not len(optimizer.archive)


# Fit ---------------------------------------------------------------------------------------------------------

ENVIRONMENTS = {
    "Hopper-v5": ([0.7, -0.2], [1.5, 0.2]),
    "Ant-v5": ([0.2, -1.0], [1.0, 1.0]),
    "BipedalWalker-v3": ([-1.0, -1.0], [1.0, 1.0]),
}
ALGORITHMS = {
    "map_elites": ag.MapElites(batch_size=8, sigma1=0.05),
    "ascii_me": ag.AsciiME(batch_size=8, epochs=2),
    "pga_me": sized(helpers.ALGORITHMS["pga_me"], 8),
    "dcrl_me": sized(helpers.ALGORITHMS["dcrl_me"], 8),
    "memes": ag.Memes(batch_size=8, samples=2),
}
EVERYWHERE = {("Hopper-v5", "map_elites"), ("Hopper-v5", "ascii_me")}  # the others are slow


def task_of(name: str, **options) -> ag.GymnasiumTask:
    low, high = ENVIRONMENTS[name]
    options = {"episode_length": 24, "num_envs": 4, "vectorization": "sync"} | options
    return ag.GymnasiumTask(name, descriptor=place_and_time, descriptor_low=low, descriptor_high=high, **options)


def columns(optimizer) -> dict[str, list]:
    """The history without the clock."""
    return {name: column.tolist() for name, column in optimizer.history.to_dict().items() if name != "seconds"}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=() if (name, method) in EVERYWHERE else pytest.mark.slow)
        for name in ENVIRONMENTS
        for method in (ALGORITHMS if name == "Hopper-v5" else ("map_elites", "ascii_me"))
    ],
)
def test_fit(name, method, tmp_path):
    """As it is driven by hand, in worker processes or here, and in one run or two: bit for bit."""
    algorithm = ALGORITHMS[method]
    rows, options = algorithm.batch_size, {"policy": algorithm.default_policy}
    with task_of(name, **options) as task, task_of(name, vectorization="async", **options) as elsewhere:
        by_fit = ag.Optimizer(algorithm, elsewhere, centroids=32)
        result = by_fit.fit(evaluations=4 * rows)
        assert result.stopped_by == "evaluations" and by_fit.generation == 4 and len(result.archive) > 1
        by_hand = ag.Optimizer(algorithm, task, centroids=32)
        for _ in range(4):
            genotypes, needed = by_hand.ask(), algorithm.needs_trajectory
            done = task.evaluate(genotypes, by_hand.evaluation_key, life=by_hand.life, trajectory=needed)
            by_hand.tell(done.fitness, done.descriptor, done.trajectory, steps=done.steps)
        assert same(by_fit._run, by_hand._run) and columns(by_fit) == columns(by_hand)

        part = ag.Optimizer(algorithm, task, centroids=32)
        part.fit(evaluations=2 * rows, checkpoint=tmp_path / "run.h5")
        part = ag.Optimizer.load(tmp_path / "run.h5", task=task)
        part.fit(evaluations=4 * rows, checkpoint=tmp_path / "run.h5")
        assert same(by_fit._run, part._run) and columns(by_fit) == columns(part)


def test_what_a_file_cannot_hold_has_to_be_given_again(tmp_path):
    path = tmp_path / "run.h5"
    ag.Optimizer(ALGORITHMS["map_elites"], task_of("Hopper-v5"), centroids=32).fit(evaluations=8, checkpoint=path)
    with pytest.raises(ag.FileError, match=r"Hopper-v5.*Optimizer\.load\(path, task="):
        ag.Optimizer.load(path)
    with pytest.raises(ag.FileError, match="differs from the stored one"):
        ag.Optimizer.load(path, task=track())
    archive = ag.load_archive(path)  # which needs no environment
    assert len(archive) and archive.best().policy([0.0] * 11).shape == (3,)


def test_trajectories_are_recorded(tmp_path):
    task = task_of("Hopper-v5")
    optimizer = ag.Optimizer(ALGORITHMS["map_elites"], task, centroids=32)
    optimizer.fit(evaluations=16, checkpoint=tmp_path / "run.h5", record_trajectories="all", progress=False)
    recorded = ag.load_trajectories(tmp_path / "run.h5")
    assert len(recorded) == 16
    elite = optimizer.archive.best()
    key = jax.random.wrap_key_data(jnp.asarray(elite.key))
    again = task.episodes(jnp.asarray(elite.genotype)[None], key[None])
    episode = recorded.of(elite)
    assert episode.reward.tobytes() == np.asarray(again.trajectory.reward[0, : episode.steps]).tobytes()


def test_progress_within_a_generation(monkeypatch, capsys):
    """Lines show episodes as they end, not only generations."""
    monkeypatch.setattr("asciime_gym._progress.LINE_EVERY", 0.0)
    monkeypatch.setattr("asciime_gym._watch.EVERY", 0.0)
    optimizer = ag.Optimizer(ag.MapElites(batch_size=4), track(), centroids=8)
    optimizer.fit(evaluations=8, progress=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if "compiling" not in line]
    counts = [int(line.split("<lambda>: ")[1].split()[0]) for line in lines]
    assert counts == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]


# Processes ---------------------------------------------------------------------------------------------------


def clumsy(how: str, vectorization: str) -> ag.GymnasiumTask:
    options = {"descriptor": place_and_time, "descriptor_low": [-9, 0], "descriptor_high": [9, 10], "policy": linear}
    make = lambda: Clumsy(how)
    return ag.GymnasiumTask(make, episode_length=8, num_envs=4, vectorization=vectorization, **options)


@pytest.mark.parametrize(
    ("how", "vectorization", "words"),
    [
        ("raise", "sync", "step raised ArithmeticError: the track is broken"),
        ("raise", "async", "ArithmeticError: the track is broken"),
        ("die", "async", r"died \(signal SIGSEGV\)"),
    ],
)
def test_an_environment_that_fails_says_so(how, vectorization, words):
    task = clumsy(how, vectorization)
    for _ in range(2):  # the second time in new environments
        with pytest.raises(ag.EnvironmentFailure, match=words):
            task.evaluate(constant(0.0, 0.0), KEY)
        assert not workers(os.getpid())


def test_what_cannot_be_sent_says_so():
    import threading

    lock = threading.Lock()
    with (
        pytest.raises(TypeError, match="cannot be sent to a worker process"),
        ag.GymnasiumTask(
            lambda: (lock, Track())[1],
            descriptor=place_and_time,
            descriptor_low=[-9, 0],
            descriptor_high=[9, 10],
            episode_length=5,
        ) as task,
    ):
        task.evaluate(np.zeros((1, task.policy.size), np.float32), KEY)
    assert not workers(os.getpid())


def test_workers_do_without_jax():
    options = {"descriptor": place_and_time, "descriptor_low": [-9, 0], "descriptor_high": [9, 10], "policy": linear}
    with ag.GymnasiumTask(Witness, episode_length=2, num_envs=1, vectorization="async", **options) as task:
        np.testing.assert_array_equal(task.evaluate(constant(0.0), KEY).descriptor, [[0, 0]])


def test_an_environment_that_only_this_process_knows():
    gymnasium.register("asciime_test/Track-v0", entry_point=Track, max_episode_steps=6, kwargs={"end": 4.5})
    try:
        options = {"descriptor": place_and_time, "descriptor_low": [-9, 0], "descriptor_high": [9, 10]}
        with ag.GymnasiumTask("asciime_test/Track-v0", num_envs=2, policy=linear, **options) as task:
            done = task.evaluate(constant(0.0, -1.0), KEY)
        assert done.steps.tolist() == [5, 6] and task.episode_length == 6
    finally:
        del gymnasium.registry["asciime_test/Track-v0"]


def test_workers_end_with_their_task():
    task = track(vectorization="async", num_envs=2)
    task.evaluate(constant(0.0), KEY)
    assert len(workers(os.getpid())) in (1, 2)  # as there are cores
    task.close()
    task.close()
    assert not workers(os.getpid())
    task.evaluate(constant(0.0), KEY)  # opens them again
    assert workers(os.getpid())
    optimizer = ag.Optimizer(ag.MapElites(batch_size=4), task, centroids=8)
    optimizer.fit(evaluations=8)
    del task, optimizer
    gc.collect()
    assert not workers(os.getpid())  # no program holds what it was made for


SCRIPT = """
import sys, time
import jax, numpy as np
import asciime_gym as ag
import gymnasium
from asciime_gym._process import prepare

prepare()

class Slow(gymnasium.Wrapper):  # of this script, which has no guard: workers do not run it
    def step(self, action):
        time.sleep(0.02)
        return self.env.step(action)

low, high = [0.7, -0.2], [1.5, 0.2]
make = lambda: Slow(gymnasium.make("Hopper-v5"))
task = ag.GymnasiumTask(make, descriptor=ag.FinalObservation(0, 1), descriptor_low=low, descriptor_high=high,
    episode_length=10, num_envs=4)
optimizer = ag.Optimizer(ag.MapElites(batch_size=8), task, centroids=16)
show = lambda optimizer, row: print(row["evaluations"], flush=True)
result = optimizer.fit(evaluations=int(sys.argv[1]), checkpoint=sys.argv[2], callbacks=show)
print(result.stopped_by, flush=True)
"""


def start(evaluations: int, path: Path) -> subprocess.Popen:
    """The script in a process group of its own, as a shell would start it."""
    command = [sys.executable, "-c", SCRIPT, str(evaluations), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


@pytest.mark.slow
def test_workers_end_with_the_interpreter(tmp_path):
    script = start(16, tmp_path / "run.h5")
    out, err = script.communicate(timeout=120)
    assert script.returncode == 0 and out.split() == ["8", "16", "evaluations"], err
    assert vanished(group=script.pid)


def test_ctrl_c_ends_the_generation_and_saves(tmp_path):
    """The signal reaches the whole group, as in a terminal; workers leave it to their parent."""
    script = start(10**6, tmp_path / "run.h5")
    assert script.stdout.readline().strip() == "8"
    assert workers(group=script.pid)
    os.killpg(script.pid, 2)
    out, err = script.communicate(timeout=60)
    assert script.returncode == 0 and out.split()[-1] == "interrupt", err
    assert "Traceback" not in err and vanished(group=script.pid)
    assert ag.load_history(tmp_path / "run.h5")["evaluations"][-1] == 8 + 8 * (len(out.split()) - 1)


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = start(10**6, tmp_path / "run.h5")
    assert script.stdout.readline().strip() == "8"
    script.kill()
    script.communicate()
    assert vanished(group=script.pid)


def test_elites_are_evaluated_again(tmp_path):
    with track(noise=0.5) as task:
        optimizer = ag.Optimizer(ag.MapElites(batch_size=16, sigma1=0.5), task, centroids=32)
        optimizer.fit(evaluations=48, checkpoint=tmp_path / "run.h5")
        archive = ag.load_archive(tmp_path / "run.h5")
        again = ag.reevaluate(archive, task, episodes=3)
        assert again.fitness.shape == (len(archive), 3) and again.fitness.std(axis=1).max() > 0
        np.testing.assert_array_equal(ag.reevaluate(archive, task, episodes=3).fitness, again.fitness)
