"""Policies: what gives a flat genotype its meaning."""

import abc
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from ._dense import layer, narrow_first

_ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "linear": lambda x: x}


class AbstractPolicy(eqx.Module):
    """A function of (genotype, observation); the genotype is one flat float32 vector.

    A policy of your own has `obs_size`, `act_size`, `size`, `init` and `act`. Where a genotype has to be taken apart
    before it can act, `prepare` and `apply` let episodes do so once rather than at each of their steps; a class that
    changes `act` and not `apply` acts as its `act` says.
    """

    obs_size: eqx.AbstractVar[int]
    act_size: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of parameters."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""]) -> Float[Array, " params"]:
        """A random genotype."""

    @abc.abstractmethod
    def act(
        self, genotype: Float[Array, " params"], observation: Float[Array, "*batch obs"]
    ) -> Float[Array, "*batch act"]:
        """The action for one observation, or for a batch of them."""

    def prepare(self, genotype: Float[Array, " params"]) -> PyTree:
        """What `apply` takes for a genotype: by default the genotype itself."""
        return genotype

    def apply(self, prepared: PyTree, observation: Float[Array, "*batch obs"]) -> Float[Array, "*batch act"]:
        """`act`, of a prepared genotype."""
        return self.act(prepared, observation)


def in_two(policy: AbstractPolicy) -> tuple[Callable[[Array], PyTree], Callable[[PyTree, Array], Array]]:
    """`act` in two: what is done of a genotype once, and what is done of that and an observation.

    Of a class that has an `act` of its own, but inherits `apply`, the latter is another policy's.
    """
    kind = next(kind for kind in type(policy).__mro__ if "act" in vars(kind) or "apply" in vars(kind))
    return (policy.prepare, policy.apply) if "apply" in vars(kind) else (lambda genotype: genotype, policy.act)


class MLP(AbstractPolicy):
    """A multi-layer perceptron; the defaults are ASCII-ME's network.

    The genotype holds, layer by layer, the weights `[inputs, outputs]` row by row and then the biases.

    **Arguments:**

    - `obs_size`, `act_size`: sizes of input and output.
    - `hidden`: sizes of the hidden layers.
    - `activation`: of the hidden layers, `"tanh"` or `"relu"`.
    - `output`: of the last layer, `"linear"` or `"tanh"` (bounded to ±1).
    - `weights`: how `init` draws them: `"orthogonal"` (gain √2, last layer 0.01) or `"lecun_uniform"`. Biases
      start at 0.
    """

    obs_size: int = eqx.field(static=True)
    act_size: int = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64), converter=tuple)
    activation: Literal["tanh", "relu"] = eqx.field(static=True, default="tanh")
    output: Literal["linear", "tanh"] = eqx.field(static=True, default="linear")
    weights: Literal["orthogonal", "lecun_uniform"] = eqx.field(static=True, default="orthogonal")

    def __check_init__(self):
        sizes = (self.obs_size, *self.hidden, self.act_size)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError(f"every layer of an MLP needs a size of at least 1; got {sizes}")
        known = {
            "activation": ("tanh", "relu"),
            "output": ("linear", "tanh"),
            "weights": ("orthogonal", "lecun_uniform"),
        }
        for field, names in known.items():
            if getattr(self, field) not in names:
                raise ValueError(f"MLP: {field} must be one of {names}; got {getattr(self, field)!r}")

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each layer."""
        return tuple(pairwise((self.obs_size, *self.hidden, self.act_size)))

    @property
    def size(self) -> int:
        return sum(inputs * outputs + outputs for inputs, outputs in self.layers)

    def init(self, key: Key[Array, ""]) -> Float[Array, " params"]:
        parts = []
        for i, (inputs, outputs) in enumerate(self.layers):
            layer_key = jax.random.fold_in(key, i)
            if self.weights == "orthogonal":
                gain = 0.01 if i == len(self.layers) - 1 else math.sqrt(2)
                draw = jax.nn.initializers.orthogonal(gain)
            else:
                draw = jax.nn.initializers.lecun_uniform()
            parts += [
                draw(layer_key, (inputs, outputs), jnp.float32).ravel(),
                jnp.zeros(outputs, jnp.float32),
            ]
        return jnp.concatenate(parts)

    def unpack(self, genotype: Float[Array, " params"]) -> list[tuple[Array, Array]]:
        """(weights, biases) of each layer."""
        sizes = [size for inputs, outputs in self.layers for size in (inputs * outputs, outputs)]
        parts = jax.lax.split(genotype, sizes)
        return [(w.reshape(shape), b) for shape, w, b in zip(self.layers, parts[::2], parts[1::2], strict=True)]

    def act(
        self, genotype: Float[Array, " params"], observation: Float[Array, "*batch obs"]
    ) -> Float[Array, "*batch act"]:
        return self.apply(self.prepare(genotype), observation)

    def prepare(self, genotype: Float[Array, " params"]) -> list[tuple[Array, Array]]:
        return [(narrow_first(w), b) for w, b in self.unpack(genotype)]

    def apply(
        self, prepared: list[tuple[Array, Array]], observation: Float[Array, "*batch obs"]
    ) -> Float[Array, "*batch act"]:
        x = observation
        *hidden, (weights, biases) = prepared
        for w, b in hidden:
            x = _ACTIVATIONS[self.activation](layer(x, w, b))
        return _ACTIVATIONS[self.output](layer(x, weights, biases))


def baseline_mlp(obs_size: int, act_size: int) -> MLP:
    """The network of the methods ASCII-ME is compared with: ReLU, output bounded to ±1, LeCun-uniform."""
    return MLP(obs_size, act_size, activation="relu", output="tanh", weights="lecun_uniform")


def _sizes(policy: AbstractPolicy, genotype: jax.ShapeDtypeStruct, action: Any):
    """Refuses a module whose parameters or output do not make a policy."""
    name = type(policy).__name__
    if not genotype.size:
        raise ValueError(f"{name}: the module has no floating-point parameters, so there is nothing to optimise")
    if getattr(action, "shape", None) != (policy.act_size,):
        raise ValueError(
            f"{name}: for an observation of shape ({policy.obs_size},) the module must return one array of shape "
            f"({policy.act_size},); got {action}"
        )


class EquinoxPolicy(AbstractPolicy):
    """Any Equinox module as a policy.

    **Arguments:**

    - `make`: a function of a key that returns the module; the module maps one observation to one action. Its
      floating-point arrays are the genotype, everything else is fixed.
    - `obs_size`, `act_size`: sizes of input and output.
    """

    make: Callable[[Key[Array, ""]], Any] = eqx.field(static=True)
    obs_size: int = eqx.field(static=True)
    act_size: int = eqx.field(static=True)
    parameters: int = eqx.field(static=True, init=False)

    def __post_init__(self):
        self.parameters = 0  # until it is counted
        genotype = jax.eval_shape(self._flat, jax.random.key(0))
        self.parameters = genotype.size
        observation = jax.ShapeDtypeStruct((self.obs_size,), jnp.float32)
        _sizes(self, genotype, jax.eval_shape(self.act, genotype, observation))

    @property
    def size(self) -> int:
        return self.parameters

    def _flat(self, key):
        return ravel_pytree(eqx.filter(self.make(key), eqx.is_inexact_array))[0].astype(jnp.float32)

    def _template(self):
        """The module's parameters, and the rest of it."""
        return eqx.partition(self.make(jax.random.key(0)), eqx.is_inexact_array)

    def init(self, key: Key[Array, ""]) -> Float[Array, " params"]:
        return self._flat(key)

    def act(
        self, genotype: Float[Array, " params"], observation: Float[Array, "*batch obs"]
    ) -> Float[Array, "*batch act"]:
        return self.apply(self.prepare(genotype), observation)

    def prepare(self, genotype: Float[Array, " params"]) -> list[Array]:
        return jax.tree.leaves(ravel_pytree(self._template()[0])[1](genotype))

    def apply(self, prepared: list[Array], observation: Float[Array, "*batch obs"]) -> Float[Array, "*batch act"]:
        arrays, rest = self._template()
        return _rows(eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), prepared), rest), observation)


