"""Values of drawn functions: one operator for every sample's points and states."""

import pytest
import torch
from helpers import assert_close, random_layer

from sikagp import ops
from sikagp.ops.backends import use_backend

NODES = 5
by_state = pytest.mark.parametrize("s", [1, 2, 3])


@pytest.fixture(params=["reference", "compiled"])
def backend(request):
    with use_backend(request.param):
        yield


def value_inputs(s, outputs=3):
    """Cells, weights at both ends and states of two samples with four rows of three features."""
    cell = torch.randint(0, NODES - 1, (2, 4, 3))
    left, right = torch.randn(2, 2, 4, 3, s, dtype=torch.float64)
    states = torch.randn(2, 3, NODES, s, outputs, dtype=torch.float64)
    return cell, *(tensor.clone().requires_grad_() for tensor in (left, right, states))


@by_state
@pytest.mark.parametrize("outputs", [1, 3, 9])
def test_every_sample_is_the_mean_of_an_interpolation(backend, s, outputs):
    inputs = value_inputs(s, outputs)
    covariances = torch.zeros(3, NODES, 2, s, s, outputs, dtype=torch.float64)
    expected = [ops.interpolate(*sample, covariances)[0] for sample in zip(*inputs, strict=True)]
    assert_close(ops.values(*inputs), torch.stack(expected))


@by_state
def test_gradients_are_those_of_finite_differences(backend, s):
    assert torch.autograd.gradcheck(ops.values, value_inputs(s))


@by_state
def test_opcheck_of_values(s):
    library, inputs = torch.ops.sikagp, value_inputs(s)
    torch.library.opcheck(library.node_values.default, inputs)
    gradient = torch.randn(2, 4, 3, dtype=torch.float64)
    inputs = tuple(tensor.detach() for tensor in inputs)
    torch.library.opcheck(library.node_values_backward.default, (gradient, *inputs))


def test_wild_cells_stay_inside_the_table():
    cell, left, right, states = value_inputs(1)
    wild = torch.where(cell > 1, 2**62, -(2**62))
    clamped = torch.where(cell > 1, NODES - 2, 0)
    with use_backend("compiled"):
        assert_close(
            ops.values(wild, left, right, states), ops.values(clamped, left, right, states)
        )


def test_rows_are_shared_between_threads_without_a_seam():
    cell = torch.randint(0, NODES - 1, (7, 301, 2))
    left, right = torch.randn(2, 7, 301, 2, 1)
    states = torch.randn(7, 2, NODES, 1, 40)
    with use_backend("reference"):
        expected = ops.values(cell, left, right, states)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_backend("compiled"):
            assert_close(ops.values(cell, left, right, states), expected)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("kernel", ["laplace", "matern32", "brownian"])
def test_flipout_of_each_sample_has_the_mean_of_its_own_rows(kernel):
    layer = random_layer(kernel=kernel, residual="none")
    layer.weight_scale = layer.bias_scale = 1e-9
    x = torch.rand(3, 4, layer.in_features, dtype=torch.float64)
    assert_close(layer.flipout_each(x), layer(x).mean, dtype=torch.float32)
