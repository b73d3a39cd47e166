"""Our tasks as Gymnasium vector environments.

Gymnasium has no checker for these: here every output is compared, step by step, with what Gymnasium's own vector
environment makes of our single one.
"""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, NormalizeObservation, RecordEpisodeStatistics
from test_gymnasium_env import draws

from asciime_gym.tasks._registration import IDS
from asciime_gym.tasks.gymnasium_env import LocomotionEnv
from asciime_gym.tasks.gymnasium_vector import LocomotionVectorEnv

HOPPER = IDS["hopper_uni"]
LENGTH = 30
COUNT = 3
MODES = tuple(AutoresetMode)
FALL = -1.0  # as every action: the hopper lies after 8 steps


def make(mode=AutoresetMode.NEXT_STEP, count=COUNT, name="hopper_uni", **options) -> LocomotionVectorEnv:
    options = {"episode_length": LENGTH, **options}
    made = gymnasium.make_vec(IDS[name], num_envs=count, autoreset_mode=mode, **options)
    assert isinstance(made, LocomotionVectorEnv)
    return made


def gymnasiums_own(mode, count=COUNT, name="hopper_uni", **options) -> SyncVectorEnv:
    options = {"episode_length": LENGTH, **options}
    return SyncVectorEnv([lambda: gymnasium.make(IDS[name], **options)] * count, autoreset_mode=mode)


def singles(reference: SyncVectorEnv) -> list[LocomotionEnv]:
    robots = [env.unwrapped for env in reference.envs]
    assert all(isinstance(robot, LocomotionEnv) for robot in robots)
    return robots  # type: ignore[return-value]


def level(ours: LocomotionVectorEnv, reference: SyncVectorEnv):
    """Puts the single environments where ours are, since two compiled programs drift apart."""
    states = ours.states
    for i, robot in enumerate(singles(reference)):
        robot.state = jax.tree.map(lambda leaf, i=i: leaf[i], states)


def same(ours: Any, expected: Any, path: str = ""):
    """Equal in kind, shape and dtype; numbers up to the rounding of one step."""
    assert type(ours) is type(expected), path
    if isinstance(expected, dict):
        assert ours.keys() == expected.keys(), path
        for key, value in expected.items():
            same(ours[key], value, f"{path}/{key}")
    elif isinstance(expected, tuple):
        assert len(ours) == len(expected), path
        for i, value in enumerate(expected):
            same(ours[i], value, f"{path}/{i}")
    elif expected is not None:
        assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype), path
        if expected.dtype == object:
            for i, value in enumerate(expected):
                same(ours[i], value, f"{path}[{i}]")
        elif np.issubdtype(expected.dtype, np.floating):
            np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3, err_msg=path)
        else:
            np.testing.assert_array_equal(ours, expected, err_msg=path)


def action(rng: np.random.Generator, size: int, count: int = COUNT) -> np.ndarray:
    """One that falls, one that stands still, and others that do anything."""
    actions = rng.uniform(-1, 1, (count, size)).astype(np.float32)
    actions[0], actions[1] = FALL, 0.0
    return actions


def compare(mode, steps: int, **options) -> tuple[int, int]:
    """Steps ours and Gymnasium's own side by side; how many ends and how many cuts there were."""
    ours, reference = make(mode, **options), gymnasiums_own(mode, **options)
    assert (ours.num_envs, ours.metadata) == (reference.num_envs, reference.metadata)
    for space in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, space) == getattr(reference, space)
    same(ours.reset(seed=5), reference.reset(seed=5), "reset")
    rng, ends, cuts = np.random.default_rng(0), 0, 0
    for t in range(steps):
        actions = action(rng, ours.task.policy.act_size)
        level(ours, reference)
        result, expected = ours.step(actions), reference.step(actions)
        same(result, expected, f"step {t}")
        assert all(observation in ours.single_observation_space for observation in result[0])
        ends, cuts, over = ends + result[2].sum(), cuts + result[3].sum(), result[2] | result[3]
        if mode == AutoresetMode.DISABLED and over.any():
            level(ours, reference)
            options_ = [{"reset_mask": over.copy()} for _ in range(2)]
            same(ours.reset(options=options_[0]), reference.reset(options=options_[1]), f"reset after {t}")
    ours.close()
    reference.close()
    return ends, cuts


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_is_what_gymnasium_makes_of_the_single_environment(mode):
    ends, cuts = compare(mode, 2 * LENGTH + 4)
    assert ends >= 6 and cuts >= 2  # two whole episodes at least of each


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), [("ant_omni", "spring"), ("hopper_uni", "positional")])
def test_other_robots_and_physics_are_too(name, backend):
    ends, cuts = compare(AutoresetMode.NEXT_STEP, LENGTH + 3, name=name, backend=backend)
    assert ends + cuts >= COUNT  # every one has come to its end once


