"""The one place that imports Brax, without the messages it prints when it is imported or builds a robot."""

import contextlib
import functools
import io
import warnings
from typing import Any

import jax
import numpy as np


@contextlib.contextmanager
def quiet():
    """Silences the import of optional GPU back ends that are not installed, and Brax's notice of maintenance.

    Neither tells a user of this package anything to act on. Other warnings pass.
    """
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Brax System, piplines and environments are not actively")
        yield


@functools.cache
def brax() -> Any:
    """The Brax modules that the tasks use."""
    with quiet():
        import brax.contact
        import brax.envs
        import brax.io.mjcf
    return brax


@contextlib.contextmanager
def building():
    """For building robots: silently, and with real arrays even if a program is just being traced."""
    with quiet(), jax.ensure_compile_time_eval(), _on_a_device_of_ours():
        yield


@contextlib.contextmanager
def _on_a_device_of_ours():
    """MuJoCo puts models on the first device there is, which of several processes only the first can read."""
    mjx: Any = brax().io.mjcf.mjx
    put_model = mjx.put_model
    if jax.process_count() > 1:
        mjx.put_model = functools.partial(put_model, device=jax.local_devices()[0])
    try:
        yield
    finally:
        mjx.put_model = put_model


@functools.cache
def environment(robot: str, backend: str) -> Any:
    """A Brax environment by the name Brax gives it; one object per robot and backend, shared by all tasks."""
    with building():
        env = brax().envs.get_environment(robot, backend=backend)
        env.sys = anywhere(env.sys)
        return env


def anywhere(system: Any) -> Any:
    """A Brax system whose arrays may be used on any device; MuJoCo ties them to the first."""
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, system)
