"""Our tasks as single Gymnasium environments."""

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import asciime_gym as ag
from asciime_gym.tasks import _gl
from asciime_gym.tasks._registration import IDS
from asciime_gym.tasks.gymnasium_env import LocomotionEnv

HOPPER = IDS["hopper_uni"]
LENGTH = 30  # short enough for a hopper that does nothing to stand to the end
OBSERVATION = {"ant_omni": 30, "anttrap_omni": 30, "walker2d_uni": 18, "hopper_uni": 12, "ant_uni": 28}
ACTION = {"ant_omni": 8, "anttrap_omni": 8, "walker2d_uni": 6, "hopper_uni": 3, "ant_uni": 8}
# True bounds are not always finite; Gymnasium's own robots are warned of, too.
UNBOUNDED = "A Box observation space (minimum|maximum) value is -?infinity"


def can_draw() -> bool:
    try:
        return bool(_gl.chosen())
    except _gl.NoRenderer:
        return False


draws = pytest.mark.skipif(not can_draw(), reason="no off-screen OpenGL")


@pytest.fixture
def hopper():
    env = gymnasium.make(HOPPER, episode_length=LENGTH)
    yield env
    env.close()


def robot(env) -> LocomotionEnv:
    assert isinstance(env.unwrapped, LocomotionEnv)
    return env.unwrapped


def checked(name: str, **options):
    env = gymnasium.make(IDS[name], disable_env_checker=True, episode_length=LENGTH).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", f".*{UNBOUNDED}")
        check_env(env, **options)


def test_passes_the_checker():
    checked("hopper_uni", skip_render_check=True)


@draws
def test_passes_the_checker_when_it_renders():
    checked("hopper_uni")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in IDS if name != "hopper_uni"])
def test_every_robot_passes_the_checker(name):
    checked(name, skip_render_check=True)


