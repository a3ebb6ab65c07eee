"""The compiled backend gives the numbers of the reference."""

from itertools import compress

import pytest
import torch
from helpers import assert_close, random_layer
from oracles import random_nodes
from torch.fx.experimental.proxy_tensor import make_fx

from sikagp import Laplace, Matern32, Matern52, NodeDomain, SIKALayer
from sikagp.grid import DyadicGrid
from sikagp.ops import OwnParameters, Points, compiled, reference
from sikagp.ops.backends import use_backend
from sikagp.ops.loops.prediction import LARGE
from sikagp.plans import OPEN_SHARES, grow_prior
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


@pytest.mark.parametrize(
    ("features", "outputs", "level"), [(2, 1, 3), (2, 16, 3), (2, 17, 3), (2, 40, 3), (6, 10, 10)]
)
def test_tables_of_any_size_are_predicted_from(features, outputs, level):
    layer = random_layer(features, outputs, level=level, kernel="matern52", dtype=torch.float32)
    numbers = features * (2**level + 1) * (3 + 6 + 9) * outputs
    assert (numbers * 4 > LARGE) == (level == 10)  # the last is beyond the cache
    x = torch.rand(70, features) * 1.4 - 0.2
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
    """Coordinates in and beyond the grid, rates of two features, node positions and the level."""
    rates = torch.tensor([rate, 2 * rate], dtype=torch.float64, requires_grad=True)
    unit = (torch.rand(rows, 2, dtype=torch.float64) * 1.4 - 0.2).requires_grad_()
    return unit, rates, None if even else random_nodes(level, 2), level


def test_compiled_cells_begin_with_their_nodes():
    level = 3
    nodes = random_nodes(level, 2)
    rates = torch.ones(2, dtype=nodes.dtype)
    *_, cell = torch.ops.sikagp.point_weights(
        nodes.T.contiguous(), rates, nodes, level, 1, 1.0, 1.0
    )
    expected = torch.arange(nodes.shape[1]).clamp(max=2**level - 1)
    assert cell.equal(expected.unsqueeze(-1).expand_as(cell))


@by_kernel
@by_spacing
@pytest.mark.parametrize("rate", [1e-3, 0.3, 5.0, 200.0])
@pytest.mark.parametrize("residual", ["full", "outside"])
def test_compiled_points_are_those_of_the_kernel(name, even, rate, residual):
    inputs = point_inputs(4, even, rate)
    unit, rates, nodes, level = inputs
    prior = grid_prior(KERNELS[name], DyadicGrid(level, nodes), rates)
    shares = OPEN_SHARES[residual]
    *weights, cell = torch.ops.sikagp.point_weights(*inputs, KERNELS[name].state_size, *shares)
    expected_cell, (left, right, *opened) = two_point(unit, prior)
    assert cell.equal(expected_cell)
    expected = left, right, shares[0] * opened[0] + shares[1] * opened[1]
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
    torch.library.opcheck(torch.ops.sikagp.point_weights.default, (*inputs, s, 1.0, 0.5))
    gradients = *torch.randn(2, 5, 2, s).double().unbind(), torch.randn(5, 2).double()
    inputs = [part.detach() if isinstance(part, torch.Tensor) else part for part in inputs]
    inputs = *gradients, *inputs, 1.0, 0.5
    torch.library.opcheck(torch.ops.sikagp.point_weights_backward.default, inputs)


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


def tree_inputs(level, even, rate):
    """Rates and prior deviations of two features, node positions and the level."""
    rates = torch.tensor([rate, 2 * rate], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.7, 1.3], dtype=torch.float64, requires_grad=True)
    return rates, scale, None if even else random_nodes(level, 2), level


def in_units_of_cells(tree, rates, level):
    """Tree with derivatives counted per cell, where all of its entries are known to rounding."""
    rows, s = tree[1].shape[1:3]
    number = torch.arange(1, rows + 1)
    depth = number if rows == level else number.log2().floor() + 1
    width = (rates.detach().unsqueeze(-1) / 2**depth).clamp(max=1)
    order = torch.arange(s).unsqueeze(-1) - torch.arange(s)
    unit = width[..., None, None] ** order
    return tree[0], tree[1] * unit, tree[2] * unit, tree[3]


