"""PGA-ME and DCRL-ME: the paper's settings, what each operator makes and aims at, and what is remembered of it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ALGORITHMS, Walk, same

import asciime_gym as ag
from asciime_gym import _loop
from asciime_gym._archive import cvt_centroids
from asciime_gym._buffer import resize
from asciime_gym._compile import OPTIONS, compiled
from asciime_gym.algorithms.dcrl_me import fold
from asciime_gym.tasks._task import Evaluation

PGA, DCRL = ALGORITHMS["pga_me"], ALGORITHMS["dcrl_me"]
BOTH = pytest.mark.parametrize("algorithm", [PGA, DCRL], ids=["pga_me", "dcrl_me"])
TASK = Walk()
ask, tell = compiled(_loop.ask), compiled(_loop.tell)


def begin(algorithm, task=TASK) -> _loop.Run:
    centroids = cvt_centroids(64, task.descriptor_low, task.descriptor_high)
    return compiled(_loop.start)(algorithm, task, centroids, np.uint32(0))


def generation(algorithm, run):
    """The run after a generation, with what was asked and what came of it."""
    offspring, state = ask(algorithm, TASK, run)
    evaluation = TASK.evaluate(offspring.genotype, _loop.keys(run)[1], life=offspring.life)
    return tell(algorithm, TASK, run, offspring, state, evaluation)[0], offspring, state, evaluation


def still(algorithm):
    """It remembers more than one generation, and its policy-gradient offspring are their parents."""
    return dataclasses.replace(algorithm, replay_size=100_000, policy_learning_rate=0.0)


# Settings ----------------------------------------------------------------------------------------------------------

TABLE = {
    "iso_line_share": 0.5,
    "sigma1": 0.005,
    "sigma2": 0.05,
    "critic_hidden": (256, 256),
    "minibatch_size": 100,
    "critic_steps": 3000,
    "policy_steps": 150,
    "policy_learning_rate": 5e-3,
    "actor_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "discount": 0.99,
    "actor_delay": 2,
    "target_rate": 0.005,
    "policy_noise": 0.2,
    "noise_clip": 0.5,
    "reward_scale": 1.0,
}


@pytest.mark.parametrize(
    ("made", "own", "counts"),
    [
        (ag.PgaME(), {"batch_size": 1024, "replay_size": 4_000_000, "injected": 1}, (512, 511, 1)),
        (
            ag.DcrlME(),
            {"batch_size": 2048, "replay_size": 8_000_000, "injection_share": 0.25, "length_scale": 0.1},
            (1024, 512, 512),
        ),
    ],
)
def test_defaults_are_those_of_the_table(made, own, counts):
    assert {f.name: getattr(made, f.name) for f in dataclasses.fields(made)} == TABLE | own
    assert made.counts == counts
    policy = made.default_policy(12, 3)
    assert (policy.size, policy.activation, policy.output, policy.weights) == (5187, "relu", "tanh", "lecun_uniform")


@pytest.mark.parametrize("kind", [ag.PgaME, ag.DcrlME])
@pytest.mark.parametrize("times", [1, 2, 4, 8, 16, 32])
def test_strategies_are_those_of_the_table(kind, times):
    settings = lambda strategy: (
        (made := kind.scaled(256 * times, strategy)).batch_size,
        made.minibatch_size,
        made.critic_steps,
    )
    assert settings("minibatch") == (256 * times, 100 * times, 3000)
    assert settings("steps") == (256 * times, 100, 3000 * times)
    assert settings("none") == (256 * times, 100, 3000)


def test_strategies_keep_to_what_is_given():
    made = ag.PgaME.scaled(96, "steps", reference=64, critic_steps=10, actor_delay=2, sigma1=0.1)
    assert (made.critic_steps, made.minibatch_size, made.sigma1) == (16, 100, 0.1)  # 15 is no multiple of the delay
    with pytest.raises(Exception, match=r"strategy[\s\S]*'more'"):
        ag.PgaME.scaled(512, "more")


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (ag.PgaME, {"critic_steps": 15}, "critic_steps must be a multiple of actor_delay, 2; got 15"),
        (ag.PgaME, {"minibatch_size": 0}, "minibatch_size must be a whole number of at least 1; got 0"),
        (ag.PgaME, {"replay_size": 0}, "replay_size must be a whole number of at least 1; got 0"),
        (ag.PgaME, {"injected": 2}, "injected must be between 0 and 1; got 2"),
        (ag.PgaME, {"target_rate": 1.5}, "target_rate must be between 0 and 1; got 1.5"),
        (ag.DcrlME, {"injection_share": 0.75, "batch_size": 8}, "4 iso.line offspring and 6 injected actors are more"),
        (ag.DcrlME, {"length_scale": 0}, "length_scale must be above 0; got 0"),
    ],
)
def test_settings_that_make_no_sense(kind, fields, words):
    with pytest.raises(Exception, match=words):
        kind(**fields)


class Linear(eqx.Module):
    weights: jax.Array
    squash: bool = eqx.field(static=True)

    def __call__(self, x):
        return jnp.tanh(self.weights @ x) if self.squash else self.weights @ x


def module(squash: bool) -> ag.EquinoxPolicy:
    return ag.EquinoxPolicy(lambda key: Linear(jax.random.normal(key, (2, 5)), squash), 5, 2)


@BOTH
def test_actions_must_be_bounded(algorithm):
    name = type(algorithm).__name__
    with pytest.raises(ValueError, match=rf"{name} needs a policy .* bounded .* output='linear': use {name}.default"):
        ag.Optimizer(algorithm, Walk(policy=ag.MLP(5, 2)), centroids=8)


@pytest.mark.slow
def test_a_module_of_ones_own():
    with pytest.raises(ValueError, match=r"bounded to ±1; this EquinoxPolicy went as far as .*tanh"):
        ag.Optimizer(PGA, Walk(policy=module(False)), centroids=8)
    with pytest.raises(TypeError, match=r"first layer .* has to be an asciime_gym.MLP .* got EquinoxPolicy"):
        ag.Optimizer(DCRL, Walk(policy=module(True)), centroids=8)
    optimizer = ag.Optimizer(PGA, Walk(policy=module(True)), centroids=8)
    optimizer.fit(evaluations=3 * PGA.batch_size)
    assert len(optimizer.archive) > 1


# Operators ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("obs", "act", "dims"), [(30, 8, 2), (18, 6, 2), (12, 3, 1), (28, 8, 4)])
def test_a_folded_actor_does_what_the_conditioned_one_does(obs, act, dims):
    """For the sizes of all tasks."""
    policy = ag.DcrlME.default_policy(obs, act)
    problem = ag.Problem(policy, [0.0] * dims, [1.0] * dims, 250)
    network = ag.DcrlME()._actor(problem)
    actor = network.init(jax.random.key(0))
    observation = jax.random.normal(jax.random.key(1), (200, obs))
    for aim in jax.random.uniform(jax.random.key(2), (5, dims), minval=-1.0):
        conditioned = network.act(actor, jnp.concatenate([observation, jnp.tile(aim, (200, 1))], axis=1))
        np.testing.assert_allclose(policy.act(fold(network, actor, aim), observation), conditioned, atol=1e-6)
    elsewhere = network.act(actor, jnp.concatenate([observation, jnp.ones((200, dims))], axis=1))
    assert np.abs(elsewhere - conditioned).max() > 0.1  # it matters what is aimed at


def test_similarity_scales_the_reward():
    algorithm = ag.DcrlME()
    problem = ag.Problem(ag.DcrlME.default_policy(12, 3), [0.0, -30.0], [1.0, 30.0], 4)
    archive = begin(dataclasses.replace(DCRL, batch_size=4), problem).archive
    reward = np.arange(12, dtype=np.float32).reshape(3, 4)
    achieved, target = np.array([[0.5, 3.0], [0.2, -9.0], [1, 30]]), np.array([[0.5, 3.0], [0.25, -3.0], [0, -30]])
    zeros = jnp.zeros((3, 4), bool)
    trajectory = ag.Trajectory(jnp.zeros((3, 4, 12)), jnp.zeros((3, 4, 3)), jnp.asarray(reward), zeros, zeros)
    evaluation = Evaluation(jnp.zeros(3), jnp.asarray(achieved, jnp.float32), trajectory, jnp.zeros(3, jnp.int32))
    apart = [0.0, np.hypot(0.1, 0.2), np.hypot(2, 2)]  # in units where the bounds are -1 and 1
    expected = np.exp(-np.array(apart) / 0.1)[:, None] * reward
    np.testing.assert_allclose(algorithm._reward(archive, evaluation, jnp.asarray(target, jnp.float32)), expected, 1e-5)


@pytest.fixture(scope="module", params=[PGA, DCRL], ids=["pga_me", "dcrl_me"])
def two_generations(request):
    algorithm = still(request.param)
    first = begin(algorithm)
    second, *initial = generation(algorithm, first)
    third, *later = generation(algorithm, second)
    return algorithm, (first, second, third), initial, later


@pytest.mark.slow
def test_the_first_generation_only_fills_the_buffer(two_generations):
    algorithm, (first, second, _), (offspring, _, evaluation), _ = two_generations
    assert (offspring.operator == 0).all() and np.isnan(offspring.target).all()
    before, after = first.state.learner, second.state.learner
    assert same(before.critics, after.critics) and same(before.critic_moments, after.critic_moments)
    assert int(second.state.memory.count) == int(evaluation.trajectory.alive.sum())
    start = offspring.genotype[0] if algorithm.name == "pga_me" else before.actor
    assert same((after.actor, after.target_actor), (start, start))


@pytest.mark.slow
def test_critics_are_trained_before_offspring_are_made(two_generations):
    algorithm, (_, second, third), _, (_, asked, _) = two_generations
    assert not same(second.state.learner.critics, asked.learner.critics)
    assert int(asked.learner.critic_moments[0].count) == algorithm.critic_steps
    assert int(asked.learner.actor_moments[0].count) == algorithm.critic_steps // algorithm.actor_delay
    assert same(asked.learner, third.state.learner) and same(asked.memory, second.state.memory)


@pytest.mark.slow
def test_each_operator_makes_and_aims_at_what_it_should(two_generations):
    algorithm, (_, second, _), _, (offspring, asked, _) = two_generations
    archive, count = second.archive, dict(enumerate(algorithm.counts, start=1))
    assert np.bincount(offspring.operator).tolist() == [0, *count.values()]
    assert _loop.operators(algorithm) == ("initial", "iso_line", "policy_gradient", "actor_injection")
    rows = {i: np.flatnonzero(np.asarray(offspring.operator) == i) for i in (1, 2, 3)}
    assert np.isnan(offspring.target[rows[1]]).all()
    elites = {raw.tobytes(): place for place, raw in enumerate(np.asarray(archive.elites.genotype))}
    for row in rows[2]:
        parent = elites[np.asarray(offspring.genotype[row]).tobytes()]
        aim = np.full(2, np.nan) if algorithm.name == "pga_me" else archive.elites.descriptor[parent]
        np.testing.assert_array_equal(offspring.target[row], aim)
        assert offspring.life[row] == archive.elites.steps[parent]
    for row in rows[3]:
        if algorithm.name == "pga_me":
            assert same(offspring.genotype[row], asked.learner.actor)
            continue
        there = np.asarray(archive.elites.descriptor)[np.asarray(archive.filled)]
        assert (there == np.asarray(offspring.target[row])).all(axis=1).any()
        actor = fold(algorithm._actor(TASK), asked.learner.actor, offspring.target[row])  # bounds of Walk are ±1
        np.testing.assert_allclose(offspring.genotype[row], actor, atol=1e-6)


@pytest.mark.slow
def test_what_is_remembered_of_an_episode(two_generations):
    """Alive steps alone, in order; of DCRL-ME with the target, which is where it got for those that had none."""
    algorithm, (_, second, third), _, (offspring, _, evaluation) = two_generations
    path, begin, end = evaluation.trajectory, int(second.state.memory.count), int(third.state.memory.count)
    alive = np.asarray(path.alive)
    assert end - begin == alive.sum() and not alive.all()
    kept = jax.tree.map(lambda leaf: np.asarray(leaf[begin:end]), third.state.memory.items)
    np.testing.assert_array_equal(kept.observation, np.asarray(path.observation)[alive])
    np.testing.assert_array_equal(kept.action, np.asarray(path.action)[alive])
    np.testing.assert_array_equal(kept.terminated, np.asarray(path.terminated)[alive])
    full = alive.all(axis=1) & ~np.asarray(path.terminated)[:, -1]
    assert kept.truncated.sum() == full.sum() and full.any() and not full.all()
    reward = np.asarray(path.reward)
    if algorithm.name == "pga_me":
        assert kept.target is None
    else:
        achieved, aim = np.asarray(evaluation.descriptor), np.asarray(offspring.target)
        target = np.clip(np.where(np.isnan(aim), achieved, aim), -1, 1)  # bounds of Walk are ±1
        apart = np.linalg.norm(np.clip(achieved, -1, 1) - target, axis=1)
        assert (apart[np.asarray(offspring.operator) == 1] == 0).all() and (apart > 0).any()
        reward = np.exp(-apart / algorithm.length_scale)[:, None] * reward
        np.testing.assert_allclose(kept.target, np.repeat(target, alive.sum(axis=1), axis=0), atol=1e-6)
    np.testing.assert_allclose(kept.reward, reward[alive], rtol=2e-5)


@BOTH
def test_rows_that_are_not_finite_are_not_learnt_from(algorithm):
    algorithm = still(algorithm)
    run = begin(algorithm)
    offspring, state = ask(algorithm, TASK, run)
    evaluation = TASK.evaluate(offspring.genotype, _loop.keys(run)[1], life=offspring.life)
    fitness = evaluation.fitness.at[3].set(jnp.nan)
    alive = np.asarray(evaluation.trajectory.alive).copy()
    run = tell(algorithm, TASK, run, offspring, state, dataclasses.replace(evaluation, fitness=fitness))[0]
    alive[3] = False
    assert int(run.state.memory.count) == alive.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "counts"),
    [
        (dataclasses.replace(PGA, iso_line_share=1.0), (24, 0, 0)),
        (dataclasses.replace(PGA, injected=0), (12, 12, 0)),
        (dataclasses.replace(DCRL, iso_line_share=0.0, injection_share=1.0), (0, 0, 24)),
    ],
)
def test_an_operator_may_be_left_out(algorithm, counts):
    assert algorithm.counts == counts
    run = generation(algorithm, generation(algorithm, begin(algorithm))[0])[0]
    assert int(run.archive.filled.sum()) > 1


# Room --------------------------------------------------------------------------------------------------------------


@BOTH
def test_room_is_made_for_what_a_budget_can_bring(algorithm):
    algorithm = dataclasses.replace(algorithm, replay_size=3000)
    state = begin(algorithm).state
    assert state.memory.capacity == 512  # 24 rows of 12 steps
    size = lambda evaluations: algorithm.room(TASK, state, evaluations).memory.capacity
    assert [size(n) for n in (1, 24, 25, 100, 10**12)] == [512, 512, 1024, 2048, 3000]
    assert algorithm.room(TASK, state, 24) is state
    full = dataclasses.replace(state, memory=dataclasses.replace(state.memory, count=jnp.int32(500)))
    large = algorithm.room(TASK, full, 200)
    assert algorithm.room(TASK, large, 1).memory.capacity == 512  # not below what it holds
    assert ag.MapElites().room(TASK, None, 10**9) is None


@pytest.mark.slow
def test_no_result_depends_on_the_room():
    """Made at once, or when it is needed."""
    algorithm = still(DCRL)
    grown, roomy = begin(algorithm), begin(algorithm)
    roomy = dataclasses.replace(roomy, state=algorithm.room(TASK, roomy.state, 10_000))
    for number in range(3):
        needed = algorithm.room(TASK, grown.state, (number + 1) * algorithm.batch_size)
        grown = generation(algorithm, dataclasses.replace(grown, state=needed))[0]
        roomy = generation(algorithm, roomy)[0]
    assert grown.state.memory.capacity < roomy.state.memory.capacity
    same_size = dataclasses.replace(grown.state, memory=resize(grown.state.memory, roomy.state.memory.capacity))
    assert same(dataclasses.replace(grown, state=same_size), roomy)


@pytest.mark.slow
def test_the_buffer_is_never_copied():
    """A hundred times the room takes the same memory beside it: nothing of its size is made in a generation."""
    algorithm = dataclasses.replace(DCRL, replay_size=2**30)

    def beside(evaluations: int) -> tuple[int, int]:
        def roomy():
            run = _loop.start(algorithm, TASK, jnp.zeros((64, 2)), jnp.uint32(0))
            memory = resize(run.state.memory, algorithm._capacity(TASK, evaluations))
            return dataclasses.replace(run, state=dataclasses.replace(run.state, memory=memory))

        run = jax.eval_shape(roomy)
        go = lambda run: _loop.generations(algorithm, TASK, jnp.int32(9), jnp.int32(10**6), run)
        memory = jax.jit(go, donate_argnums=0).lower(run).compile(OPTIONS["cpu"]).memory_analysis()
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(run.state.memory.items))
        assert memory.alias_size_in_bytes > size  # it is given away, and comes back
        return size, memory.temp_size_in_bytes

    (small, beside_small), (large, beside_large) = beside(1000), beside(100_000)
    assert large > 60 * small and beside_large - beside_small < small


# Hand-driven -------------------------------------------------------------------------------------------------------


def evaluator(genotypes: np.ndarray, policy: ag.MLP, rng: np.random.Generator):
    """A user's own: a point on a line that is paid for being where its last action said, in plain NumPy."""
    batch, time = len(genotypes), 6
    seen, done, paid = np.zeros((batch, time, 3)), np.zeros((batch, time, 1)), np.zeros((batch, time))
    place = rng.normal(size=(batch, 1)) * 0.1
    for t in range(time):
        seen[:, t] = np.concatenate([place, place**2, np.full((batch, 1), 1 - t / time)], axis=1)
        done[:, t] = jax.jit(jax.vmap(policy.act))(genotypes, seen[:, t].astype(np.float32))
        place = place + 0.2 * done[:, t]
        paid[:, t] = 1 + place[:, 0]
    paid = np.maximum(paid, 0)
    trajectory = {"observation": seen, "action": done, "reward": paid, "alive": np.ones((batch, time), bool)}
    return paid.sum(axis=1), place, trajectory


@pytest.mark.slow
@BOTH
def test_ask_and_tell_with_an_evaluator_of_ones_own(algorithm):
    policy = algorithm.default_policy(3, 1)
    problem = ag.Problem(policy, [-1.2], [1.2], 6)
    optimizer, rng = ag.Optimizer(algorithm, problem, centroids=16), np.random.default_rng(0)
    for _ in range(4):
        optimizer.tell(*evaluator(optimizer.ask(), policy, rng))
    assert optimizer.evaluations == 96 and len(optimizer.archive) > 4
    columns = optimizer.history.to_dict()
    assert {"added_iso_line", "added_policy_gradient", "added_actor_injection"} < columns.keys()
    with pytest.raises(ValueError, match="learns from trajectories"):
        optimizer.ask()
        optimizer.tell(np.zeros(24), np.zeros((24, 1)))
