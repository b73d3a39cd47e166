"""PPO: its parts against slow NumPy, and that it learns what is known to be best."""

from itertools import pairwise
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LANES, Walk
from jax import export

import asciime_gym as ag
from asciime_gym._compile import compiled
from asciime_gym.learning import ppo as learner
from asciime_gym.learning.experience import (
    Actors,
    Experience,
    advantages,
    collect,
    open_worlds,
    step_rewards,
    tile_size,
)
from asciime_gym.learning.normalise import LEAST, Normaliser, merged, normalised, plain, unseen
from asciime_gym.learning.ppo import PPO, Agents, shuffled, train
from asciime_gym.tasks._task import SimulatorState

KEY = jax.random.key(7)


# Normalisers ----------------------------------------------------------------------------------------------------


def test_statistics_are_those_of_all_that_was_seen():
    rng, seen, rows = np.random.default_rng(0), unseen(3), []
    for scale in (1.0, 10.0, 0.1):
        groups = rng.normal(scale, scale, (4, 50, 3))
        seen = merged(seen, jnp.array(groups.mean(axis=1)), jnp.array(groups.var(axis=1)), 50)
        rows.append(groups.reshape(-1, 3))
    rows = np.concatenate(rows)
    np.testing.assert_allclose(seen.mean, rows.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(seen.variance, rows.var(axis=0), rtol=1e-4)
    assert float(seen.count) == 600
    np.testing.assert_allclose(seen(jnp.array(rows, jnp.float32)).std(axis=0), 1.0, rtol=1e-4)


def test_what_is_long_ago_can_count_for_less():
    old = Normaliser(jnp.zeros(1), jnp.ones(1), jnp.float32(1e9))
    new = merged(old, jnp.full((1, 1), 4.0), jnp.zeros((1, 1)), 10, most=30)
    assert float(new.count) == 40 and float(new.mean[0]) == 1.0  # 30 at 0, 10 at 4
    np.testing.assert_allclose(new.variance, 30 / 40 + 3.0)


def test_nothing_seen_changes_nothing_and_a_constant_is_not_blown_up():
    x = jnp.array([[1.0, -2.0]])
    assert np.array_equal(unseen(2)(x), x)
    still = Normaliser(jnp.zeros(2), jnp.zeros(2), jnp.float32(100))
    np.testing.assert_allclose(still(x), x / LEAST, rtol=1e-6)


@pytest.mark.parametrize("hidden", [(), (8,), (6, 5)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_network_in_normalised_terms_is_the_same_function(hidden, activation):
    network = ag.MLP(4, 2, hidden, activation=activation)
    genotype = network.init(KEY) + 0.1
    x = 3 * jax.random.normal(KEY, (20, 4)) + 5
    seen = Normaliser(jnp.array([5.0, 4.0, 0.0, 1.0]), jnp.array([9.0, 0.1, 4.0, 1.0]), jnp.float32(9))
    said = Normaliser(jnp.array([3.0, -1.0]), jnp.array([16.0, 0.25]), jnp.float32(9))
    within = normalised(network, genotype, seen, said)
    np.testing.assert_allclose(network.act(within, seen(x)), said(network.act(genotype, x)), atol=1e-4)
    np.testing.assert_allclose(
        network.act(normalised(network, genotype, seen), seen(x)), network.act(genotype, x), atol=1e-4
    )
    np.testing.assert_allclose(plain(network, within, seen, said), genotype, atol=1e-5)
    assert np.abs(within - genotype).max() > 0.1


# Experience -----------------------------------------------------------------------------------------------------


def test_advantages_equal_slow_numpy():
    rng = np.random.default_rng(2)
    steps, lanes, discount, trace = 30, 5, 0.9, 0.8
    reward, value = rng.normal(size=(steps, lanes)), rng.normal(size=(steps + 1, lanes))
    ended = rng.random((steps, lanes)) < 0.15
    expected = np.zeros((steps, lanes))
    for lane in range(lanes):
        for begin in range(steps):
            weight = 1.0
            for t in range(begin, steps):
                future = 0.0 if ended[t, lane] else discount * value[t + 1, lane]
                expected[begin, lane] += weight * (reward[t, lane] + future - value[t, lane])
                weight *= discount * trace
                if ended[t, lane]:
                    break
    as_floats = lambda x: jnp.array(x, jnp.float32)
    found = advantages(as_floats(reward), as_floats(value), jnp.array(ended), discount, trace)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_environments_are_tiles_of_one_size():
    assert [tile_size(count) for count in (1, 16, 64, 100, 128, 6000)] == [1, 16, 64, 50, 64, 60]
    assert tile_size(67) == 1  # a prime number of them: slow, but right


def test_progress_sums_to_where_the_episode_ends():
    """Also in an episode that did not begin at the origin; elsewhere a step has its own descriptor."""
    walk = Walk()
    states = [walk.reset(KEY)]
    for i in range(6):
        states.append(walk.step(states[-1], jnp.array([0.5, -0.2 * i])))
    wide = [jax.tree.map(lambda leaf: leaf[..., None], state) for state in states]
    moves = [step_rewards("final", a, b)[:, 0] for a, b in pairwise(wide)]
    np.testing.assert_allclose(sum(move[1:] for move in moves), states[-1].descriptor, atol=1e-6)
    assert np.abs(states[0].descriptor).max() > 0.1
    own = [step_rewards("mean", a, b)[:, 0] for a, b in pairwise(wide)]
    np.testing.assert_allclose(np.stack(own)[:, 1:], [state.descriptor for state in states[1:]])
    np.testing.assert_allclose(np.stack(own)[:, 0], [state.reward for state in states[1:]])


@pytest.fixture(scope="module")
def played():
    """Two rollouts of two agents, two tiles each, one after the other."""
    walk, critic = Walk(), ag.MLP(5, 1, (8,))
    keys = jax.random.split(KEY, 2)
    actors = Actors(
        actor=jax.vmap(walk.policy.init)(keys) * 2,
        log_std=jnp.log(jnp.array([[0.5, 1.0], [2.0, 0.1]])),
        critic=jax.vmap(critic.init)(keys),
        weights=jnp.array([[1.0, 0.0, 0.0], [0.5, 0.0, -2.0]]),
    )

    @compiled
    def play(key):
        worlds = open_worlds(walk, key, 4, 8)
        owner = jnp.array([0, 0, 1, 1])
        options = {"critic": critic, "steps": 20, "discount": 0.9, "trace": 0.8}
        second, one, _ = collect(walk, actors, worlds, owner, key, **options)
        _, two, summary = collect(walk, actors, second, owner, jax.random.fold_in(key, 1), **options)
        return worlds, one, two, summary

    return walk, critic, actors, *play(KEY)


def test_environments_go_on_and_begin_again_when_they_end(played):
    """Walk shows its place, and where an action leads."""
    *_, worlds, one, two, _ = played
    place = np.concatenate([one.observation, two.observation], axis=1)[..., :2]
    action = np.concatenate([one.action, two.action], axis=1)
    left = np.concatenate([one.observation, two.observation], axis=1)[..., 4] * 12
    led = place + 0.2 * np.clip(action, -1, 1)
    ended = ((led**2).sum(axis=-1) > 0.9) | (left < 1.5)
    on = ~ended[:, :-1]
    np.testing.assert_allclose(led[:, :-1][on], place[:, 1:][on], atol=1e-6)
    beginnings = np.asarray(worlds.start.physics)  # [tiles, 2, environments]
    for tile, _, lane in np.argwhere(~on)[:50]:
        for step in np.flatnonzero(~on[tile, :, lane]):
            distance = np.abs(beginnings[tile].T - place[tile, step + 1, lane]).sum(axis=1)
            assert distance.min() < 1e-6
    assert on.mean() > 0.5 and (~on).sum() > 50
    restarts = place[:, 1:][~on]
    assert len(np.unique(restarts.round(5), axis=0)) > 16  # not each from its own beginning only


def test_actions_are_drawn_from_the_policy(played):
    walk, _, actors, _, one, *_ = played
    for tile, agent in enumerate((0, 0, 1, 1)):
        mean = walk.policy.act(actors.actor[agent], one.observation[tile])
        noise = np.asarray((one.action[tile] - mean) / jnp.exp(actors.log_std[agent]))
        assert abs(noise.mean()) < 0.2 and 0.85 < noise.std() < 1.15
        log_probability = -(noise**2).sum(axis=-1) / 2 - np.asarray(actors.log_std[agent]).sum()
        np.testing.assert_allclose(one.log_probability[tile], log_probability, atol=1e-3)


def test_rewards_are_weighed_and_judged(played):
    """The value of each step is the advantage over what the critic expects; worked out again in NumPy."""
    _, critic, actors, _, one, two, summary = played
    place, action = np.asarray(one.observation)[..., :2], np.asarray(one.action)
    left = np.asarray(one.observation)[..., 4] * 12
    led = place + 0.2 * np.clip(action, -1, 1)
    ended = ((led**2).sum(axis=-1) > 0.9) | (left < 1.5)
    before = np.where((left > 11.5)[..., None], 0.0, place)
    reward = np.maximum(1 - (action**2).sum(axis=-1) / 4, 0)
    given = np.concatenate([reward[..., None], led - before], axis=-1)
    for tile, agent in enumerate((0, 0, 1, 1)):
        worth = given[tile] @ np.asarray(actors.weights[agent])
        seen = np.concatenate([one.observation[tile], two.observation[tile, :1]])
        value = np.asarray(critic.act(actors.critic[agent], jnp.array(seen)))[..., 0]
        expected = advantages(jnp.array(worth), jnp.array(value), jnp.array(ended[tile]), 0.9, 0.8)
        np.testing.assert_allclose(one.advantage[tile], expected, atol=1e-4)
        np.testing.assert_allclose(one.value[tile], expected + value[:-1], atol=1e-4)
    for name in ("observation", "advantage", "value"):
        mean, variance = getattr(summary, name)
        np.testing.assert_allclose(mean, getattr(two, name).mean(axis=(1, 2)), atol=1e-5)
        np.testing.assert_allclose(variance, getattr(two, name).var(axis=(1, 2)), rtol=1e-3, atol=1e-6)


# Learning -------------------------------------------------------------------------------------------------------


class Aim(Walk):
    """Every step shows two numbers, and pays for an action near a known function of them: the best policy is known.

    Descriptor of a step: known linear functions of the action.
    """

    policy: ag.AbstractPolicy = eqx.field(default_factory=lambda: ag.MLP(2, 2, hidden=(16,)))
    episode_descriptor: Literal["mean", "final"] = eqx.field(static=True, default="mean")
    slope: float = eqx.field(static=True, default=0.0)  # if not 0, the reward is linear in the action instead
    breaks: bool = eqx.field(static=True, default=False)  # whether it sometimes gives what is not a number

    @staticmethod
    def best(seen):
        return jnp.stack([0.8 * seen[..., 0] - 0.3, 0.5 - 0.4 * seen[..., 1]], axis=-1)

    def reset(self, key):
        return self._at(jax.random.uniform(key, (2,), minval=-1, maxval=1), 0, jnp.zeros(()), jnp.zeros(2))

    def step(self, state, action):
        off = jnp.sum((action - self.best(state.physics)) ** 2)
        reward = self.slope * (action[0] + action[1]) if self.slope else jnp.exp(-off)
        descriptor = jnp.stack([action[0] - action[1], -action[0]])
        seen = jnp.sin(7 * state.physics[::-1] + jnp.array([1.0, 2.0]) + state.time)
        if self.breaks:
            seen = jnp.where(seen[0] > 0.9, jnp.nan, seen)
        return self._at(seen, state.time + 1, reward, descriptor)

    def _at(self, seen, time, reward, descriptor) -> SimulatorState:
        time = jnp.asarray(time, jnp.int32)
        return SimulatorState(
            physics=seen,
            time=time,
            observation=3 * seen + 10.0,  # far from normalised
            reward=reward,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.episode_length,
            descriptor=descriptor,
        )


def small(task, **fields) -> PPO:
    options = {
        "environments": 64, "rollout": 32, "minibatches": 4, "epochs": 4, "clip": 0.2, "value_coefficient": 2.0,
        "max_gradient_norm": 1.0, "learning_rate": 3e-3, "discount": 0.9, "trace": 0.95,
    }  # fmt: skip
    return PPO(task.policy, ag.MLP(task.policy.obs_size, 1, (16,)), **options | fields)


def beginners(task, ppo, count) -> Agents:
    keys = jax.random.split(KEY, count)
    actor = jnp.tile(task.policy.init(KEY), (count, 1))
    return Agents(
        actor, jnp.full((count, task.policy.act_size), -0.5), jax.vmap(ppo.critic.init)(keys), unseen(count, 1)
    )


def trained(task, weights, iterations, **fields):
    ppo = small(task, **fields)
    agents = beginners(task, ppo, len(weights))
    program = compiled(lambda agents, seen, key: train(ppo, task, agents, weights, seen, key, iterations=iterations))
    return agents, *program(agents, unseen(task.policy.obs_size), KEY)


@pytest.mark.slow
def test_it_finds_the_best_policy():
    task = Aim()
    before, after, seen = trained(task, jnp.array([[1.0, 0.0, 0.0]]), 60)
    shown = jax.random.uniform(KEY, (500, 2), minval=-1, maxval=1)
    error = lambda agents: np.abs(task.policy.act(agents.actor[0], 3 * shown + 10) - task.best(shown))
    assert error(before).mean() > 0.4 and error(after).mean() < 0.06
    assert np.exp(after.log_std).max() < 0.35 < np.exp(before.log_std).min()
    np.testing.assert_allclose(seen.mean, 10.0, atol=0.3)  # sines have mean 0 and deviation √½
    np.testing.assert_allclose(seen.deviation, 3 * 0.71, atol=0.3)
    # What the value function says is what is to be had: about 1 a step, discounted, until the episode is cut off.
    left = 1 - 0.9 ** (np.arange(12) + 1)
    assert abs(float(after.returns.mean[0, 0]) - (left / 0.1).mean()) < 1.0


def test_it_steps_in_lanes_on_a_cpu_and_not_elsewhere():
    task = Walk()
    ppo = small(task, environments=64, rollout=4)
    agents, seen = beginners(task, ppo, 2), unseen(task.policy.obs_size)
    learn = lambda key: train(ppo, task, agents, jnp.eye(3)[:2, : 1 + task.descriptor_size], seen, key, iterations=1)
    lowered = lambda platform: export.export(jax.jit(lambda key: learn(key)[0].actor), platforms=[platform])(KEY)
    assert LANES in lowered("cpu").mlir_module() and LANES not in lowered("cuda").mlir_module()


@pytest.mark.slow
def test_without_normalising_nothing_is_put_into_other_terms():
    task = Aim()
    _, after, seen = trained(task, jnp.eye(3), 2, normalise_observations=False, normalise_returns=False)
    assert not seen.count and not seen.mean.any() and (seen.variance == 1).all()
    assert not after.returns.count.any() and (after.returns.variance == 1).all()
    _, other, seen = trained(task, jnp.eye(3), 2, normalise_returns=False)
    assert seen.count and not other.returns.count.any() and not np.array_equal(after.actor, other.actor)


@pytest.mark.slow
def test_each_agent_goes_its_own_way():
    """Reward and both descriptors are linear in the action: so is the way that each of three agents should go."""
    task = Aim(slope=1.0)
    before, after, _ = trained(task, jnp.eye(3), 4)
    shown = 3 * jax.random.uniform(KEY, (500, 2), minval=-1, maxval=1) + 10
    act = jax.vmap(lambda actor: task.policy.act(actor, shown).mean(axis=0))
    moved = np.asarray(act(after.actor) - act(before.actor))
    right = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0]])
    cosine = (moved * right).sum(axis=1) / np.linalg.norm(moved, axis=1) / np.linalg.norm(right, axis=1)
    assert cosine.min() > 0.9


