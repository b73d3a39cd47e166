"""Our doors are compiled here, all with the same options, so that they round alike."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

# On a CPU the compiler's first level makes programs as fast as its third, and makes them in about half the time.
OPTIONS = {"cpu": {"xla_backend_optimization_level": 1}}
jit: Any = eqx.filter_jit


def compiled(function: Callable, *, donate: Literal["none", "all-except-first"] = "none") -> Any:
    """`function`, compiled when it is called; as part of a larger program it is what it was."""
    plain = jit(function, donate=donate)
    tuned: dict[str, Any] = {}

    def program() -> Any:
        platform = jax.default_backend()
        if platform not in OPTIONS or _tracing():  # options are those of the program around it
            return plain
        if platform not in tuned:
            tuned[platform] = jit(function, donate=donate, compiler_options=OPTIONS[platform])
        return tuned[platform]

    @functools.wraps(function)
    def call(*args, **kwargs):
        return program()(*args, **kwargs)

    return call


def _tracing() -> bool:
    """Whether a program is being traced, rather than run."""
    return isinstance(jnp.zeros(()), Tracer)