def test_importing_is_cheap_and_making_is_silent():
    code = f"""
import sys, asciime_gym
from jax._src import xla_bridge
assert not {{"brax", "mujoco", "gymnasium.envs.mujoco.hopper_v5"}} & set(sys.modules), "imported too much"
assert not xla_bridge._backends, "JAX has started"
import gymnasium
assert {set(IDS.values())!r} <= set(gymnasium.registry)
env = gymnasium.make("asciime_gym:{HOPPER}")
print(env.unwrapped.task.name)
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["hopper_uni"]), done.stderr
    ours = [line for line in done.stderr.splitlines() if "rax" in line or "asciime" in line]
    assert not ours


@pytest.mark.parametrize("name", IDS)
def test_spaces_have_true_bounds(name):
    env = gymnasium.make(IDS[name])
    observation: Any = env.observation_space
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (ACTION[name],), np.float32)
    assert observation.shape == (OBSERVATION[name],) and observation.dtype == np.float32
    assert (observation.low[-1], observation.high[-1]) == (0, 1)  # the time that is left
    bounded = np.isfinite(observation.high[:-1])
    place = 2 if name.endswith("omni") else 0
    if name.startswith("ant"):  # the quaternion, after the height
        assert np.flatnonzero(bounded).tolist() == [place + i for i in (1, 2, 3, 4)]
    else:  # the velocities, which Brax clips
        assert bounded.sum() == (OBSERVATION[name]) // 2 and (observation.high[:-1][bounded] == 10).all()
    assert env.spec is not None and env.spec.max_episode_steps is None


def test_an_episode_is_cut_off_by_the_task_itself(hopper):
    observation, info = hopper.reset(seed=0)
    assert observation[-1] == 1 and sorted(info) == ["descriptor", "position"]
    for t in range(1, LENGTH + 1):
        observation, reward, terminated, truncated, info = hopper.step(np.zeros(3))
        assert observation in hopper.observation_space
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert (terminated, truncated) == (False, t == LENGTH)
        assert observation[-1] == pytest.approx(1 - t / LENGTH)
        np.testing.assert_allclose(info["position"][2], observation[0], rtol=1e-6)  # a hopper observes its height
        assert info["descriptor"].shape == (1,) and info["descriptor"][0] in (0, 1)
    with pytest.raises(gymnasium.error.ResetNeeded, match="over"):
        hopper.step(np.zeros(3))


def test_a_fall_is_an_end_not_a_cut(hopper):
    hopper.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        _, _, terminated, truncated, _ = hopper.step([-1.0, -1.0, -1.0])
    assert terminated and not truncated


def test_seeds(hopper):
    first, _ = hopper.reset(seed=7)
    second, _ = hopper.reset()
    assert not np.array_equal(first, second)  # it goes on with its own numbers
    again, _ = hopper.reset(seed=7)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(hopper.reset()[0], second)
    assert not np.array_equal(hopper.reset(seed=8)[0], first)
    large, _ = hopper.reset(seed=2**80 + 7)  # as large as the seeds that chance draws
    assert not np.array_equal(large, first)
    with pytest.raises(gymnasium.error.Error):
        hopper.reset(seed=-1)


def test_no_seed_is_chance():
    starts = [robot(gymnasium.make(HOPPER, episode_length=LENGTH)).reset()[0] for _ in range(2)]
    assert not np.array_equal(starts[0], starts[1])


def test_actions_outside_of_the_space_are_paid_for_but_not_done(hopper):
    rewards, positions = [], []
    for size in (1.0, 3.0):
        hopper.reset(seed=0)
        _, reward, _, _, info = hopper.step(np.full(3, size))
        rewards.append(reward)
        positions.append(info["position"])
    np.testing.assert_allclose(*positions, rtol=1e-6)
    assert rewards[0] - rewards[1] == pytest.approx(1e-3 * 3 * (9 - 1), rel=1e-2)  # Brax: 0.001 of the square


@pytest.mark.parametrize(
    "action",
    [np.zeros(4), np.zeros((1, 3)), 0.0, [0.0, np.nan, 0.0], [np.inf, 0, 0], [1e300, 0, 0], "walk", [[1], [2, 3]]],
)
def test_refused_actions_change_nothing(hopper, action):
    hopper.reset(seed=0)
    state = robot(hopper).state
    with pytest.raises(ValueError, match=r"actions must"):
        robot(hopper).step(action)
    assert robot(hopper).state is state
    hopper.step([0, 0, 0])  # a list, and whole numbers, will do


def test_order_and_options(hopper):
    env = robot(hopper)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(3))
    with pytest.raises(gymnasium.error.Error, match="rgb_array"):
        env.render()
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()
    with pytest.raises(ValueError, match="render_mode"):
        LocomotionEnv(render_mode="ascii")
    with pytest.raises(ValueError, match="unknown backend"):
        LocomotionEnv(backend="newton")
    with pytest.raises(ValueError, match="unknown task"):
        LocomotionEnv(task="hopper")


def test_environments_of_a_kind_share_their_programs():
    first, second, other = (LocomotionEnv(episode_length=length) for length in (LENGTH, LENGTH, LENGTH + 1))
    assert first._programs is second._programs and first._programs is not other._programs


def test_with_statistics(hopper):
    env = gymnasium.wrappers.RecordEpisodeStatistics(hopper)
    _, info = env.reset(seed=0)
    total = 0.0
    for _ in range(LENGTH):
        _, reward, _, _, info = env.step(np.zeros(3))
        total += float(reward)
    assert info["episode"]["l"] == LENGTH
    assert info["episode"]["r"] == pytest.approx(total)


@draws
def test_renders():
    env = gymnasium.make(HOPPER, render_mode="rgb_array", width=64, height=48, episode_length=LENGTH)
    env.reset(seed=0)
    first: Any = env.render()
    for _ in range(7):
        env.step([-1.0, -1.0, -1.0])
    second: Any = env.render()
    assert first.shape == second.shape == (48, 64, 3) and not np.array_equal(first, second)
    env.close()


@draws
def test_with_a_video(tmp_path):
    pytest.importorskip("moviepy")
    env = gymnasium.make(HOPPER, episode_length=LENGTH, render_mode="rgb_array", width=64, height=48)
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "videos"), episode_trigger=lambda episode: True)
    env.reset(seed=0)
    for _ in range(5):
        env.step(np.zeros(3))
    env.close()
    (video,) = (tmp_path / "videos").glob("*.mp4")
    assert video.stat().st_size > 500
    assert env.metadata["render_fps"] == 125  # a hopper's step is 8 ms


@pytest.mark.slow
def test_the_return_of_a_policy_is_its_fitness(hopper):
    task = ag.make_task("hopper_uni", episode_length=LENGTH)
    key = jax.random.key(0)
    genotypes = 3 * task.policy.init(jax.random.key(1))[None]
    evaluation = task.evaluate(genotypes, key)
    assert evaluation.trajectory is not None
    env = robot(hopper)
    env.reset()
    env.state = state = jax.jit(task.reset)(jax.random.fold_in(key, 0))
    observation, total, descriptors, over = state.observation, 0.0, [], False
    while not over:
        action = task.policy.act(genotypes[0], jnp.asarray(observation))
        observation, reward, terminated, truncated, info = env.step(action)
        total, over = total + reward, terminated or truncated
        descriptors.append(info["descriptor"])
    assert len(descriptors) == int(evaluation.steps[0])
    assert total == pytest.approx(float(evaluation.fitness[0]), rel=1e-2)
    np.testing.assert_allclose(np.mean(descriptors, 0), evaluation.descriptor[0], atol=0.1)
