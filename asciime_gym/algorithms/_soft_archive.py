"""The soft archive of CMA-MAE: Fontaine & Nikolaidis (2023), arXiv:2205.10752.

Each cell has a threshold that the fitness of what falls into it pulls up little by little, so that a cell that was
improved once is still worth a visit. It holds no solutions; its cells are the archive's.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def improvement(
    threshold: Float[Array, " cells"], cell: Int[Array, " rows"], fitness: Float[Array, " rows"]
) -> Float[Array, " rows"]:
    """How far the fitness of each row is above the threshold of its cell; negative below."""
    return fitness - threshold[cell]


def raised(
    threshold: Float[Array, " cells"],
    cell: Int[Array, " rows"],
    fitness: Float[Array, " rows"],
    valid: Bool[Array, " rows"],
    learning_rate: float,
) -> Float[Array, " cells"]:
    """The thresholds after these rows: in a cell, those above its threshold move it n times, n being their number, by
    the share `learning_rate` of the way to their mean."""
    above = valid & (fitness > threshold[cell])
    # One column for each cell: a scattered sum would depend on the order in which an accelerator adds.
    there = above[:, None] & (cell[:, None] == jnp.arange(len(threshold)))
    count = there.sum(axis=0)
    mean = jnp.where(there, fitness[:, None], 0.0).sum(axis=0) / jnp.maximum(count, 1)
    kept = (1 - learning_rate) ** count
    return kept * threshold + (1 - kept) * mean
