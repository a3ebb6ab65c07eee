"""The compiled backend gives the numbers of the reference."""

from itertools import compress

import pytest
import torch
from helpers import assert_close, random_layer
from oracles import random_nodes

from sikagp import Laplace, Matern32, Matern52, SIKALayer
from sikagp.grid import DyadicGrid
from sikagp.ops import OwnParameters, Points, compiled, reference
from sikagp.ops.backends import use_backend
from sikagp.plans import scaled_prior
from sikagp.table import two_point
from sikagp.tree import BridgeTree, grid_prior

SIZES = {"features": 3, "level": 3, "outputs": 5}
NUM_NODES = 2 ** SIZES["level"] + 1


def random_tree(s, shared, dtype):
    rows = SIZES["level"] if shared else NUM_NODES - 2
    bridge = SIZES["features"], rows, s, s
    shapes = (SIZES["features"], 2 * s, 2 * s), bridge, bridge, bridge
    return BridgeTree(*(0.5 * torch.randn(shape, dtype=dtype) for shape in shapes))


def random_weights(s, dtype):
    return torch.randn(SIZES["features"], NUM_NODES, s, SIZES["outputs"], dtype=dtype)


def random_points(s, dtype, rows=70):
    cell = torch.randint(0, NUM_NODES - 1, (rows, SIZES["features"]))
    left, right = torch.rand(2, rows, SIZES["features"], s, dtype=dtype)
    return cell, left, right


def assert_all_close(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e)


every_case = pytest.mark.parametrize(
    ("s", "shared", "dtype"),
    [(s, shared, d) for s in (1, 2, 3) for shared in (True, False) for d in (torch.float64,)]
    + [(1, True, torch.float32)],
)


@every_case
def test_node_states_and_their_gradients(s, shared, dtype):
    tree, weight = random_tree(s, shared, dtype), random_weights(s, dtype)
    states = compiled.node_states(weight, tree)
    assert_close(states, reference.node_states(weight, tree))
    d_states = torch.randn_like(states)
    d_weight, d_tree = compiled.node_states_backward(d_states, states, weight, tree)
    expected = reference.node_states_backward(d_states, states, weight, tree)
    assert_all_close([d_weight, *d_tree], [expected[0], *expected[1]])


@every_case
def test_cell_covariances_and_their_gradients(s, shared, dtype):
    tree, scale = random_tree(s, shared, dtype), random_weights(s, dtype).abs()
    table = compiled.cell_covariances(scale, tree)
    assert_close(table, reference.cell_covariances(scale, tree))
    d_table = torch.randn_like(table)
    d_scale, d_tree = compiled.cell_covariances_backward(d_table, table, scale, tree)
    expected = reference.cell_covariances_backward(d_table, table, scale, tree)
    assert_all_close([d_scale, *d_tree], [expected[0], *expected[1]])


@every_case
def test_interpolation_and_its_gradients(s, shared, dtype):
    tree = random_tree(s, shared, dtype)
    states = reference.node_states(random_weights(s, dtype), tree)
    table = reference.cell_covariances(random_weights(s, dtype), tree)
    inputs = *random_points(s, dtype), states, table
    assert_all_close(compiled.interpolate(*inputs), reference.interpolate(*inputs))
    d_mean, d_variance = torch.randn(2, 70, SIZES["outputs"], dtype=dtype)
    gradients = compiled.interpolate_backward(d_mean, d_variance, *inputs)
    assert_all_close(gradients, reference.interpolate_backward(d_mean, d_variance, *inputs))


@every_case
def test_moments_and_their_gradients(s, shared, dtype):
    tree, features, outputs = random_tree(s, shared, dtype), SIZES["features"], SIZES["outputs"]
    points = Points(*random_points(s, dtype), torch.rand(70, features, dtype=dtype))
    weight, raw_scale = random_weights(s, dtype), 3 * random_weights(s, dtype)
    bias, variance = torch.randn(2, outputs, dtype=dtype), torch.rand(features, dtype=dtype)
    inputs = points, OwnParameters(weight, raw_scale, bias, variance), tree
    assert_all_close(compiled.moments(*inputs), reference.moments(*inputs))
    gradients = torch.randn(2, 70, outputs, dtype=dtype)
    for actual, expected in zip(
        compiled.moments_backward(*gradients, *inputs),
        reference.moments_backward(*gradients, *inputs),
        strict=True,
    ):
        floating = [t.is_floating_point() for t in expected]  # cells are passed through
        assert_all_close(compress(actual, floating), compress(expected, floating))


KERNELS = {"laplace": Laplace(), "matern32": Matern32(), "matern52": Matern52()}
by_kernel = pytest.mark.parametrize("name", KERNELS)
by_spacing = pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])