@pytest.mark.parametrize("mode", MODES)
def test_jax_arrays_hold_the_same(mode):
    ours, on_device = make(mode), make(mode, array_type="jax")
    assert on_device.metadata["jax"]
    first, (observations, infos) = ours.reset(seed=3), on_device.reset(seed=3)
    np.testing.assert_array_equal(first[0], observations)
    rng = np.random.default_rng(1)
    for _ in range(LENGTH + 2):
        actions = action(rng, 3)
        expected, result = ours.step(actions), on_device.step(jax.numpy.asarray(actions))
        leaves = jax.tree.leaves(result)
        assert all(isinstance(leaf, jax.Array) and leaf.devices() == leaves[0].devices() for leaf in leaves)
        for ours_part, part in zip(expected[:4], result[:4], strict=True):
            np.testing.assert_array_equal(ours_part, part)
        infos = result[4]
        for name in ("descriptor", "position", "_descriptor", "_position"):
            np.testing.assert_array_equal(infos[name], expected[4][name])
        over = expected[2] | expected[3]
        if mode == AutoresetMode.SAME_STEP:  # whole arrays, there at every step
            np.testing.assert_array_equal(infos["_final_obs"], over)
            np.testing.assert_array_equal(infos["_final_info"], over)
            for i in np.flatnonzero(over):
                np.testing.assert_array_equal(infos["final_obs"][i], expected[4]["final_obs"][i])
                np.testing.assert_array_equal(
                    infos["final_info"]["position"][i], expected[4]["final_info"]["position"][i]
                )
        if mode == AutoresetMode.DISABLED and over.any():
            ours.reset(options={"reset_mask": over})
            on_device.reset(options={"reset_mask": jax.numpy.asarray(over)})


def test_outputs_are_new_and_may_be_written_to():
    venv = make()
    kept = [venv.reset(seed=0)[0]]
    for _ in range(3):
        observations, rewards, terminations, truncations, infos = venv.step(np.zeros((COUNT, 3)))
        for array in (observations, rewards, terminations, truncations, *infos.values()):
            assert array.flags.writeable
        kept.append(observations)
    copies = [array.copy() for array in kept]
    kept[-1][:] = 0
    venv.step(np.zeros((COUNT, 3)))
    for array, copy in zip(kept[:-1], copies, strict=False):
        np.testing.assert_array_equal(array, copy)


def test_seeds():
    venv = make()
    first, _ = venv.reset(seed=10)
    second, _ = venv.reset()
    assert len({row.tobytes() for row in [*first, *second]}) == 2 * COUNT  # each begins in its own way, every time
    np.testing.assert_array_equal(venv.reset(seed=10)[0], first)
    np.testing.assert_array_equal(venv.reset()[0], second)
    shifted, _ = venv.reset(seed=11)
    np.testing.assert_array_equal(shifted[:-1], first[1:])
    listed, _ = venv.reset(seed=[12, 10, None])
    np.testing.assert_array_equal(listed[:2], first[[2, 0]])
    assert not any(np.array_equal(listed[2], row) for row in [*first, *second, *shifted])
    with pytest.raises(ValueError, match="one for each of 3"):
        venv.reset(seed=[1, 2])
    with pytest.raises(gymnasium.error.Error):
        venv.reset(seed=-1)
    np.testing.assert_array_equal(venv.reset(seed=np.int64(10))[0], first)


def test_no_seed_is_chance_that_can_be_told():
    venv = make()
    first, _ = venv.reset()
    assert not np.array_equal(first, make().reset()[0])
    np.testing.assert_array_equal(make().reset(seed=venv.np_random_seed)[0], first)


