"""Rows that replace others: the same on every platform, whichever way it is done there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import same

from asciime_gym._compile import _tracing_for
from asciime_gym._overwrite import overwrite

CELLS, ROWS = 40, 16


def tree(count: int, first: int):
    numbers = first + jnp.arange(count)
    return {
        "wide": numbers[:, None] * jnp.ones((1, 7)),
        "narrow": numbers,
        "key": jax.random.split(jax.random.key(first), count),
    }


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_wanted_rows_and_no_others_are_written(share):
    random = np.random.default_rng(0)
    old, new = tree(CELLS, 100), tree(ROWS, 1000)
    wanted = jnp.asarray(random.random(ROWS) < share)
    place = np.where(wanted, random.permutation(CELLS)[:ROWS], 3)  # the others all name a cell that is somebody's
    results = []
    for platform in ("cpu", "cuda"):
        with _tracing_for(platform):
            results.append(overwrite(old, new, jnp.asarray(place), wanted))
    expected = np.array(old["narrow"])
    expected[place[wanted]] = np.asarray(new["narrow"])[wanted]
    assert same(*results)
    np.testing.assert_array_equal(results[0]["narrow"], expected)
    np.testing.assert_array_equal(results[0]["wide"][:, 6], expected)


def test_a_cpu_stores_nothing_beyond_the_end():
    """Which is slow; an accelerator drops what is sent there."""
    old, new = tree(CELLS, 0), tree(ROWS, 0)

    def primitives(platform: str) -> str:
        with _tracing_for(platform):
            return str(jax.make_jaxpr(lambda *args: overwrite(*args))(old, new, jnp.arange(ROWS), jnp.arange(ROWS) < 3))

    assert "FILL_OR_DROP" in primitives("cuda") and "FILL_OR_DROP" not in primitives("cpu")
