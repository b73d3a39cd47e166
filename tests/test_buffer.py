"""The ring buffer against a Python list."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asciime_gym._buffer import add, empty_buffer, sample

ROWS = 5
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
