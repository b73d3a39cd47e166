"""TD3 against numbers worked out in NumPy, and against problems whose answers are known."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import raw

import asciime_gym as ag
from asciime_gym._buffer import Buffer, Steps, Transitions, add, empty_buffer
from asciime_gym._compile import compiled
from asciime_gym.learning import td3 as learning
from asciime_gym.learning._once import repeat

OBS, ACT, DIMS, ROWS = 3, 2, 2, 4


def settings(dims: int = 0, **changes) -> learning.TD3:
    fields = {
        "actor": ag.MLP(OBS + dims, ACT, (5,), activation="relu", output="tanh", weights="lecun_uniform"),
        "critic": learning.critic_network(OBS, ACT, dims, (6, 4)),
        "minibatch_size": ROWS // 2,
        "delay": 2,
        "discount": 0.9,
        "target_rate": 0.1,
        "noise": 0.5,
        "noise_clip": 0.3,
        "reward_scale": 2.0,
        "actor_learning_rate": 1e-2,
        "critic_learning_rate": 1e-2,
    }
    return learning.TD3(**(fields | changes))


def example(dims: int = 0) -> tuple[learning.TD3, learning.Learner, Transitions, np.ndarray]:
    """A learner whose targets differ from its networks, and four transitions: one terminated, one truncated."""
    td3 = settings(dims)
    learner = learning.start(td3, 3 * td3.actor.init(jax.random.key(0)), jax.random.key(1))
    other = learning.start(td3, 3 * td3.actor.init(jax.random.key(2)), jax.random.key(3))
    learner = dataclasses.replace(learner, target_actor=other.actor, target_critics=other.critics)
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    step = Steps(
        observation=normal(ROWS, OBS),
        action=jnp.tanh(normal(ROWS, ACT)),
        reward=normal(ROWS),
        terminated=jnp.array([False, True, False, False]),
        truncated=jnp.array([False, False, True, False]),
        target=normal(ROWS, dims) if dims else None,
    )
    return td3, learner, Transitions(step, normal(ROWS, OBS)), rng.normal(size=(ROWS, ACT)).astype(np.float32)


def network(layers, x, last=lambda x: x) -> np.ndarray:
    """A ReLU network in NumPy, in double precision."""
    *hidden, (weights, biases) = [[np.asarray(part, np.float64) for part in layer] for layer in layers]
    for w, b in hidden:
        x = np.maximum(x @ w + b, 0)
    return last(x @ weights + biases)


def beside(*parts) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.float64) for part in parts if part is not None], axis=1)


def expected_targets(td3, learner, batch, noise) -> np.ndarray:
    step, after = batch.step, batch.next_observation
    smoothing = np.clip(td3.noise * noise.astype(np.float64), -td3.noise_clip, td3.noise_clip)
    action = network(td3.actor.unpack(learner.target_actor), beside(after, step.target), np.tanh) + smoothing
    action = np.clip(action, -1, 1)
    both = [network(critic, beside(after, action, step.target))[:, 0] for critic in learner.target_critics]
    future = np.where(np.asarray(step.terminated), 0, np.minimum(*both))
    return td3.reward_scale * np.asarray(step.reward, np.float64) + td3.discount * future


@pytest.mark.parametrize("dims", [0, DIMS])
def test_targets(dims):
    td3, learner, batch, noise = example(dims)
    noise[0], noise[3] = 9.0, -9.0  # clipped, and the action with it
    aims = np.asarray(learning.target_value(td3, learner, batch, jnp.asarray(noise)))
    np.testing.assert_allclose(aims, expected_targets(td3, learner, batch, noise), rtol=1e-5)
    assert aims[1] == td3.reward_scale * batch.step.reward[1]  # nothing comes after the end
    after, step = batch.next_observation, batch.step
    action = learning.act(td3.actor, learner.target_actor, after, step.target)
    assert (np.abs(np.asarray(action) + np.clip(td3.noise * noise, -td3.noise_clip, td3.noise_clip)) > 1).any()
    first, second = (learning.value(critic, after, action, step.target) for critic in learner.target_critics)
    assert not np.allclose(first, second)  # else the smaller of them would prove nothing; whichever of them it is
    swapped = dataclasses.replace(learner, target_critics=learner.target_critics[::-1])
    np.testing.assert_array_equal(learning.target_value(td3, swapped, batch, jnp.asarray(noise)), aims)


@pytest.mark.parametrize("dims", [0, DIMS])
def test_critic_loss(dims):
    _, learner, batch, _ = example(dims)
    step, aims = batch.step, np.array([0.5, -1.0, 70.0, 2.0])
    total = 0.0
    for critic in learner.critics:
        error = network(critic, beside(step.observation, step.action, step.target))[:, 0] - aims
        total += np.sum(error[[0, 1, 3]] ** 2) / ROWS  # the third is truncated
    loss = partial(learning.critic_loss, step=step, target=jnp.asarray(aims, jnp.float32))
    np.testing.assert_allclose(loss(learner.critics), total, rtol=1e-5)
    gone = dataclasses.replace(step, truncated=jnp.ones(ROWS, bool))
    downhill = jax.grad(learning.critic_loss)(learner.critics, gone, jnp.asarray(aims, jnp.float32))
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(downhill))


@pytest.mark.parametrize("dims", [0, DIMS])
def test_actor_loss_is_what_the_first_critic_thinks(dims):
    td3, learner, batch, _ = example(dims)
    step = batch.step
    action = learning.act(td3.actor, learner.actor, step.observation, step.target)
    there = network(td3.actor.unpack(learner.actor), beside(step.observation, step.target), np.tanh)
    np.testing.assert_allclose(action, there, rtol=1e-5)
    opinion = network(learner.critics[0], beside(step.observation, there, step.target)).mean()
    loss = learning.actor_loss(action, learner.critics[0], step.observation, step.target)
    np.testing.assert_allclose(loss, -opinion, rtol=1e-5)


class SlowAdam:
    """Adam as its paper has it, in double precision."""

    def __init__(self, rate: float):
        self.rate, self.count, self.mean, self.square = rate, 0, 0.0, 0.0

    def step(self, parameters: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.999**self.count)
        return parameters - self.rate * mean / (np.sqrt(square) + 1e-8)


def test_update_takes_two_critic_steps_and_one_of_the_rest():
    td3, learner, batch, noise = example(DIMS)
    new = learning.update(td3, learner, batch, jnp.asarray(noise))
    aims = jnp.asarray(expected_targets(td3, learner, batch, noise), jnp.float32)
    flat = lambda tree: np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])
    tree = lambda vector: jax.flatten_util.ravel_pytree(learner.critics)[1](jnp.asarray(vector, jnp.float32))
    critics, adam = flat(learner.critics), SlowAdam(td3.critic_learning_rate)
    for part in (slice(0, 2), slice(2, 4)):
        step = jax.tree.map(lambda leaf, part=part: leaf[part], batch.step)
        critics = adam.step(critics, flat(jax.grad(learning.critic_loss)(tree(critics), step, aims[part])))
    np.testing.assert_allclose(flat(new.critics), critics, atol=2e-5)

    def loss(actor):
        action = learning.act(td3.actor, actor, batch.step.observation[2:], batch.step.target[2:])
        return learning.actor_loss(action, new.critics[0], batch.step.observation[2:], batch.step.target[2:])

    actor = SlowAdam(td3.actor_learning_rate).step(flat(learner.actor), flat(jax.grad(loss)(learner.actor)))
    np.testing.assert_allclose(new.actor, actor, atol=2e-5)
    for old, now, to in (
        (learner.target_actor, new.target_actor, new.actor),
        (learner.target_critics, new.target_critics, new.critics),
    ):
        np.testing.assert_allclose(flat(now), 0.9 * flat(old) + 0.1 * flat(to), atol=1e-6)


def memory_of(observation, reward, terminated, truncated) -> Buffer:
    """Steps in which the action does not matter."""
    count = len(reward)
    action = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (count, 1)), jnp.float32)
    arrays = (jnp.asarray(observation, jnp.float32), action, jnp.asarray(reward, jnp.float32))
    steps = Steps(*arrays, jnp.asarray(terminated), jnp.asarray(truncated), None)
    return add(empty_buffer(count, steps), steps, jnp.ones(count, bool))


def learnt(memory: Buffer, states: np.ndarray, **changes) -> np.ndarray:
    """What both critics think of some action in each state after training."""
    td3 = settings(
        actor=ag.MLP(states.shape[1], 1, (8,), activation="relu", output="tanh"),
        critic=learning.critic_network(states.shape[1], 1, 0, (32, 32)),
        minibatch_size=32,
        reward_scale=1.0,
        target_rate=0.05,
        critic_learning_rate=3e-3,
        **changes,
    )
    learner = learning.start(td3, td3.actor.init(jax.random.key(0)), jax.random.key(1))
    trained = jax.jit(partial(learning.train, td3, critic_steps=2000))(learner, memory, jax.random.key(2))
    observation, action = jnp.asarray(states, jnp.float32), jnp.full((len(states), 1), 0.3)
    return np.array([learning.value(critic, observation, action) for critic in trained.critics])


def test_critics_find_the_values_of_two_states_without_end():
    """From a to b and back, paid 1 for leaving a; cut off now and then, which must not look like an end."""
    turn = np.arange(300) % 2
    truncated = np.arange(300) % 7 == 6
    found = learnt(memory_of(np.eye(2)[turn], 1.0 - turn, np.zeros(300, bool), truncated), np.eye(2))
    np.testing.assert_allclose(found, [[1 / (1 - 0.81), 0.9 / (1 - 0.81)]] * 2, rtol=0.05)


def test_critics_find_the_values_of_two_states_with_an_end():
    """From a to b for 1, and for 2 to the end; the row after the end belongs to the next episode."""
    turn = np.arange(300) % 2
    found = learnt(memory_of(np.eye(2)[turn], 1.0 + turn, turn == 1, np.zeros(300, bool)), np.eye(2))
    np.testing.assert_allclose(found, [[1 + 0.9 * 2, 2]] * 2, rtol=0.05)


# Q = -|a - 0.3|, or -|a - c| where there is a condition c: two ReLUs that look at the action.
SIGNS = np.array([[1.0, -1.0]])
APART = (jnp.array([[-1.0], [-1.0]]), jnp.zeros(1))


@pytest.mark.parametrize("aim", [0.3, -0.6])
@pytest.mark.parametrize("conditioned", [False, True])
def test_policy_gradient_climbs_to_a_known_optimum(conditioned, aim):
    policy = ag.MLP(OBS, 1, (16,), activation="relu", output="tanh", weights="lecun_uniform")
    rows = [np.zeros((OBS, 2)), SIGNS] + ([-SIGNS] if conditioned else [])
    biases = jnp.zeros(2) if conditioned else jnp.asarray(-aim * SIGNS[0])
    critic = [(jnp.asarray(np.concatenate(rows), jnp.float32), biases.astype(jnp.float32)), APART]
    seen = jax.random.normal(jax.random.key(0), (300, 20, OBS))
    child = learning.policy_gradient(
        policy.init(jax.random.key(1)),
        seen,
        critic,
        jnp.array([aim]) if conditioned else None,
        policy=policy,
        learning_rate=5e-3,
    )
    actions = policy.act(child, jax.random.normal(jax.random.key(2), (50, OBS)))
    before = policy.act(policy.init(jax.random.key(1)), seen[0])
    assert np.abs(actions - aim).mean() < 0.05 < np.abs(before - aim).mean()


@pytest.mark.parametrize(("count", "stretch"), [(7, 3), (6, 3), (2, 5), (1, 1)])
def test_what_is_done_once_is_done_everywhere(count, stretch):
    """Whatever the number of devices and of rounds between two meetings; and zeros keep their signs."""

    def body(i, state, shared):
        total, number, zero = state
        return jnp.sin(total) + i * shared, number + 1, -zero

    state, shared = (jnp.arange(3.0), jnp.int32(0), jnp.float32(-0.0)), jnp.float32(0.3)
    found = compiled(lambda *args: repeat(body, count, *args, stretch=stretch))(state, shared)
    plain = compiled(lambda state: jax.lax.fori_loop(0, count, lambda i, state: body(i, state, shared), state))(state)
    assert all(raw(a).tobytes() == raw(b).tobytes() for a, b in zip(found, plain, strict=True))
    assert int(found[1]) == count and np.signbit(found[2]) == (count % 2 == 0)
