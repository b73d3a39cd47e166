"""A layer's product and its derivatives, which are those of `@` however they are computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import asciime_gym as ag
from asciime_gym._compile import OPTIONS
from asciime_gym._dense import NARROW, dense, layer, narrow_first

SHAPES = [(7, 5, 32), (7, 32, 5), (7, 32, 32), (1, 1, 1), (40, 12, 3)]  # rows, inputs, outputs


def draw(*shapes):
    keys = jax.random.split(jax.random.key(1), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("derivative", [jax.jacrev, jax.jacfwd, jax.hessian], ids=lambda d: d.__name__)
def test_derivatives(derivative, rows, inputs, outputs):
    x, weights = draw((rows, inputs), (inputs, outputs))
    close(dense(x, weights), x @ weights)
    of = lambda product: lambda x, weights: jnp.tanh(product(x, weights)).sum()
    for ours, theirs in zip(
        jax.tree.leaves(derivative(of(dense), argnums=(0, 1))(x, weights)),
        jax.tree.leaves(derivative(of(jnp.matmul), argnums=(0, 1))(x, weights)),
        strict=True,
    ):
        close(ours, theirs)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (1, 2)])
def test_a_batch_of_products_and_of_their_gradients(axes):
    x, weights = draw((4, 4, 6), (6, 4, 4)) if axes == (1, 2) else draw((3, 4, 6), (3, 6, 5))
    x, weights = (a if axis is not None else a[0] for a, axis in zip((x, weights), axes, strict=True))
    if axes == (1, 2):
        x = x.swapaxes(0, 1)
    close(jax.vmap(dense, axes)(x, weights), jax.vmap(jnp.matmul, axes)(x, weights))
    slope = lambda product: jax.grad(lambda x, weights: jnp.sin(product(x, weights)).sum(), argnums=1)
    close(jax.vmap(slope(dense), axes)(x, weights), jax.vmap(slope(jnp.matmul), axes)(x, weights))
    total = lambda product: jax.grad(lambda weights: jnp.sin(jax.vmap(product, axes)(x, weights)).sum())
    close(total(dense)(weights), total(jnp.matmul)(weights))


@pytest.mark.parametrize("outputs", [1, NARROW - 1, NARROW])
def test_a_layer_of_any_width(outputs):
    x, weights, biases = draw((6, 20), (20, outputs), (outputs,))
    for rows in (x, x[0], x.reshape(2, 3, 20)):
        close(layer(rows, narrow_first(weights), biases), rows @ weights + biases)


def test_other_types_are_promoted():
    x, weights = draw((2, 3), (3, 2))
    half = dense(x.astype(jnp.float16), weights)
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, x @ weights, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the gradient's form is that for CPUs")
def test_no_product_with_a_transposed_left_side_is_left():
    policy = ag.MLP(30, 8)
    genotype, observation = draw((policy.size,), (250, 30))
    slope = lambda act: jax.jit(jax.grad(lambda genotype: act(genotype, observation).sum()))

    def plain(genotype, x):
        (w1, b1), (w2, b2), (w3, b3) = policy.unpack(genotype)
        return jnp.tanh(jnp.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3

    slow = "lhs_contracting_dims={0}"
    assert slow in slope(plain).lower(genotype).compile(OPTIONS["cpu"]).as_text()
    assert slow not in slope(policy.act).lower(genotype).compile(OPTIONS["cpu"]).as_text()
    close(slope(policy.act)(genotype), slope(plain)(genotype))


@pytest.mark.parametrize("check_vma", [True, False])
def test_within_a_shard_map(check_vma):
    mesh = jax.make_mesh((jax.device_count(),), ("devices",), axis_types=(AxisType.Auto,))
    x, weights = draw((2 * jax.device_count(), 3), (3, 20))

    def slope(product):
        total = lambda x, weights: jax.lax.psum((product(x, weights) ** 2).sum(), "devices")
        whole = jax.shard_map(total, mesh=mesh, in_specs=(P("devices"), P()), out_specs=P(), check_vma=check_vma)
        return jax.jit(jax.grad(whole, argnums=(0, 1)))(x, weights)

    jax.tree.map(close, slope(dense), slope(jnp.matmul))


def test_precision_is_what_was_asked_for():
    x, weights = draw((4, 3), (3, 5))

    def asked(x, weights):
        with jax.default_matmul_precision("highest"):
            return dense(x, weights)

    assert "HIGHEST" in jax.jit(asked).lower(x, weights).as_text()
    assert "HIGHEST" not in jax.jit(dense).lower(x, weights).as_text()