class FlaxPolicy(AbstractPolicy):
    """Any Flax (linen) module as a policy; its `params` collection is the genotype."""

    module: Any = eqx.field(static=True)
    obs_size: int = eqx.field(static=True)
    act_size: int = eqx.field(static=True)
    parameters: int = eqx.field(static=True, init=False)

    def __post_init__(self):
        self.parameters = 0  # until it is counted
        variables = jax.eval_shape(self._variables, jax.random.key(0))
        others = sorted(set(variables) - {"params"})
        if others:
            raise ValueError(
                f"FlaxPolicy: the module keeps state in {others}; a policy may have the collection 'params' only "
                "(use LayerNorm rather than BatchNorm, and no caches)"
            )
        genotype = jax.eval_shape(self.init, jax.random.key(0))
        self.parameters = genotype.size
        observation = jax.ShapeDtypeStruct((self.obs_size,), jnp.float32)
        _sizes(self, genotype, jax.eval_shape(self.act, genotype, observation))

    @property
    def size(self) -> int:
        return self.parameters

    def _variables(self, key):
        return self.module.init(key, jnp.zeros(self.obs_size, jnp.float32))

    def init(self, key: Key[Array, ""]) -> Float[Array, " params"]:
        return ravel_pytree(self._variables(key).get("params", {}))[0].astype(jnp.float32)

    def act(
        self, genotype: Float[Array, " params"], observation: Float[Array, "*batch obs"]
    ) -> Float[Array, "*batch act"]:
        return self.apply(self.prepare(genotype), observation)

    def prepare(self, genotype: Float[Array, " params"]) -> PyTree:
        shapes = jax.eval_shape(self._variables, jax.random.key(0))["params"]
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return ravel_pytree(zeros)[1](genotype)

    def apply(self, prepared: PyTree, observation: Float[Array, "*batch obs"]) -> Float[Array, "*batch act"]:
        return _rows(lambda x: self.module.apply({"params": prepared}, x), observation)


def _rows(act: Callable, observation: Array) -> Array:
    """Applies a function of one observation to any number of leading axes."""
    for _ in range(observation.ndim - 1):
        act = jax.vmap(act)
    return act(observation)
