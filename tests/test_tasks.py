"""The five tasks against Brax itself, and their arithmetic against plain Python."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import same

import asciime_gym as ag
from asciime_gym._compile import compiled
from asciime_gym.tasks._brax import brax
from asciime_gym.tasks.lanes import lanes
from asciime_gym.tasks.rollout import rollout

TABLE = {  # observation, action, parameters, descriptor, bound, length of the descriptor
    "ant_omni": (30, 8, 6664, "final", (-30, 30), 2),
    "anttrap_omni": (30, 8, 6664, "final", (-30, 30), 2),
    "walker2d_uni": (18, 6, 5766, "mean", (0, 1), 2),
    "hopper_uni": (12, 3, 5187, "mean", (0, 1), 1),
    "ant_uni": (28, 8, 6536, "mean", (0, 1), 4),
}
FEET = {"walker2d_uni": ("foot", "foot_left"), "hopper_uni": ("foot",), "ant_uni": (2, 4, 6, 8)}
ROWS = 6
each_task = pytest.mark.parametrize("name", TABLE)
# What needs whole episodes takes half a minute a robot, most of it to compile them.
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in TABLE if name != "hopper_uni"]
each_played = pytest.mark.parametrize("name", ["hopper_uni", *OTHERS])


@each_task
def test_dimensions(name, tasks):
    task = tasks[name]
    assert tuple(ag.TASKS) == tuple(TABLE)
    observation, action, parameters, kind, (low, high), dims = TABLE[name]
    assert (task.policy.obs_size, task.policy.act_size, task.policy.size) == (observation, action, parameters)
    assert task.episode_length == 250 and task.episode_descriptor == kind
    assert task.descriptor_low == (low,) * dims and task.descriptor_high == (high,) * dims
    assert len(task.descriptor_names) == dims
    state = jax.eval_shape(task.reset, jax.random.key(0))
    assert state.observation.shape == (observation,) and state.descriptor.shape == (dims,)


def play(task):
    """Episodes of lively policies: their evaluation, and every state that they went through."""
    genotypes = jax.vmap(task.policy.init)(jax.random.split(jax.random.key(1), ROWS))
    last = task.policy.act_size * 65  # the last layer starts tiny; from still to wild
    genotypes = genotypes.at[:, -last:].multiply(jnp.array([0, 30, 60, 90, 120, 200.0])[:, None])
    keys = jax.random.split(jax.random.key(2), ROWS)
    episodes = compiled(lambda g, k: rollout(task, g, k, keep=lambda state: state))  # as users have them
    evaluation, states = episodes(genotypes, keys)
    first = jax.jit(jax.vmap(task.reset))(keys)
    before = jax.tree.map(lambda a, rest: jnp.concatenate([a[:, None], rest[:, :-1]], axis=1), first, states)
    again = episodes(genotypes[::-1], keys[::-1])
    return evaluation, before, states, jax.tree.map(lambda leaf: leaf[::-1], again)


@pytest.fixture(scope="module")
def played(tasks):
    """`play` for each task, once."""
    return functools.cache(lambda name: play(tasks[name]))


def flat(tree):
    """Rows and steps as one axis."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def shake(tree, seed):
    """The tree with every number off by about one part in a million."""
    noise = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x * (1 + 1e-6 * noise.uniform(-1, 1, x.shape).astype(np.float32)), tree)


@each_played
def test_every_step_is_braxs_own(name, tasks, played):
    task = tasks[name]
    evaluation, before, after, _ = played(name)
    trajectory = evaluation.trajectory
    alive = np.asarray(trajectory.alive).reshape(-1)
    env = task.env if name == "anttrap_omni" else brax().envs.get_environment(task.robot.brax_name, backend="spring")

    def reference(physics, action):
        zero = jnp.zeros(())
        state = env.step(brax().envs.State(physics, zero, zero, zero, metrics={}), action)
        contact = brax().contact.get(env.sys, state.pipeline_state.x)
        return state, contact.dist, jnp.stack(contact.link_idx)

    reference = jax.jit(jax.vmap(reference))
    physics, action = flat(before.physics), flat(trajectory.action)
    state, dist, link = reference(physics, action)
    # Where a contact is about to begin or end, Brax itself jumps: how far, when its input moves by a rounding error?
    shaken = [reference(shake(physics, seed), action)[0] for seed in range(4)]
    jump = lambda part: np.max([np.abs(np.asarray(getattr(s, part) - getattr(state, part))) for s in shaken], axis=0)
    ours = flat(after)
    observation = np.asarray(state.obs)
    time = np.tile((250 - (np.arange(250) + 1)) / 250, ROWS)[:, None]
    if name in FEET:
        feet = [env.sys.link_names.index(foot) if isinstance(foot, str) else foot for foot in FEET[name]]
        reward = np.asarray(state.reward)
        near = [np.where((np.asarray(link) == foot).any(axis=1), dist, np.inf).min(axis=1) for foot in feet]
        distance = np.stack(near, axis=1)
        clear = alive[:, None] & (np.abs(distance) > 1e-5)
        assert ((distance <= 0) == (np.asarray(ours.descriptor) == 1))[clear].all()
        assert clear.mean() > 0.8 * alive.mean()
        observation = np.concatenate([observation, time], axis=1)
    else:
        action = np.asarray(flat(trajectory.action), float)
        reward = 1 - 0.5 * (action**2).sum(axis=1) + 3.03
        place = np.asarray(state.pipeline_state.x.pos[:, 0, :2])
        np.testing.assert_allclose(ours.descriptor[alive], place[alive], rtol=1e-4, atol=1e-5)
        observation = np.concatenate([place / 30, observation, time], axis=1)

    def agree(mine, braxs, jump):
        off = np.abs(mine - braxs) - (1e-5 + 1e-4 * np.abs(braxs))
        assert (off <= 2 * jump)[alive].all()
        assert (off <= 0)[alive].mean() > 0.99  # and that is rare

    agree(ours.observation, observation, np.pad(jump("obs"), ((0, 0), (0 if name in FEET else 2, 1))))
    agree(ours.reward, np.maximum(reward, 0), jump("reward"))
    agree(1.0 * ours.terminated, np.asarray(state.done), jump("done"))


