"""A dense layer as a CPU core computes it fastest, forwards and back.

Of one input it reads every weight once, and does so along the layer's outputs; where these do not fill a vector, along
its inputs, if the weights are stored that way round.

The gradient with respect to the weights multiplies the transposed inputs by what comes back. XLA's fast product for
CPUs takes no transposed left side; its other one is two thirds as fast there, and a fifth as fast where the layer is
narrow. So the narrower factor is transposed first, and the compiler is kept from making one product of both.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.lax import optimization_barrier as keep
from jaxtyping import Array, Float

from ._compile import by_platform

NARROW = 16  # outputs that fill a vector
_dense_p = Primitive("dense")  # rather than a custom gradient: derivatives of all kinds and orders are left as they are


def narrow_first(weights: Float[Array, "inputs outputs"]) -> Array:
    """The weights as `layer` takes them: those of a narrow layer the other way round."""
    return weights.T if weights.shape[1] < NARROW else weights


def layer(x: Float[Array, "*batch inputs"], stored: Array, biases: Float[Array, " outputs"]) -> Array:
    """`x @ weights + biases`."""
    if len(biases) >= NARROW:
        return dense(x, stored) + biases
    return (stored @ x if x.ndim == 1 else dense(x, stored.T)) + biases


def dense(x: Float[Array, "*batch inputs"], weights: Float[Array, "inputs outputs"]) -> Float[Array, "*batch outputs"]:
    """`x @ weights`."""
    settings: Any = jax.config
    plain = x.ndim == 2 and x.dtype == weights.dtype and settings.jax_default_matmul_precision is None
    return _dense_p.bind(x, weights) if plain and _unspread(x) and _unspread(weights) else x @ weights


def _unspread(array: Array) -> bool:
    """Whether its type says nothing of devices, of which the rules below know nothing."""
    kind = jax.typeof(array)
    return not kind.manual_axis_type.varying and not any(kind.sharding.spec)


def _weights_gradient(back: Array, x: Array, _) -> Array:
    def narrower_first(x: Array, back: Array) -> Array:
        if x.shape[1] <= back.shape[1]:
            return keep(x.T) @ back
        return keep(keep(back.T) @ x).T

    return by_platform(x, back, cpu=narrower_first, default=lambda x, back: x.T @ back)


def _batched(args: tuple, axes: tuple) -> tuple[Array, int]:
    return jax.vmap(jnp.matmul, axes)(*args), 0


_dense_p.def_impl(jax.jit(jnp.matmul))
_dense_p.def_abstract_eval(lambda x, weights: ShapedArray((x.shape[0], weights.shape[1]), x.dtype))
mlir.register_lowering(_dense_p, mlir.lower_fun(jnp.matmul, multiple_results=False))
ad.defbilinear(_dense_p, lambda back, _, weights: dense(back, weights.T), _weights_gradient)
batching.primitive_batchers[_dense_p] = _batched
