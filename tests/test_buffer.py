"""The ring buffers against a Python list."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import asciime_gym as ag
from asciime_gym._buffer import Buffer, Steps, add, draw, empty_buffer, resize, sample, steps_of

ROWS, TIME = 5, 4
jitted = jax.jit(add)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.lists(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS), max_size=8))
def test_buffer_holds_the_last_valid_rows(capacity, batches):
    buffer, kept = empty_buffer(capacity, {"value": jnp.zeros((ROWS, 2))}), []
    for number, valid in enumerate(batches):
        values = 1 + ROWS * number + np.arange(ROWS)
        rows = {"value": jnp.asarray(values[:, None] * np.ones((1, 2)), jnp.float32)}
        buffer = jitted(buffer, rows, jnp.array(valid))
        kept = (kept + [v for v, ok in zip(values.tolist(), valid, strict=True) if ok])[-capacity:]
    assert int(buffer.count) == len(kept)
    assert sorted(buffer.items["value"][: len(kept), 0].tolist()) == sorted(kept)


def test_sample_is_uniform_and_never_draws_what_is_not_there():
    buffer = empty_buffer(8, {"value": jnp.zeros((3,))})
    assert sample(buffer, jax.random.key(0), 10).tolist() == [0] * 10
    buffer = add(buffer, {"value": jnp.arange(3.0)}, jnp.ones(3, bool))
    counts = np.bincount(np.asarray(sample(buffer, jax.random.key(0), 3000)), minlength=8)
    assert counts[3:].sum() == 0 and (abs(counts[:3] - 1000) < 4 * np.sqrt(3000 * 2 / 9)).all()


@jax.jit
def remember(buffer: Buffer, trajectory: ag.Trajectory, valid):
    steps = steps_of(trajectory, 10 * trajectory.reward, trajectory.observation[:, 0])
    return add(buffer, steps, (trajectory.alive & valid[:, None]).ravel())


def episodes(lengths: list[int], ended: list[bool], first: int) -> tuple[ag.Trajectory, list[tuple]]:
    """Episodes whose steps are numbered, and their transitions: number, next, reward, terminated, truncated, aim."""
    observation, alive = np.zeros((len(lengths), TIME, 1), np.float32), np.zeros((len(lengths), TIME), bool)
    terminated, transitions = np.zeros_like(alive), []
    for row, (length, end) in enumerate(zip(lengths, ended, strict=True)):
        numbers = first + TIME * row + np.arange(length)
        observation[row, :length, 0], alive[row, :length], terminated[row, length - 1] = numbers, True, end
        steps = [(number, number + 1, -10 * number, False, False, numbers[0]) for number in numbers]
        steps[-1] = (numbers[-1], None, -10 * numbers[-1], end, not end, numbers[0])
        transitions.append(steps)
    arrays = (observation, -observation, -observation[..., 0], alive, terminated)
    return ag.Trajectory(*map(jnp.asarray, arrays)), transitions


def contents(buffer: Buffer) -> list[tuple]:
    """What can be drawn, the oldest first."""
    count, capacity = int(buffer.count), buffer.capacity
    items, places = jax.tree.map(np.asarray, buffer.items), (int(buffer.cursor) - count + np.arange(count)) % capacity
    assert sorted(places) == list(range(count))  # `sample` draws from the first `count` places
    np.testing.assert_array_equal(items.action, -items.observation)
    found = []
    for place in places:
        ends = bool(items.terminated[place] or items.truncated[place])
        after = None if ends else items.observation[(place + 1) % capacity, 0]
        flags = bool(items.terminated[place]), bool(items.truncated[place])
        found.append((items.observation[place, 0], after, items.reward[place], *flags, items.target[place, 0]))
    return found


one_batch = st.tuples(
    st.lists(st.integers(1, TIME), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
change = st.one_of(one_batch, one_batch, one_batch, st.sampled_from([2, 5, 8, 30]))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([2, 5, 8, 30]), st.lists(change, max_size=40))
def test_transitions_are_those_of_a_list(capacity, changes):
    """Over thousands of batches, some larger than the buffer, with changes of its size in between."""
    like = Steps(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.zeros(1), *[jnp.zeros(1, bool)] * 2, jnp.zeros((1, 1)))
    buffer, kept, first = empty_buffer(capacity, like), [], 1
    for one in changes:
        if isinstance(one, int):
            buffer, capacity = resize(buffer, one), one
        else:
            lengths, ended, valid = one
            trajectory, transitions = episodes(lengths, ended, first)
            buffer = remember(buffer, trajectory, jnp.array(valid))
            kept += [step for steps, ok in zip(transitions, valid, strict=True) if ok for step in steps]
            first += TIME * len(lengths)
        kept = kept[-capacity:]
        assert contents(buffer) == kept


def test_draw_gives_what_followed():
    trajectory, transitions = episodes([4, 2, 3], [True, False, True], 1)
    like = steps_of(trajectory, trajectory.reward, trajectory.observation[:, 0])
    known = {step[0]: step for steps in transitions for step in steps}
    buffer = remember(empty_buffer(16, like), trajectory, jnp.ones(3, bool))
    drawn = jax.tree.map(np.asarray, draw(buffer, jax.random.key(0), 500))
    seen = drawn.step.observation[:, 0]
    assert set(seen) == set(known)
    for number, after in zip(seen, drawn.next_observation[:, 0], strict=True):
        assert known[number][1] in (None, after)


def test_growing_leaves_everything_in_its_place():
    buffer = empty_buffer(8, {"value": jnp.zeros(3)})
    buffer = add(buffer, {"value": jnp.arange(1.0, 4)}, jnp.ones(3, bool))
    larger = resize(buffer, 32)
    assert larger.items["value"].tolist() == [1, 2, 3] + [0] * 29 and int(larger.cursor) == int(larger.count) == 3
    full = add(larger, {"value": jnp.arange(1.0, 33)}, jnp.ones(32, bool))
    assert resize(full, 8).items["value"].tolist() == list(range(25, 33))