def test_episodes_are_reproducible():
    def play():
        venv = make(AutoresetMode.SAME_STEP)
        rows = [venv.reset(seed=2)[0]]
        rng = np.random.default_rng(2)
        rows += [venv.step(action(rng, 3))[0] for _ in range(LENGTH)]
        return np.array(rows)

    np.testing.assert_array_equal(play(), play())


def test_every_beginning_is_a_new_one():
    venv = make(AutoresetMode.SAME_STEP)
    begun = [*venv.reset(seed=0)[0]]
    for _ in range(40):
        observations, _, terminations, _, _ = venv.step(np.full((COUNT, 3), FALL))
        begun += [*observations[terminations]]
    assert len(begun) > 10 and len({row.tobytes() for row in begun}) == len(begun)


@pytest.mark.parametrize(
    "actions", [np.zeros((COUNT, 4)), np.zeros(3), np.zeros((1, COUNT, 3)), np.full((COUNT, 3), np.nan), "walk", None]
)
def test_refused_actions_change_nothing(actions):
    venv, other = make(), make()
    venv.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(ValueError, match="actions must"):
        venv.step(actions)
    np.testing.assert_array_equal(venv.step([[0.0, 0, 0]] * COUNT)[0], other.step(np.zeros((COUNT, 3), np.float64))[0])
    on_device = make(array_type="jax")
    on_device.reset(seed=0)
    with pytest.raises(ValueError, match="shape"):
        on_device.step(jax.numpy.zeros((COUNT, 2)))


def test_reset_mask():
    venv = make(AutoresetMode.DISABLED)
    mask = np.array([True, False, False])
    with pytest.raises(gymnasium.error.ResetNeeded, match="first reset"):
        venv.reset(options={"reset_mask": mask})
    venv.reset(seed=0)
    before, *_ = venv.step(np.zeros((COUNT, 3)))
    options = {"reset_mask": mask}
    after, infos = venv.reset(options=options)
    assert options["reset_mask"] is mask  # it is the user's
    np.testing.assert_array_equal(after[1:], before[1:])
    assert after[0, -1] == 1 and before[0, -1] < 1
    assert infos["_position"].tolist() == mask.tolist() and not infos["position"][1:].any()
    for wrong, problem in (
        ([True, False, False], TypeError),
        (np.array([1, 0, 0]), TypeError),
        (np.array([True, False]), ValueError),
        (np.zeros(COUNT, bool), ValueError),
    ):
        with pytest.raises(problem, match="reset_mask"):
            venv.reset(options={"reset_mask": wrong})


def test_nothing_goes_on_by_itself_when_that_is_disabled():
    venv = make(AutoresetMode.DISABLED)
    venv.reset(seed=0)
    over = np.zeros(COUNT, bool)
    while not over.any():
        _, _, terminations, truncations, _ = venv.step(action(np.random.default_rng(0), 3))
        over = terminations | truncations
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[0\]"):
        venv.step(np.zeros((COUNT, 3)))
    venv.reset(options={"reset_mask": over})
    venv.step(np.zeros((COUNT, 3)))


def test_order_options_and_spec():
    venv = gymnasium.make_vec(f"asciime_gym:{HOPPER}", num_envs=2, episode_length=LENGTH)
    assert isinstance(venv, LocomotionVectorEnv) and venv.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert venv.spec is not None and venv.spec.id == HOPPER and venv.spec.max_episode_steps is None
    again = gymnasium.make_vec(venv.spec)
    assert again.num_envs == 2 and again.unwrapped.task.episode_length == LENGTH  # type: ignore[attr-defined]
    assert repr(venv) == f"LocomotionVectorEnv({HOPPER}, num_envs=2)"
    with pytest.raises(gymnasium.error.ResetNeeded):
        venv.step(venv.action_space.sample())
    with pytest.raises(gymnasium.error.Error, match="rgb_array"):
        venv.render()
    venv.close()
    venv.close()
    assert venv.closed
    for call in (venv.reset, lambda: venv.step(venv.action_space.sample())):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError):
            call()
    for wrong in ({"num_envs": 0}, {"array_type": "torch"}, {"autoreset_mode": "later"}):
        with pytest.raises(ValueError):
            LocomotionVectorEnv(**{"num_envs": 1, **wrong})


