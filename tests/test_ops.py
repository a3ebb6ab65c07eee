"""The registered operators: hand-written gradients, and the contract with torch.library."""

import pytest
import torch
from helpers import assert_close
from oracles import random_tree

from sikagp import ops, table
from sikagp.ops import compilation
from sikagp.ops.backends import use_backend
from sikagp.tree import BridgeTree

by_state = pytest.mark.parametrize("s", [1, 2, 3])
by_layout = pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
by_level = pytest.mark.parametrize("level", [1, 3])
FEATURES, OUTPUTS = 2, 2


@pytest.fixture(params=["reference", "compiled"])
def backend(request):
    """Every backend is held to the same laws."""
    with use_backend(request.param):
        yield


def tree_inputs(level: int, s: int, shared: bool) -> list[torch.Tensor]:
    """Weights (positive, so that they may be scales) and the four tensors of a tree."""
    weight = torch.rand(FEATURES, 2**level + 1, s, OUTPUTS, dtype=torch.float64) + 0.1
    tensors = [weight, *random_tree(level, s, shared=shared, features=FEATURES)]
    return [tensor.requires_grad_() for tensor in tensors]


def point_inputs(level: int, s: int, rows: int = 5) -> list[torch.Tensor]:
    nodes = 2**level + 1
    cell = torch.randint(0, nodes - 1, (rows, FEATURES))
    shapes = [
        (rows, FEATURES, s),
        (rows, FEATURES, s),
        (FEATURES, nodes, s, OUTPUTS),
        (FEATURES, nodes, 2, s, s, OUTPUTS),
    ]
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    # The covariance of a node with itself is symmetric.
    tensors[3][:, :, 0] = tensors[3][:, :, 0] + tensors[3][:, :, 0].transpose(2, 3)
    return [cell, *(tensor.requires_grad_() for tensor in tensors)]


@by_state
@by_layout
@by_level
def test_gradcheck_of_node_states(backend, level, s, shared):
    assert torch.autograd.gradcheck(
        lambda weight, *tree: ops.node_states(weight, BridgeTree(*tree)),
        tree_inputs(level, s, shared),
        fast_mode=level > 1,
    )


@by_state
@by_layout
@by_level
def test_gradcheck_of_cell_covariances(backend, level, s, shared):
    assert torch.autograd.gradcheck(
        lambda scale, *tree: ops.cell_covariances(scale, BridgeTree(*tree)),
        tree_inputs(level, s, shared),
        fast_mode=level > 1,
    )


@by_state
def test_gradcheck_of_interpolate(backend, s):
    cell, left, right, states, covariances = point_inputs(2, s)

    def moments(left, right, states, half):
        node = half[:, :, 0] + half[:, :, 0].transpose(2, 3)
        return ops.interpolate(cell, left, right, states, torch.stack([node, half[:, :, 1]], 2))

    assert torch.autograd.gradcheck(moments, (left, right, states, covariances))


def test_rows_in_the_same_cell_add_up_their_gradients(backend):
    _, left, right, states, covariances = point_inputs(1, 1, rows=4)
    cell = torch.zeros(4, FEATURES, dtype=torch.long)
    mean, variance = ops.interpolate(cell, left, right, states, covariances)
    d_states, d_covariances = torch.autograd.grad(
        mean.sum() + variance.sum(), (states, covariances)
    )
    assert_close(d_states[:, 0, 0, 0], left.sum(0)[:, 0])
    assert_close(d_covariances[:, 0, 1, 0, 0, 0], 2 * (left * right).sum(0)[:, 0])


