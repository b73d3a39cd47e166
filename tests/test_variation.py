"""The operators against the paper's equations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import asciime_gym as ag
from asciime_gym._variation import ascii, floored_cosine, iso_line, reward_to_go, while_alive

TIME, EPOCHS, ALPHA, VARIANCE, FLOOR, CLIP = 6, 5, 0.05, 4.0, 0.25, 0.8
POLICY = ag.MLP(3, 2, hidden=(4,))


# The oracle: NumPy, float64, the paper's objects built literally ------------------------------------------------


def numpy_act(genotype, observation):
    w1, b1, w2, b2 = np.split(genotype, [12, 16, 24])
    return np.tanh(observation @ w1.reshape(3, 4) + b1) @ w2.reshape(4, 2) + b2


def action_sequence(genotype, states):
    return numpy_act(genotype, states).reshape(-1)  # block vector in R^{H|A|}


def jacobian(genotype, states):
    """d(action sequence)/d(genotype) by central differences, [H|A|, |X|]."""
    columns = []
    for i in range(genotype.size):
        h = np.zeros(genotype.size)
        h[i] = 1e-6
        up, down = action_sequence(genotype + h, states), action_sequence(genotype - h, states)
        columns.append((up - down) / 2e-6)
    return np.stack(columns, axis=1)


def oracle(case, drop=None):
    """e plain steps of x + J^T λ2 Z [A_j − A_i], with one factor of z_t left out where asked."""
    x, alive = case["parent"].astype(float), case["target_alive"]
    states_i, states_j = case["parent_observation"].astype(float), case["target_observation"].astype(float)
    target = case["target_action"].astype(float).reshape(-1)
    step = ALPHA / (TIME * VARIANCE)
    for _ in range(EPOCHS):
        mine = action_sequence(x, states_j)
        z = np.zeros(TIME)
        for t in range(TIME):
            if not alive[t]:
                continue
            gain = float(case["target_reward_to_go"][t]) - float(case["parent_reward_to_go"][t])
            norms = np.linalg.norm(states_i[t]) * np.linalg.norm(states_j[t])
            cosine = max(FLOOR, states_i[t] @ states_j[t] / norms) if norms > 0 else FLOOR
            distance = np.sum((target[2 * t : 2 * t + 2] - mine[2 * t : 2 * t + 2]) ** 2)
            kernel = np.exp(-distance / (2 * VARIANCE))
            z[t] = (1 if drop == "kernel" else kernel) * (1 if drop == "cosine" else cosine)
            z[t] *= np.sign(gain) if drop == "gain" else gain
            if kernel < CLIP and gain < 0 and drop != "clip":
                z[t] = 0
        block_diagonal = np.diag(np.repeat(z, 2))
        x = x + jacobian(x, states_j).T @ (step * block_diagonal @ (target - mine))
    return x


def random_case(seed):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    alive = np.arange(TIME) < rng.integers(2, TIME + 1)
    lived = np.arange(TIME) < rng.integers(2, TIME + 1)  # by the parent
    return {
        "parent": 0.5 * normal(POLICY.size),
        "parent_observation": normal(TIME, 3) * lived[:, None],
        "parent_reward_to_go": 5 * normal(TIME) * lived,
        "target_observation": normal(TIME, 3) * alive[:, None],
        "target_action": 2 * normal(TIME, 2) * alive[:, None],
        "target_reward_to_go": 5 * normal(TIME) * alive,
        "target_alive": alive,
    }


@jax.jit
def ours(case):
    return run(case, optax.sgd(ALPHA), EPOCHS)


def run(case, optimizer, epochs, **changes):
    settings = {"variance": VARIANCE, "cosine_floor": FLOOR, "clip": CLIP, "noise": 0.0} | changes
    case = {name: jnp.asarray(value) for name, value in case.items()}
    return ascii(**case, key=jax.random.key(0), policy=POLICY, optimizer=optimizer, epochs=epochs, **settings)


@pytest.mark.parametrize("seed", range(12))
def test_ascii_is_the_papers_equation(seed):
    case = random_case(seed)
    np.testing.assert_allclose(ours(case), oracle(case), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("factor", ["gain", "cosine", "kernel", "clip"])
def test_no_factor_of_z_can_be_dropped(factor):
    """Without the factor the oracle leaves our result, by far more than rounding, on most cases."""
    cases = [random_case(seed) for seed in range(12)]
    apart = [np.abs(ours(case) - oracle(case, drop=factor)).max() for case in cases]
    assert np.median(apart) > 1e-3, apart


# Each factor by itself, where the answer is known --------------------------------------------------------------


def one_step(**changes):
    """A target one step long whose action lies a little off the parent's; returns how far the parent moves."""
    case = random_case(3)
    case["target_alive"] = np.arange(TIME) < 1
    case["parent_observation"] = case["target_observation"] = np.tile(np.float32([1, 2, 3]), (TIME, 1))
    action = numpy_act(case["parent"].astype(float), np.array([1.0, 2.0, 3.0])).astype(np.float32)
    offset = changes.pop("offset", 0.1)
    case["target_action"] = np.tile(action + np.float32([offset, 0.0]), (TIME, 1))
    case["parent_reward_to_go"] = np.zeros(TIME, np.float32)
    case["target_reward_to_go"] = np.ones(TIME, np.float32)
    case |= changes
    return np.asarray(run(case, optax.sgd(1.0), 1) - case["parent"])