@each_played
def test_arithmetic_of_an_episode(name, played):
    evaluation, _, states, _ = played(name)
    trajectory, places = jax.tree.map(np.asarray, (evaluation.trajectory, states.descriptor))
    for row in range(ROWS):
        fitness, steps, descriptors, ended = np.float32(0), 0, [], False
        for t in range(250):
            assert trajectory.alive[row, t] == (not ended)
            if ended:
                assert not any(
                    np.any(getattr(trajectory, part)[row, t]) for part in ("observation", "action", "reward")
                )
                assert not trajectory.terminated[row, t]
                continue
            assert trajectory.reward[row, t] >= 0
            fitness, steps = fitness + trajectory.reward[row, t], steps + 1
            descriptors.append(places[row, t].astype(float))
            ended = bool(trajectory.terminated[row, t])
        descriptor = np.mean(descriptors, axis=0) if name in FEET else np.clip(descriptors[-1], -30, 30)
        np.testing.assert_allclose(evaluation.fitness[row], fitness, rtol=1e-6)
        np.testing.assert_allclose(evaluation.descriptor[row], descriptor, rtol=1e-5, atol=1e-6)
        assert int(evaluation.steps[row]) == steps
        value, future = np.zeros(250), 0.0
        for t in reversed(range(steps)):
            future = trajectory.reward[row, t] + 0.99 * future
            value[t] = future
        one = jax.tree.map(lambda leaf, row=row: jnp.asarray(leaf[row]), trajectory)
        np.testing.assert_allclose(ag.AsciiME().keepsake(one).reward_to_go, value, rtol=1e-5, atol=1e-4)


@pytest.mark.slow
def test_some_fall_and_some_do_not(played):
    steps = np.concatenate([np.asarray(played(name)[0].steps) for name in ("hopper_uni", "walker2d_uni")])
    assert (steps < 250).any() and (steps == 250).any()


@pytest.mark.slow
def test_a_motionless_ant_scores_what_it_should(played):
    np.testing.assert_allclose(played("ant_omni")[0].fitness[0], 250 * 4.03, rtol=1e-5)


@each_played
def test_rows_do_not_depend_on_where_they_stand(name, played):
    evaluation, _, states, (evaluation_again, states_again) = played(name)
    assert same((evaluation, states), (evaluation_again, states_again))


@pytest.mark.parametrize("name", ["walker2d_uni", "ant_uni", "hopper_uni"])
def test_feet_are_told_apart(name, tasks):
    """With the robot in the air and one foot put on the ground, that foot alone touches."""
    task = tasks[name]
    describe = jax.jit(task._describe)
    physics = task.env.reset(jax.random.key(0)).pipeline_state
    lifted = physics.x.pos.at[:, 2].add(10.0)
    feet = [task.env.sys.link_names.index(foot) if isinstance(foot, str) else foot for foot in FEET[name]]
    assert describe(physics.replace(x=physics.x.replace(pos=lifted))).tolist() == [0.0] * len(feet)
    for number, foot in enumerate(feet):
        one_down = lifted.at[foot, 2].set(-0.2)
        flags = describe(physics.replace(x=physics.x.replace(pos=one_down)))
        assert flags.tolist() == [float(number == other) for other in range(len(feet))]


