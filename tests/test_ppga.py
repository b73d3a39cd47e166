"""PPGA: the soft archive by hand, the way its directions point, and what it counts."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ALGORITHMS, Walk, same
from test_ppo import Aim

import asciime_gym as ag
from asciime_gym.algorithms._soft_archive import improvement, raised
from asciime_gym.algorithms.ppga import Ppga
from asciime_gym.learning.normalise import Normaliser

TASK = Walk()
SMALL = ALGORITHMS["ppga"]
COST = 24 + -(-16 * 8 * 2 * (1 + 3) // 12)  # evaluations of a generation: offspring, and episodes' worth of PPO's steps
GENERATIONS = 4


def spent(generations: int) -> int:
    """Evaluations after so many generations: the initial one costs no more than its rows."""
    return 24 + COST * (generations - 1)


def optimizer(seed=0, algorithm=SMALL, task=TASK) -> ag.Optimizer:
    return ag.Optimizer(algorithm, task, seed=seed, centroids=64)


def fitted(generations=GENERATIONS, seed=0, **options) -> ag.Optimizer:
    made = optimizer(seed)
    made.fit(evaluations=spent(generations), **options)
    return made


# Settings -------------------------------------------------------------------------------------------------------


def test_defaults_are_the_papers():
    ppga = Ppga()
    assert (ppga.batch_size, ppga.environments, ppga.rollout, ppga.minibatches, ppga.epochs) == (300, 6000, 64, 8, 4)
    assert (ppga.walk_iterations, ppga.gradient_iterations, ppga.critic_hidden) == (10, 10, (256, 256))
    assert (ppga.clip, ppga.value_coefficient, ppga.max_gradient_norm, ppga.learning_rate) == (0.2, 2.0, 1.0, 1e-3)
    assert (ppga.discount, ppga.trace) == (0.99, 0.95)
    assert (ppga.archive_learning_rate, ppga.threshold_min, ppga.sigma0) == (0.1, -500.0, 1.0)
    for directions, evaluations in ((2, 46_080), (5, 92_160)):
        assert ppga._steps(directions) == 250 * evaluations < 2**31


def test_settings_of_the_tasks():
    of = lambda ppga: (ppga.archive_learning_rate, ppga.threshold_min, ppga.sigma0, ppga.environments)
    for name in ag.TASKS:
        expected = (0.1, -500.0, 3.0) if "ant" in name else (0.5, 200.0, 1.0)
        assert of(Ppga.for_task(name)) == (*expected, 6000)
        assert of(Ppga.for_task(name, small=True)) == (*expected, Ppga.small().environments)
    assert Ppga.for_task("hopper_uni", sigma0=0.5).sigma0 == 0.5
    with pytest.raises(ValueError, match=r"unknown task 'hopper'.*hopper_uni"):
        Ppga.for_task("hopper")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"environments": 10, "rollout": 10, "minibatches": 7}, "100 steps of an iteration.*into 7 minibatches"),
        ({"sigma0": 0.0}, "sigma0 must be above 0"),
        ({"threshold_min": -np.inf}, "threshold_min must be finite"),
        ({"trace": 1.1}, "trace must be between 0 and 1"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
    ],
)
def test_nonsense_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Ppga(**fields)


def test_what_cannot_be_stepped_is_refused():
    problem = ag.Problem(policy=TASK.policy, descriptor_low=[0.0], descriptor_high=[1.0], episode_length=12)
    with pytest.raises(TypeError, match=r"needs a task whose reset and step .*A Problem has none, and a GymnasiumTask"):
        ag.Optimizer(SMALL, problem)


def test_so_is_what_steps_outside_of_the_program():
    place = ag.FinalObservation(0, 1)
    task = ag.GymnasiumTask(
        "Pendulum-v1", descriptor=place, descriptor_low=[-1, -1], descriptor_high=[1, 1], vectorization="sync"
    )
    with pytest.raises(TypeError, match=r"a GymnasiumTask steps outside of it\. Other algorithms do without"):
        ag.Optimizer(SMALL, task)
    task.close()


def test_a_policy_that_is_no_mlp_is_refused():
    policy = ag.EquinoxPolicy(lambda key: eqx.nn.Linear(5, 2, key=key), 5, 2)
    with pytest.raises(TypeError, match=r"have to be MLPs.*default_policy.*got a EquinoxPolicy"):
        ag.Optimizer(SMALL, Walk(policy=policy))


# The soft archive -----------------------------------------------------------------------------------------------


def test_thresholds_by_hand():
    """Cell 0: 10 and 6 are above 0, so half the way to their mean, 8, twice: 4, then 6. Cell 2: nothing is above."""
    threshold, cell = jnp.array([0.0, 1.0, 2.0]), jnp.array([0, 0, 2, 0, 1])
    fitness, valid = jnp.array([10.0, 6.0, 2.0, -1.0, jnp.nan]), jnp.array([True, True, True, True, False])
    assert np.asarray(improvement(threshold, cell, fitness))[:4].tolist() == [10.0, 6.0, 0.0, -1.0]
    after = raised(threshold, cell, fitness, valid, 0.5)
    assert np.asarray(after).tolist() == [6.0, 1.0, 2.0]
    again = raised(after, jnp.array([0, 0]), jnp.array([7.0, 5.0]), jnp.array([True, True]), 0.5)
    assert np.asarray(again).tolist() == [6.5, 1.0, 2.0]


@pytest.mark.parametrize(("rate", "expected"), [(0.0, -500.0), (0.1, -440.0), (1.0, 100.0)])
def test_a_threshold_goes_its_share_of_the_way(rate, expected):
    one = raised(jnp.array([-500.0]), jnp.array([0]), jnp.array([100.0]), jnp.array([True]), rate)
    np.testing.assert_allclose(one, expected, rtol=1e-6)


# Walk, branch, tell ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def aiming():
    """A task where fitness and both descriptors are linear in the action; and the state after a generation of it."""
    task = Aim(slope=1.0)
    algorithm = dataclasses.replace(SMALL, environments=64, learning_rate=3e-3)
    made = ag.Optimizer(algorithm, task, centroids=64)
    made.fit(evaluations=1)
    return task, algorithm, made


@pytest.mark.slow
def test_directions_point_the_right_way(aiming):
    task, algorithm, made = aiming
    program = jax.jit(lambda state, key: algorithm._directions(task, state, key))
    directions, state = program(made._run.state, jax.random.key(5))
    np.testing.assert_allclose(jnp.linalg.norm(directions, axis=1), 1.0, rtol=1e-3)
    children = algorithm._branch(task, state, directions, jnp.concatenate([jnp.zeros((1, 3)), 0.1 * jnp.eye(3)]))
    shown = 3 * jax.random.uniform(jax.random.key(1), (500, 2), minval=-1, maxval=1) + 10
    action = np.stack([task.policy.act(child, shown).mean(axis=0) for child in children])
    moved, right = action[1:] - action[0], np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0]])
    cosine = (moved * right).sum(axis=1) / np.linalg.norm(moved, axis=1) / np.linalg.norm(right, axis=1)
    assert cosine.min() > 0.8


@pytest.mark.slow
def test_a_genotype_alone_is_a_policy(aiming):
    """The normaliser is in its first layer: without a mixture the offspring does what the search point does."""
    task, algorithm, made = aiming
    seen = Normaliser(jnp.array([10.0, 9.0]), jnp.array([4.0, 2.0]), jnp.float32(1000))
    theta = task.policy.init(jax.random.key(0)) + 0.1
    state = eqx.tree_at(lambda state: (state.theta, state.seen), made._run.state, (theta, seen))
    child = algorithm._branch(task, state, jnp.ones((3, theta.size)), jnp.zeros((1, 3)))[0]
    shown = 3 * jax.random.normal(jax.random.key(1), (50, 2)) + 10
    np.testing.assert_allclose(task.policy.act(child, shown), task.policy.act(theta, shown), atol=1e-5)


@pytest.mark.slow
def test_steps_of_ppo_are_counted():
    made = fitted()
    assert made.history["evaluations"].tolist() == [spent(i) for i in range(1, GENERATIONS + 1)]
    steps = np.diff(made.history["steps"])
    assert (steps > 16 * 8 * 2 * 4).all() and (steps <= 16 * 8 * 2 * 4 + 24 * 12).all()
    assert made.history["added_branch"].sum() > 0


@pytest.mark.slow
def test_it_walks_towards_more_fitness():
    """Where the reward rises with the action: without the descriptors' help, as the first mixture has it."""
    task = Aim(slope=1.0)
    algorithm = dataclasses.replace(SMALL, environments=64, learning_rate=3e-3)
    made = ag.Optimizer(algorithm, task, centroids=64)
    made.fit(evaluations=1)
    walk = jax.jit(lambda state, key: algorithm._walk(task, state, key))
    before = made._run.state
    after = walk(walk(before, jax.random.key(1)), jax.random.key(2))
    shown = 3 * jax.random.uniform(jax.random.key(1), (500, 2), minval=-1, maxval=1) + 10
    paid = lambda state: float(task.policy.act(state.theta, shown).sum(axis=1).mean())
    assert paid(after) > paid(before) + 0.02
    assert not same(before.critics[0], after.critics[0]) and same(before.critics[1:], after.critics[1:])
    assert same(before.threshold, after.threshold) and float(after.seen.count) == 2 * 2 * 64 * 8