def test_an_interrupted_step_asks_for_a_reset():
    venv = make()
    first, _ = venv.reset(seed=0)
    programs = venv._programs

    def interrupted(*_):
        raise KeyboardInterrupt

    venv._programs = programs._replace(step=interrupted)
    with pytest.raises(KeyboardInterrupt):
        venv.step(np.zeros((COUNT, 3)))
    venv._programs = programs
    with pytest.raises(gymnasium.error.ResetNeeded):
        venv.step(np.zeros((COUNT, 3)))
    assert not np.array_equal(venv.reset()[0], first)


@pytest.mark.parametrize("mode", MODES)
def test_with_statistics(mode):
    venv = RecordEpisodeStatistics(make(mode))
    venv.reset(seed=0)
    returns, lengths, over = np.zeros(COUNT), np.zeros(COUNT, int), np.zeros(COUNT, bool)
    seen = 0
    for _ in range(2 * LENGTH):
        resetting = over if mode == AutoresetMode.NEXT_STEP else np.zeros(COUNT, bool)
        _, rewards, terminations, truncations, infos = venv.step(action(np.random.default_rng(0), 3))
        returns, lengths = returns + np.where(resetting, 0, rewards), lengths + ~resetting
        over = terminations | truncations
        if over.any():
            np.testing.assert_allclose(infos["episode"]["r"][over], returns[over])
            np.testing.assert_array_equal(infos["episode"]["l"][over], lengths[over])
            returns[over], lengths[over], seen = 0, 0, seen + over.sum()
            if mode == AutoresetMode.DISABLED:
                venv.reset(options={"reset_mask": over.copy()})
    assert seen > 5


def test_with_normalized_observations_and_lists_of_infos():
    venv = NormalizeObservation(make())
    observations, _ = venv.reset(seed=0)
    for _ in range(LENGTH):
        observations, *_ = venv.step(venv.action_space.sample())
    assert observations.dtype == np.float32 and np.isfinite(observations).all()
    listed = DictInfoToList(make())
    _, infos = listed.reset(seed=0)
    assert [sorted(info) for info in infos] == [["descriptor", "position"]] * COUNT


def test_with_a_conversion_of_arrays():
    pytest.importorskip("array_api_compat")
    from gymnasium.wrappers.vector import JaxToNumpy

    venv, ours = JaxToNumpy(make(array_type="jax")), make()
    same(venv.reset(seed=0), ours.reset(seed=0))
    result, expected = venv.step(np.zeros((COUNT, 3), np.float32)), ours.step(np.zeros((COUNT, 3)))
    same(result[0], expected[0])
    same(result[4], expected[4])
    assert result[2].dtype == bool


@draws
def test_renders():
    venv = make(render_mode="rgb_array", width=64, height=48)
    venv.reset(seed=0)
    venv.step(action(np.random.default_rng(0), 3))
    pictures: Any = venv.render()
    assert isinstance(pictures, tuple) and [picture.shape for picture in pictures] == [(48, 64, 3)] * COUNT
    assert not np.array_equal(pictures[0], pictures[1])
    venv.close()


@pytest.mark.slow
def test_many_on_several_devices_are_as_few_on_one():
    """What a robot does depends neither on how many others there are nor on where it is computed."""
    many, few = make(count=600), make(count=COUNT)
    assert many._programs.everywhere.mesh.size == min(2, jax.local_device_count())
    np.testing.assert_array_equal(many.reset(seed=4)[0][:COUNT], few.reset(seed=4)[0])
    rng = np.random.default_rng(4)
    for _ in range(2 * LENGTH):
        actions = action(rng, 3, 600)
        for ours, part in zip(many.step(actions)[:4], few.step(actions[:COUNT])[:4], strict=True):
            np.testing.assert_array_equal(ours[:COUNT], part)


@pytest.mark.slow
def test_many_steps_may_be_on_their_way():
    """Nobody looks at JAX arrays between steps, and devices do not wait for each other."""
    here, there = make(count=600), make(count=600, array_type="jax")
    here.reset(seed=4)
    there.reset(seed=4)
    actions = action(np.random.default_rng(4), 3, 600)
    outcome = None
    for _ in range(400):
        outcome = there.step(actions)
    for _ in range(400):
        seen = here.step(actions)
    assert outcome is not None and outcome[0].shape == (600, 12)
    np.testing.assert_array_equal(outcome[0], seen[0])