@by_state
@by_layout
def test_operators_compute_what_the_table_module_defines(backend, s, shared):
    weight, *tree = tree_inputs(3, s, shared)
    tree = BridgeTree(*tree)
    point = point_inputs(3, s)
    assert_close(ops.node_states(weight, tree), table.node_states(weight, tree))
    assert_close(ops.cell_covariances(weight, tree), table.cell_covariances(weight, tree))
    for actual, expected in zip(ops.interpolate(*point), table.interpolate(*point), strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_inputs_need_not_be_contiguous(backend, layout):
    weight, *tree = (tensor.detach() for tensor in tree_inputs(3, 1, shared=True))
    if layout == "transposed":
        strided = weight.transpose(0, 1).contiguous().transpose(0, 1)
    else:
        strided = weight[..., :1].expand_as(weight)
    tree = BridgeTree(*tree)
    for function in (ops.node_states, ops.cell_covariances):
        inputs = [strided.requires_grad_(), strided.detach().contiguous().requires_grad_()]
        outputs = [function(tensor, tree) for tensor in inputs]
        assert_close(*outputs)
        pattern = torch.randn_like(outputs[0])
        pattern = pattern.transpose(-1, -2).contiguous().transpose(-1, -2)
        gradients = [
            torch.autograd.grad((output * pattern).sum(), source)[0]
            for output, source in zip(outputs, inputs, strict=True)
        ]
        assert_close(*gradients)


def detached(tensors):
    return tuple(tensor.detach() for tensor in tensors)


@by_state
@by_layout
def test_opcheck_of_the_tree_operators(s, shared):
    library = torch.ops.sikagp
    inputs = tree_inputs(2, s, shared)
    torch.library.opcheck(library.node_states.default, tuple(inputs))
    torch.library.opcheck(library.cell_covariances.default, tuple(inputs))
    inputs = detached(inputs)
    states = library.node_states(*inputs)
    cells = library.cell_covariances(*inputs)
    torch.library.opcheck(
        library.node_states_backward.default, (torch.randn_like(states), states, *inputs)
    )
    torch.library.opcheck(
        library.cell_covariances_backward.default, (torch.randn_like(cells), cells, *inputs)
    )


@by_state
def test_opcheck_of_interpolate(s):
    library = torch.ops.sikagp
    inputs = point_inputs(2, s)
    torch.library.opcheck(library.interpolate.default, tuple(inputs))
    inputs = detached(inputs)
    d_mean, d_variance = torch.randn(2, 5, OUTPUTS, dtype=torch.float64)
    torch.library.opcheck(library.interpolate_backward.default, (d_mean, d_variance, *inputs))


@by_state
@by_layout
def test_opcheck_of_moments(s, shared):
    library = torch.ops.sikagp
    weight, *tree = tree_inputs(2, s, shared)
    raw_scale = torch.randn_like(weight).requires_grad_()
    features, nodes = weight.shape[:2]
    cell = torch.randint(0, nodes - 1, (5, features))
    shapes = (5, features, s), (5, features, s), (5, features), (2, weight.shape[-1]), (features,)
    near, far, residual, bias, variance = (
        torch.rand(shape, dtype=torch.float64).requires_grad_() for shape in shapes
    )
    inputs = cell, near, far, residual, weight, raw_scale, bias, variance, *tree
    torch.library.opcheck(library.moments.default, inputs)
    d_mean, d_variance = torch.randn(2, 5, weight.shape[-1], dtype=torch.float64)
    inputs = d_mean, d_variance, *detached(inputs)
    torch.library.opcheck(library.moments_backward.default, inputs)


@by_state
@by_layout
def test_a_scaled_tree_makes_scaled_states(backend, s, shared):
    weight, *tree = (part.detach() for part in tree_inputs(3, s, shared))
    tree, scale = BridgeTree(*tree), torch.tensor([0.5, 3.0], dtype=torch.float64)
    along = scale.view(-1, 1, 1, 1)
    assert_close(ops.node_states(weight, tree.scaled(scale)), along * ops.node_states(weight, tree))
    assert_close(
        ops.cell_covariances(weight, tree.scaled(scale)),
        along.square()[..., None, None] * ops.cell_covariances(weight, tree),
    )


@by_state
def test_states_are_linear_in_the_weights(backend, s):
    weight, *tree = (part.detach() for part in tree_inputs(3, s, shared=True))
    other, tree = torch.randn_like(weight), BridgeTree(*tree)
    together = ops.node_states(2 * weight - 3 * other, tree)
    assert_close(together, 2 * ops.node_states(weight, tree) - 3 * ops.node_states(other, tree))


@pytest.mark.parametrize(("name", "runs"), [("reference", False), ("compiled", True)])
def test_operators_run_on_the_backend_that_was_chosen(name, runs, monkeypatch):
    ran = []
    share = compilation.share
    monkeypatch.setattr(
        compilation, "share", lambda loop, *rest: (ran.append(loop), share(loop, *rest))
    )
    mean, raw = torch.randn(2, 7, dtype=torch.float64).requires_grad_()
    cell, *points = point_inputs(2, 1)
    drawn = cell[None], *(part[None] for part in points[:2]), points[2][None]
    calls = (
        lambda: ops.divergence(mean, raw),
        lambda: ops.values(*drawn).sum(),
        lambda: ops.interpolate(cell, *points)[1].sum(),
    )
    with use_backend(name):
        for call in calls:
            ran.clear()
            value = call()
            assert bool(ran) is runs
            ran.clear()
            value.backward()
            assert bool(ran) is runs