def told(fitness, descriptor):
    """State before and after a generation with these results."""
    made = optimizer()
    made.ask()
    made.tell(np.full(24, 1.0), np.full((24, 2), 0.1))
    made.ask()
    asked = made._asked[1]
    made.tell(fitness, descriptor)
    return made, asked, made._run.state


@pytest.mark.slow
def test_it_begins_anew_when_nothing_improves():
    made, asked, state = told(np.full(24, -1.0), np.zeros((24, 2)))
    assert (np.asarray(state.theta) == made.archive.genotype).all(axis=1).any()
    assert np.asarray(state.search.mean).tolist() == [1.0, 0.0, 0.0] and float(state.search.sigma) == 1.0
    assert np.array_equal(state.search.shape, np.eye(3)) and not np.asarray(state.log_std).any()
    assert np.asarray(asked.log_std).any() and np.array_equal(asked.threshold, state.threshold)


@pytest.mark.slow
def test_the_search_goes_where_the_archive_was_improved():
    """What was tried with more of the second direction improved more: so will the next mixtures have more of it."""
    probe = optimizer()
    probe.ask()
    probe.tell(np.full(24, 1.0), np.full((24, 2), 0.1))
    probe.ask()
    draws = np.asarray(probe._asked[1].draws)
    made, asked, state = told(5 + draws[:, 1], np.zeros((24, 2)))
    assert np.array_equal(asked.draws, draws)
    assert float(state.search.mean[1]) > 0.5 and abs(float(state.search.mean[2])) < 0.5
    assert same(asked.theta, state.theta) and same(asked.log_std, state.log_std)
    changed = np.flatnonzero(np.asarray(state.threshold) != np.asarray(asked.threshold))
    assert len(changed) == 1 and changed[0] == int(made._run.archive.lookup(jnp.zeros((1, 2)))[0])
    fitness = 5 + draws[:, 1]
    np.testing.assert_allclose(state.threshold[changed[0]], fitness.mean() * (1 - 0.9**24), rtol=1e-4)


@pytest.mark.slow
def test_rows_that_are_not_finite_teach_nothing():
    fitness = np.where(np.arange(24) % 3 == 0, np.nan, 5.0)
    descriptor = np.zeros((24, 2))
    descriptor[1] = np.inf
    made, _, state = told(fitness, descriptor)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert made.history["refused"].tolist() == [0, 9]
    _, asked, state = told(np.full(24, np.nan), np.zeros((24, 2)))
    assert same(asked.threshold, state.threshold) and np.isfinite(state.theta).all()