def test_step_is_proportional_to_the_gain_in_reward_to_go():
    step = one_step()
    assert np.abs(step).max() > 1e-4
    np.testing.assert_allclose(
        one_step(target_reward_to_go=np.full(TIME, 3, np.float32)), 3 * step, rtol=1e-3, atol=1e-6
    )
    np.testing.assert_allclose(one_step(target_reward_to_go=np.full(TIME, -1, np.float32)), -step, rtol=1e-3, atol=1e-6)
    assert not one_step(target_reward_to_go=np.zeros(TIME, np.float32)).any()


def test_step_is_proportional_to_the_floored_cosine():
    step = one_step()
    orthogonal = np.tile(np.float32([3, 0, -1]), (TIME, 1))
    at_60_degrees = np.tile(
        np.float32([1, 2, 3]) / np.sqrt(14) + np.sqrt(3) * np.float32([3, 0, -1]) / np.sqrt(10), (TIME, 1)
    )
    np.testing.assert_allclose(one_step(parent_observation=orthogonal), FLOOR * step, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(one_step(parent_observation=-orthogonal), FLOOR * step, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(
        one_step(parent_observation=at_60_degrees.astype(np.float32)), 0.5 * step, rtol=1e-3, atol=1e-6
    )
    dead = np.zeros((TIME, 3), np.float32)
    np.testing.assert_allclose(one_step(parent_observation=dead), FLOOR * step, rtol=1e-3, atol=1e-6)


def test_step_is_damped_by_the_kernel():
    near, far = one_step(offset=0.01), one_step(offset=3.0)
    np.testing.assert_allclose(far, 300 * np.exp(-(3.0**2) / 8) * near, rtol=1e-2, atol=1e-5)


def test_a_worse_target_far_away_does_not_count():
    worse = np.full(TIME, -1, np.float32)
    assert not one_step(offset=3.0, target_reward_to_go=worse).any()  # kernel 0.32 < 0.8
    assert one_step(offset=0.5, target_reward_to_go=worse).any()  # kernel 0.97
    assert one_step(offset=3.0).any()  # a better target always counts


def test_noise_asks_for_random_actions():
    still = one_step(target_reward_to_go=np.zeros(TIME, np.float32))
    assert not still.any()
    case = random_case(0)
    moved = run(case, optax.sgd(1.0), 1, noise=0.1) - run(case, optax.sgd(1.0), 1)
    # One step of J^T (0.1 N) over the alive steps of the target.
    key = jax.random.split(jax.random.key(0), 1)[0]
    wish = np.asarray(jax.random.normal(key, (TIME, 2))) * case["target_alive"][:, None]
    expected = jacobian(case["parent"].astype(float), case["target_observation"].astype(float)).T @ (
        0.1 * wish.reshape(-1)
    )
    np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-5)


def test_a_target_that_never_lived_changes_nothing():
    case = random_case(1)
    case["target_alive"] = np.zeros(TIME, bool)
    np.testing.assert_array_equal(run(case, optax.adam(0.1), 3), case["parent"])


@pytest.mark.parametrize("life", range(TIME + 1))
def test_steps_after_the_targets_end_may_be_left_out(life):
    case = random_case(2)
    case["target_alive"] = np.arange(TIME) < life
    noisy = {"noise": 0.3}
    whole, cut = (run(case, optax.sgd(ALPHA), EPOCHS, slices=slices, **noisy) for slices in (1, 3))
    np.testing.assert_allclose(cut, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("slices", [1, 2, 4, 8, 300])
def test_whole_slices_are_left_out(slices):
    time = 250
    for life in (0, 1, 31, 32, 33, 125, 126, 249, 250):
        alive = jnp.arange(time) < life
        done = while_alive(lambda sequence: jnp.float32(len(sequence)), alive, slices, jnp.zeros((time, 2)))
        assert max(life, 1) <= done <= min(time, life + -(-time // slices))


def test_iso_line_mean_and_spread():
    parent, mate = jnp.zeros(4), jnp.array([1.0, 0.0, 0.0, 2.0])
    keys = jax.random.split(jax.random.key(0), 20_000)
    children = jax.vmap(lambda key: iso_line(parent, mate, key, sigma1=0.1, sigma2=0.5))(keys)
    covariance = np.cov(np.asarray(children).T)
    expected = 0.1**2 * np.eye(4) + 0.5**2 * np.outer(mate, mate)
    np.testing.assert_allclose(children.mean(axis=0), parent, atol=0.03)
    np.testing.assert_allclose(covariance, expected, atol=0.03)


def test_reward_to_go_is_discounted_and_ends_with_the_episode():
    reward, alive = jnp.array([1.0, 2.0, 4.0, 99.0]), jnp.array([True, True, True, False])
    np.testing.assert_allclose(reward_to_go(reward, alive, 0.5), [1 + 1 + 1, 2 + 2, 4, 0])


def test_cosine_of_nothing_is_the_floor():
    zero, one = jnp.zeros((1, 3)), jnp.ones((1, 3))
    assert floored_cosine(zero, one, 0.25).tolist() == [0.25]
    np.testing.assert_allclose(floored_cosine(one, 2 * one, 0.25), [1.0], rtol=1e-6)
