"""Node tables against dense algebra, for the package's kernels and for any state size."""

import pytest
import torch
from helpers import assert_close, doubles
from oracles import CASES, condition, make_prior, random_nodes, random_tree, unroll

from sikagp.basis import dense_features, sparse_features
from sikagp.table import (
    cell_covariances,
    interpolate,
    interpolate_each,
    node_states,
    two_point,
)

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_spacing = pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
by_state = pytest.mark.parametrize("s", [1, 2, 3])
by_layout = pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])


@by_name
@by_spacing
def test_two_point_weights_are_the_only_two_of_the_whole_grid(case, uneven):
    prior, nodes = make_prior(case.kernel, 4, random_nodes(4) if uneven else None)
    x = torch.rand(40, dtype=torch.float64)
    weights, left_open = condition(case.covariance, x, nodes)
    cell, point = two_point(x[:, None], prior)
    actual = torch.zeros_like(weights)
    actual.scatter_(1, cell, point.left[:, 0]).scatter_(1, cell + 1, point.right[:, 0])
    carries_something = case.covariance(nodes, nodes) > 0
    assert_close(actual * carries_something, weights)
    assert_close(point.inside[:, 0], left_open.diagonal())


@by_name
@by_spacing
@pytest.mark.parametrize("level", [1, 2, 5])
def test_states_are_the_function_at_the_nodes(case, uneven, level):
    prior, nodes = make_prior(case.kernel, level, random_nodes(level) if uneven else None)
    weight = torch.randn(1, len(nodes), 1, 3, dtype=torch.float64)
    phi = dense_features(sparse_features(nodes[:, None], prior), len(nodes))[:, 0]
    assert_close(node_states(weight, prior.tree)[0, :, 0], phi @ weight[0, :, 0])


@by_name
@by_spacing
@pytest.mark.parametrize("level", [1, 2, 5])
def test_covariances_are_those_of_neighbouring_nodes(case, uneven, level):
    prior, nodes = make_prior(case.kernel, level, random_nodes(level) if uneven else None)
    scale = torch.rand(1, len(nodes), 1, 3, dtype=torch.float64)
    phi = dense_features(sparse_features(nodes[:, None], prior), len(nodes))[:, 0]
    table = cell_covariances(scale, prior.tree)[0, :, :, 0, 0]
    full = torch.einsum("im,mo,jm->ijo", phi, scale[0, :, 0].square(), phi)
    assert_close(table[:, 0], full.diagonal().T)
    assert_close(table[:-1, 1], full.diagonal(offset=1).T)
    assert not bool(table[-1, 1].any())


@by_state
@by_layout
@pytest.mark.parametrize("level", [1, 2, 4])
def test_states_of_any_size_follow_the_recursion(s, shared, level):
    tree = random_tree(level, s, shared=shared)
    weight = torch.randn(2, 2**level + 1, s, 3, dtype=torch.float64)
    expected = torch.einsum("dnimj,dmjo->dnio", unroll(tree, level), weight)
    assert_close(node_states(weight, tree), expected)


@by_state
@by_layout
@pytest.mark.parametrize("level", [1, 2, 4])
def test_covariances_of_any_size_follow_the_recursion(s, shared, level):
    tree = random_tree(level, s, shared=shared)
    scale = torch.rand(2, 2**level + 1, s, 3, dtype=torch.float64)
    response = unroll(tree, level)
    table = cell_covariances(scale, tree)
    full = torch.einsum("daimj,dmjo,dbkmj->dabiko", response, scale.square(), response)
    number = torch.arange(2**level)
    assert_close(table[:, :, 0], full.diagonal(dim1=1, dim2=2).movedim(-1, 1))
    assert_close(table[:, :-1, 1], full[:, number, number + 1])
    assert not bool(table[:, -1, 1].any())


@by_state
def test_interpolation_is_the_moments_of_a_weighted_pair(s):
    features, nodes, outputs, rows = 2, 5, 3, 7
    cell = torch.randint(0, nodes - 1, (rows, features))
    left, right = torch.randn(2, rows, features, s, dtype=torch.float64)
    states = torch.randn(features, nodes, s, outputs, dtype=torch.float64)
    root = torch.randn(features, nodes * s, 4 * s, outputs, dtype=torch.float64)
    full = torch.einsum("diko,djko->dijo", root, root).unflatten(2, (nodes, s))
    full = full.unflatten(1, (nodes, s))  # (features, node, s, node, s, outputs)
    table = torch.zeros(features, nodes, 2, s, s, outputs, dtype=torch.float64)
    for n in range(nodes):
        table[:, n, 0] = full[:, n, :, n]
        if n + 1 < nodes:
            table[:, n, 1] = full[:, n, :, n + 1]
    mean, variance = interpolate(cell, left, right, states, table)
    for row in range(rows):
        weights = torch.zeros(features, nodes, s, dtype=torch.float64)
        for d in range(features):
            weights[d, cell[row, d]] = left[row, d]
            weights[d, cell[row, d] + 1] = right[row, d]
        assert_close(mean[row], torch.einsum("dni,dnio->o", weights, states))
        expected = torch.einsum("dni,dnimjo,dmj->o", weights, full, weights)
        assert_close(variance[row], expected)


def test_cells_at_the_ends_serve_what_lies_beyond():
    prior, _ = make_prior(CASES[0].kernel, 3)
    cell, point = two_point(doubles([[-1e6], [-0.1], [0.0], [1.0], [1.1], [1e6]]), prior)
    assert cell.flatten().tolist() == [0, 0, 0, 7, 7, 7]
    assert bool(((point.outside == 0) | (point.inside == 0)).all())


@by_state
def test_moments_of_features_by_themselves_add_up_to_those_of_the_sum(s):
    rows, features, nodes, outputs = 5, 3, 9, 2
    cell = torch.randint(nodes - 1, (rows, features))
    left, right = torch.randn(2, rows, features, s, dtype=torch.float64)
    states = torch.randn(features, nodes, s, outputs, dtype=torch.float64)
    covariances = torch.randn(features, nodes, 2, s, s, outputs, dtype=torch.float64)
    each = interpolate_each(cell, left, right, states, covariances)
    for part, total in zip(each, interpolate(cell, left, right, states, covariances), strict=True):
        assert part.shape == (rows, features, outputs)
        assert_close(part.sum(1), total)
    alone = interpolate(cell[:, :1], left[:, :1], right[:, :1], states[:1], covariances[:1])
    for part, first in zip(each, alone, strict=True):
        assert_close(part[:, 0], first)