@by_kernel
@by_spacing
@pytest.mark.parametrize("rate", [1e-2, 0.3, 5.0, 100.0])
@pytest.mark.parametrize("level", [1, 4])
def test_compiled_tree_is_that_of_the_kernel(name, even, rate, level):
    kernel, (rates, scale, nodes, _) = KERNELS[name], tree_inputs(level, even, rate)
    grid = DyadicGrid(level, nodes)
    trees = [
        grid_prior(kernel, grid, rates).tree.scaled(scale),
        grow_prior(kernel, grid, rates).tree.scaled(scale),
        torch.ops.sikagp.bridge_tree(rates, scale, nodes, level, kernel.state_size),
    ]
    expected, *others = (in_units_of_cells(tree, rates, level) for tree in trees)
    pattern = [torch.randn_like(part) for part in expected]
    d_rate, d_scale = torch.autograd.grad(expected, (rates, scale), pattern)
    for actual in others:
        assert_all_close(actual, expected)
        to_rate, to_scale = torch.autograd.grad(actual, (rates, scale), pattern)
        # The tree knows the rate to rounding times it.
        assert_all_close([to_rate * rates, to_scale], [d_rate * rates, d_scale])


@by_kernel
@by_spacing
def test_opcheck_of_the_tree(name, even):
    s, inputs = KERNELS[name].state_size, tree_inputs(2, even, 0.5)
    torch.library.opcheck(torch.ops.sikagp.bridge_tree.default, (*inputs, s))
    rates, scale, nodes, _ = inputs
    tree = torch.ops.sikagp.bridge_tree(*inputs, s)
    inputs = *(part.detach() for part in (*tree, rates, scale)), nodes
    torch.library.opcheck(torch.ops.sikagp.bridge_tree_backward.default, inputs)


@by_kernel
@by_spacing
@pytest.mark.parametrize("residual", ["full", "outside", "none"])
def test_a_layer_in_one_operator_is_the_reference(name, even, residual):
    domain = (0.0, 1.0) if even else NodeDomain(random_nodes(3, 2))
    layer = random_layer(kernel=name, domain=domain, residual=residual, plan="table")
    x = (torch.rand(50, 2, dtype=torch.float64) * 1.4 - 0.2).requires_grad_()
    found = []
    for backend in ("compiled", "reference"):
        with use_backend(backend):
            q = layer(x)
        total = (q.mean.sin() + q.variance.cos()).sum()
        found.append([q.mean, q.variance])
        found[-1] += torch.autograd.grad(total, (x, *layer.parameters()))
    assert_all_close(*found)


@pytest.mark.parametrize("moving", [True, False], ids=["moving", "kept"])
@pytest.mark.parametrize("learned", [True, False], ids=["learned", "fixed"])
def test_points_are_differentiated_only_for_what_moves_them(monkeypatch, moving, learned):
    calls, original = [], compiled.point_weights_backward

    def counted(*inputs):
        calls.append(inputs)
        return original(*inputs)

    monkeypatch.setattr(compiled, "point_weights_backward", counted)
    layer = random_layer(plan="table")
    layer.log_lengthscale.requires_grad_(learned)
    x = torch.rand(50, 2, dtype=torch.float64).requires_grad_(moving)
    wanted = [t for t in (x, *layer.parameters()) if t.requires_grad]
    found = []
    for backend in ("compiled", "reference"):
        with use_backend(backend):
            q = layer(x)
        found.append(torch.autograd.grad((q.mean.sin() + q.variance).sum(), wanted))
    assert_all_close(*found)
    assert len(calls) == (moving or learned)


def test_either_moment_alone_has_a_gradient():
    layer = random_layer(plan="table")
    x = torch.rand(5, 2, dtype=torch.float64)
    for name in ("mean", "variance"):
        with use_backend("reference"):
            expected = torch.autograd.grad(getattr(layer(x), name).sum(), layer.weight_mean)
        assert_all_close(
            torch.autograd.grad(getattr(layer(x), name).sum(), layer.weight_mean), expected
        )


def test_what_records_operators_sees_registered_ones():
    layer = random_layer(plan="table", check_finite=False)
    x = torch.rand(5, 2, dtype=torch.float64)
    graph = make_fx(lambda x: (layer(x).mean, layer.kl_divergence()), tracing_mode="real")(x)
    names = {str(node.target) for node in graph.graph.nodes}
    assert {"sikagp.moments.default", "sikagp.normal_divergence.default"} <= names