@by_kernel
@pytest.mark.parametrize("residual", ["full", "outside", "none"])
@pytest.mark.parametrize("lengthscale", [1e-3, 0.05, 1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_packed_prediction_is_the_uncached_evaluation(name, residual, lengthscale, dtype):
    domain = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 3.0])
    options = {"level": 5, "lengthscale": lengthscale, "domain": domain, "residual": residual}
    layer = SIKALayer(2, 3, kernel=name, dtype=dtype, **options)
    x = torch.cat(
        [torch.rand(150, 2) * 6 - 2, torch.tensor([[-1.0, 0.0], [1.0, 3.0], [1e6, -1e6]])]
    )
    with use_backend("reference"):
        expected = layer(x)
    with torch.no_grad():
        actual = layer.eval()(x)
    assert_close(actual.mean, expected.mean)
    assert_close(actual.variance, expected.variance)


@pytest.mark.parametrize("outputs", [1, 16, 17, 40])
def test_any_number_of_outputs_is_predicted(outputs):
    layer = random_layer(2, outputs, kernel="matern52", dtype=torch.float32)
    x = torch.rand(70, 2) * 1.4 - 0.2
    expected = layer(x)
    with torch.no_grad():
        actual = layer.eval()(x)
    assert_close(actual.mean, expected.mean)
    assert_close(actual.variance, expected.variance)


def test_prediction_without_bias():
    layer = SIKALayer(2, 3, level=3, bias=False)
    x = torch.rand(5, 2)
    expected = layer(x).mean
    with torch.no_grad():
        assert_close(layer.eval()(x).mean, expected)


def point_inputs(level, even, rate, *, rows=60):
    """Coordinates in and beyond the grid, rates of two features, cells and node positions."""
    rates = torch.tensor([rate, 2 * rate], dtype=torch.float64, requires_grad=True)
    unit = (torch.rand(rows, 2, dtype=torch.float64) * 1.4 - 0.2).requires_grad_()
    nodes = None if even else random_nodes(level, 2)
    cell = DyadicGrid(level, nodes).locate(unit.detach().clamp(0, 1))
    return unit, rates, cell, nodes, level


@by_kernel
@by_spacing
@pytest.mark.parametrize("rate", [1e-3, 0.3, 5.0, 200.0])
def test_compiled_points_are_those_of_the_kernel(name, even, rate):
    inputs = point_inputs(4, even, rate)
    unit, rates, _, nodes, level = inputs
    prior = grid_prior(KERNELS[name], DyadicGrid(level, nodes), rates)
    weights = torch.ops.sikagp.point_weights(*inputs, KERNELS[name].state_size)
    _, expected = two_point(unit, prior)
    assert_all_close(weights, expected)
    pattern = [torch.randn_like(w) for w in weights]
    for parts in (weights, expected):
        total = sum((p * w).sum() for p, w in zip(pattern, parts, strict=True))
        gradients = list(torch.autograd.grad(total, (unit, rates), retain_graph=True))
        gradients[1] = gradients[1] * rates.detach()  # weights know the rate to rounding times it
        if parts is weights:
            actual = gradients
    assert_all_close(actual, gradients)


@pytest.mark.parametrize("s", [1, 2, 3])
@by_spacing
def test_opcheck_of_the_points(s, even):
    inputs = point_inputs(3, even, 1.5, rows=5)
    torch.library.opcheck(torch.ops.sikagp.point_weights.default, (*inputs, s))
    gradients = torch.randn(2, 5, 2, s), torch.randn(2, 5, 2)
    gradients = [part for stack in gradients for part in stack.double().unbind()]
    inputs = [part.detach() if isinstance(part, torch.Tensor) else part for part in inputs]
    torch.library.opcheck(torch.ops.sikagp.point_weights_backward.default, (*gradients, *inputs))


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
@pytest.mark.parametrize("check_finite", [True, False])
def test_numbers_that_are_not_finite_stay_in_their_rows(kernel, check_finite):
    layer = random_layer(kernel=kernel, check_finite=check_finite).eval()
    good = torch.rand(3, 2, dtype=torch.float64)
    x = torch.cat([good, torch.full_like(good, torch.nan), torch.full_like(good, torch.inf)])
    with torch.no_grad():
        if check_finite:
            with pytest.raises(ValueError, match="6 of 9 rows"):
                layer(x)
        else:
            assert_close(layer(x).mean[:3], layer(good).mean)
            assert layer(x).mean[3:6].isnan().all()


@pytest.mark.parametrize("rate", [1e-3, 0.3, 5.0, 1e3])
def test_compiled_tree_is_that_of_the_kernel(rate):
    rates = torch.tensor([rate, 2 * rate], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.7, 1.3], dtype=torch.float64, requires_grad=True)
    kernel, grid = Laplace(), DyadicGrid(4)
    expected = grid_prior(kernel, grid, rates).tree.scaled(scale)
    actual = scaled_prior(kernel, grid, rates, scale).tree
    assert_all_close(actual, expected)
    pattern = [torch.randn_like(part) for part in expected]
    assert_all_close(
        torch.autograd.grad(actual, (rates, scale), pattern),
        torch.autograd.grad(expected, (rates, scale), pattern),
    )


def test_opcheck_of_the_tree():
    rate = torch.tensor([0.5, 3.0], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.7, 1.3], dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.sikagp.laplace_tree.default, (rate, scale, 3))