def test_a_simulation_that_breaks_does_not_break_the_agents():
    _, after, seen = trained(Aim(breaks=True), jnp.eye(3), 3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, seen)))


def part(ratio, advantage) -> Experience:
    """One step that the policy below makes more or less probable than it was, by this ratio."""
    return Experience(
        observation=jnp.ones((1, 2)),
        action=jnp.full((1, 2), 0.7),
        log_probability=-jnp.log(jnp.array([ratio])) - 0.7**2,
        advantage=jnp.array([advantage]),
        value=jnp.array([3.0]),
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "learns"),
    [(1.0, 2.0, True), (1.0, -2.0, True), (1.3, 2.0, False), (1.3, -2.0, True), (0.7, 2.0, True), (0.7, -2.0, False)],
)
def test_what_has_changed_enough_is_left_alone(ratio, advantage, learns):
    """The clipped objective, and its gradient by hand: ratio · advantage · action for a policy that does nothing."""
    network = ag.MLP(2, 2, ())
    ppo = small(Walk(policy=network), clip=0.2)
    ppo = eqx.tree_at(lambda ppo: ppo.critic, ppo, ag.MLP(2, 1, ()), is_leaf=lambda x: isinstance(x, ag.MLP))
    nets = learner._Nets(jnp.zeros(6), jnp.zeros(2), jnp.zeros(3))
    value, slope = jax.value_and_grad(lambda nets: learner.loss(ppo, nets, part(ratio, advantage)))(nets)
    gain = min(ratio * advantage, float(np.clip(ratio, 0.8, 1.2)) * advantage)
    np.testing.assert_allclose(value, 2 * 9.0 - gain, rtol=1e-5)
    expected = -ratio * advantage * 0.7 if learns else 0.0
    np.testing.assert_allclose(slope.actor[-2:], expected, rtol=1e-4)  # the biases
    np.testing.assert_allclose(slope.log_std, -ratio * advantage * (0.7**2 - 1) if learns else 0.0, rtol=1e-4)
    np.testing.assert_allclose(slope.critic[-1], 2 * 2 * -3.0, rtol=1e-5)