def slide(env, start, velocity):
    """Where an ant gets that is thrown along the ground and left to itself, and its physics on the way."""
    zero = jnp.zeros(())
    q = env.sys.init_q.at[:2].set(start)
    qd = jnp.zeros(env.sys.qd_size()).at[:2].set(velocity)

    def step(physics, _):
        state = env.step(brax().envs.State(physics, zero, zero, zero, metrics={}), jnp.zeros(8))
        return state.pipeline_state, (state.pipeline_state.x.pos[0, :2], physics)

    return jax.lax.scan(step, env.pipeline_init(q, qd), None, 60)[1]


@pytest.mark.slow
def test_the_trap_holds(tasks):
    run = {name: jax.jit(lambda s, v, env=tasks[name].env: slide(env, s, v)) for name in ("anttrap_omni", "ant_omni")}

    def paths(start, velocity):
        return [np.asarray(run[name](jnp.asarray(start), jnp.asarray(velocity))[0]) for name in run]

    trapped, free = paths([8.0, 0.0], [9.0, 0.0])  # at the back wall
    assert free[:, 0].max() > 12 and 10 < trapped[:, 0].max() < 12
    trapped, free = paths([9.5, 0.0], [0.0, 9.0])  # at a side wall
    assert free[:, 1].max() > 3.5 and 1 < trapped[:, 1].max() < 3
    trapped, free = paths([9.5, 0.0], [-9.0, 0.0])  # towards the origin it is open
    np.testing.assert_allclose(trapped, free, atol=1e-3)
    assert trapped[:, 0].min() < 6.5


@pytest.mark.slow
def test_lanes_meet_the_walls(tasks):
    """Steps in lanes are Brax's own also where an ant hits a wall."""
    task = tasks["anttrap_omni"]
    throw = jax.jit(jax.vmap(lambda start, velocity: slide(task.env, start, velocity)[1]))
    thrown = throw(jnp.array([[8.0, 0.0], [9.5, 0.0]]), jnp.array([[9.0, 0.5], [1.0, 9.0]]))
    physics = flat(thrown)
    count = physics.x.pos.shape[0]
    first = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), count))
    states = eqx.tree_at(lambda state: state.physics, first, physics)
    action = jax.random.uniform(jax.random.key(1), (count, 8), minval=-1.0)
    one = jax.jit(jax.vmap(task.step))
    reference = one(states, action)
    shaken = [one(eqx.tree_at(lambda state: state.physics, states, shake(physics, seed)), action) for seed in range(4)]
    jump = np.max([np.abs(np.asarray(s.observation - reference.observation)) for s in shaken], axis=0)
    last = lambda tree: jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), tree)
    ours = np.asarray(lanes(task.step)(last(states), last(action)).observation).T
    off = np.abs(ours - reference.observation) - (1e-5 + 1e-4 * np.abs(reference.observation))
    assert (off <= 2 * jump).all() and (off <= 0).mean() > 0.99
    # and the walls did make a difference: the same steps without them
    free = jax.jit(jax.vmap(tasks["ant_omni"].step))(states, action)
    differs = np.abs(np.asarray(free.observation - reference.observation)).max(axis=1) > 1e-2
    assert differs.sum() > 5


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["positional", "generalized", "mjx"])
def test_other_backends_run(backend):
    task = ag.make_task("hopper_uni", backend=backend, episode_length=5)
    genotypes = jax.vmap(task.policy.init)(jax.random.split(jax.random.key(0), 2))
    result = task.evaluate(genotypes, jax.random.key(1))
    assert np.isfinite(result.fitness).all() and (result.fitness > 0).all() and (result.steps == 5).all()


@pytest.mark.slow
@each_task
def test_every_task_builds_on_every_backend(name):
    for backend in ("spring", "positional", "generalized", "mjx"):
        task = ag.make_task(name, backend=backend)
        after = jax.eval_shape(
            task.step, jax.eval_shape(task.reset, jax.random.key(0)), jnp.zeros(task.policy.act_size)
        )
        assert after.observation.shape == (task.policy.obs_size,)


@pytest.mark.slow
def test_replay_goes_through_the_same_episode(tasks):
    task = tasks["hopper_uni"]
    genotypes = jax.vmap(task.policy.init)(jax.random.split(jax.random.key(0), 3))
    keys = jax.random.split(jax.random.key(5), 3)
    evaluation, physics = task.replay(genotypes[2], keys[2])
    np.testing.assert_allclose(evaluation.fitness[0], task.episodes(genotypes, keys).fitness[2], rtol=1e-4)
    assert physics.x.pos.shape == (250, 4, 3)


def test_nothing_is_printed_or_warned():
    import subprocess
    import sys

    code = "import asciime_gym as ag; ag.make_task('anttrap_omni').env; ag.make_task('hopper_uni').env"
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Brax" not in done.stderr and "warp" not in done.stderr, done.stderr


def test_seeds_give_fresh_resets(tasks):
    task = tasks["hopper_uni"]
    first, second = jax.jit(jax.vmap(task.reset))(jax.random.split(jax.random.key(0), 2)).observation
    assert not np.allclose(first, second)
    assert first[-1] == 1.0
