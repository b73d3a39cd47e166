"""Whether a policy's actions stay within ±1, which learning from a critic needs."""

import jax
import jax.numpy as jnp
from jax.core import Tracer

from .._loop import AbstractAlgorithm
from .._policy import MLP, AbstractPolicy


def check_bounded(algorithm: AbstractAlgorithm, policy: AbstractPolicy):
    """Refuses a policy whose actions may leave ±1, where the critics know nothing."""
    name = type(algorithm).__name__
    remedy = f"use {name}.default_policy, or end the network with tanh"
    if isinstance(policy, MLP):
        if policy.output != "tanh":
            raise ValueError(
                f"{name} needs a policy whose actions are bounded to ±1; got an MLP with output={policy.output!r}: "
                f"{remedy} (output='tanh')"
            )
        return
    # Of a module of the user's own only trying tells: far-fetched weights and observations leave any other bounds.
    with jax.ensure_compile_time_eval():
        far = 1e3 * policy.init(jax.random.key(0))
        observation = 1e3 * jax.random.normal(jax.random.key(1), (64, policy.obs_size))
        farthest = jnp.abs(policy.act(far, observation)).max()
    most = 0.0 if isinstance(farthest, Tracer) else float(farthest)  # one that holds arrays is taken on trust
    if not most <= 1:
        raise ValueError(
            f"{name} needs a policy whose actions are bounded to ±1; this {type(policy).__name__} went as far as "
            f"{most:.3g}: {remedy}"
        )
