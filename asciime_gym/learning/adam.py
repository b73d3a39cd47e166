"""Adam: Kingma & Ba (2015), arXiv:1412.6980, in a form that rounds the same on any number of devices.

What is usually written divides by one number of each row and then by another, and the compiler rewrites such chains;
not always alike. Here the numbers of a row are put together first.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

FADING, FADING_SQUARES = 0.9, 0.999  # what is left of the moments after a step


class Moments(eqx.Module):
    """Running means of the gradients and of their squares."""

    first: PyTree
    second: PyTree
    count: Int[Array, ""]  # steps taken


def no_moments(like: PyTree) -> Moments:
    """Before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, like)
    return Moments(zeros, zeros, jnp.zeros((), jnp.int32))


def adam(
    parameters: PyTree, downhill: PyTree, moments: Moments, *, learning_rate: float, eps: float = 1e-8
) -> tuple[PyTree, Moments]:
    """The parameters and the moments after one step."""
    fade = lambda share: lambda old, new: share * old + (1 - share) * new
    first = jax.tree.map(fade(FADING), moments.first, downhill)
    squares = jax.tree.map(lambda leaf: leaf**2, downhill)
    second = jax.tree.map(fade(FADING_SQUARES), moments.second, squares)
    count = moments.count + 1
    root = jnp.sqrt(1 - FADING_SQUARES**count)  # both moments begin at 0, and are that much too small
    rate = learning_rate * root / (1 - FADING**count)
    step = lambda old, first, second: old - rate * first / (jnp.sqrt(second) + eps * root)
    return jax.tree.map(step, parameters, first, second), Moments(first, second, count)