def test_gradients_are_shortened_each_by_itself():
    ppo = small(Walk(), max_gradient_norm=1.0)
    long = learner._Nets(jnp.array([3.0, 0.0]), jnp.array([4.0]), jnp.array([0.5]))
    tame = learner._tamed(ppo, long)
    np.testing.assert_allclose(
        jnp.concatenate([tame.actor, tame.log_std, tame.critic]), [0.6, 0.0, 0.8, 0.5], rtol=1e-5
    )
    broken = learner._tamed(ppo, eqx.tree_at(lambda nets: nets.actor, long, jnp.array([jnp.nan, 1.0])))
    assert np.asarray(broken.actor).tolist() == [0.0, 0.0] and np.asarray(broken.critic).tolist() == [0.5]


def test_every_sample_is_learnt_from_once_an_epoch_in_an_order_of_its_own():
    ppo = small(Walk(), minibatches=4, epochs=3)
    parts = np.asarray(shuffled(ppo, agents=2, samples=64, blocks=2, key=KEY))
    assert parts.shape == (12, 4, 8)
    orders = parts.reshape(3, 4, 2, 2, 8).transpose(0, 2, 1, 3, 4).reshape(6, 64)
    assert all(sorted(order) == list(range(64)) for order in orders.tolist())
    assert len({tuple(order) for order in orders.tolist()}) == 6
