"""Our doors are compiled here, all with the same options, so that they round alike."""

import contextlib
import functools
import gc
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

from . import _programs

# On a CPU the compiler's first level makes programs as fast as its third, and makes them in about half the time.
OPTIONS = {"cpu": {"xla_backend_optimization_level": 1}}
_target: ContextVar[str | None] = ContextVar("target", default=None)  # the one platform that is traced for, if known
_jit: Any = eqx.filter_jit


def compiled(
    function: Callable,
    *,
    donate: Literal["none", "all-except-first"] = "none",
    like: Callable[..., Any] | None = None,
) -> Any:
    """`function`, compiled for this machine when it is called; as part of a larger program it is what it was.

    With `like`, which makes of the arguments a tree such as the function returns, its traced program is kept for other
    processes wherever programs are kept and the arguments allow it (`_programs.py`).
    """

    @functools.cache
    def program(target: str | None, options: bool) -> Any:
        @functools.wraps(function)
        def own(*args, **kwargs):  # what JAX remembers of a function it has traced must not serve another target
            return function(*args, **kwargs)

        return _jit(own, donate=donate, **({"compiler_options": OPTIONS[target]} if options and target else {}))

    kept: dict[str, Callable] = {}

    def kept_program(name: str, args: tuple, target: str) -> Callable:
        if name not in kept:
            assert like is not None
            first, rest = (len(_programs.arrays(part)) for part in (args[:1], args[1:]))
            given = range(first, first + rest) if donate == "all-except-first" else ()
            options = {"donate_argnums": tuple(given), "compiler_options": OPTIONS.get(target)}
            kept[name] = _programs.program(name, function, args, like(*args), target, **options)
        return kept[name]

    @functools.wraps(function)
    def call(*args, **kwargs):
        if isinstance(jnp.zeros(()), Tracer):  # a larger program is being traced: its target, and its options
            return program(_target.get(), False)(*args, **kwargs)
        target = jax.default_backend()
        with _tracing_for(target):
            name = _programs.name_of(function, args, target) if like and not kwargs else None
            if name:
                return kept_program(name, args, target)(*args)
            return program(target, target in OPTIONS)(*args, **kwargs)

    return call


def by_platform(*args: Any, cpu: Callable, default: Callable) -> Any:
    """`cpu(*args)` on a CPU, else `default(*args)`; both are traced only where a program may go to either."""
    target = _target.get()
    if target is None:
        return jax.lax.platform_dependent(*args, cpu=cpu, default=default)
    return (cpu if target == "cpu" else default)(*args)


@contextlib.contextmanager
def _tracing_for(target: str):
    """Traces for one platform, without the pauses in which Python looks for garbage among a million live objects."""
    collecting, token = gc.isenabled(), _target.set(target)
    gc.disable()
    try:
        yield
    finally:
        _target.reset(token)
        if collecting:
            gc.enable()
