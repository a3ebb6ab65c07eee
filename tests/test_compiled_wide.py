"""Compiled loops with more outputs than a vector has lanes, and more rows than a block.

Other tests have few outputs, which fill a part of one vector.
"""

from itertools import compress

import pytest
import torch
from helpers import assert_close

from sikagp.ops import OwnParameters, Points, compiled, reference
from sikagp.ops.divergence import standard_normal_kl
from sikagp.ops.loops.divergence import CHUNK
from sikagp.ops.loops.interpolation import BLOCK
from sikagp.tree import BridgeTree

FEATURES, NODES, ROWS = 2, 5, 2 * BLOCK + 5
# Lanes are 8 or 16: a whole vector, and several with a part.
by_case = pytest.mark.parametrize(
    ("s", "outputs", "dtype"),
    [(1, 8, torch.float64), (2, 19, torch.float64), (1, 37, torch.float32)],
)


def random_tree(s, dtype):
    bridge = FEATURES, NODES - 2, s, s
    shapes = (FEATURES, 2 * s, 2 * s), bridge, bridge, bridge
    return BridgeTree(*(0.5 * torch.randn(shape, dtype=dtype) for shape in shapes))


def random_weights(s, outputs, dtype):
    return torch.randn(FEATURES, NODES, s, outputs, dtype=dtype)


def random_points(s, dtype):
    cell = torch.randint(0, NODES - 1, (ROWS, FEATURES))
    left, right = torch.rand(2, ROWS, FEATURES, s, dtype=dtype)
    return cell, left, right


def assert_all_close(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e)


@by_case
def test_states_and_covariances_of_many_outputs(s, outputs, dtype):
    tree, weight = random_tree(s, dtype), random_weights(s, outputs, dtype)
    states = compiled.node_states(weight, tree)
    assert_close(states, reference.node_states(weight, tree))
    upstream = torch.randn_like(states)
    d_weight, d_tree = compiled.node_states_backward(upstream, states, weight, tree)
    expected = reference.node_states_backward(upstream, states, weight, tree)
    assert_all_close([d_weight, *d_tree], [expected[0], *expected[1]])
    table = compiled.cell_covariances(weight, tree)
    assert_close(table, reference.cell_covariances(weight, tree))
    upstream = torch.randn_like(table)
    d_scale, d_tree = compiled.cell_covariances_backward(upstream, table, weight, tree)
    expected = reference.cell_covariances_backward(upstream, table, weight, tree)
    assert_all_close([d_scale, *d_tree], [expected[0], *expected[1]])


@by_case
def test_interpolation_of_many_outputs_and_rows(s, outputs, dtype):
    tree = random_tree(s, dtype)
    states = reference.node_states(random_weights(s, outputs, dtype), tree)
    table = reference.cell_covariances(random_weights(s, outputs, dtype), tree)
    inputs = *random_points(s, dtype), states, table
    assert_all_close(compiled.interpolate(*inputs), reference.interpolate(*inputs))
    upstream = torch.randn(2, ROWS, outputs, dtype=dtype)
    assert_all_close(
        compiled.interpolate_backward(*upstream, *inputs),
        reference.interpolate_backward(*upstream, *inputs),
    )


@by_case
def test_moments_of_many_outputs_and_rows(s, outputs, dtype):
    points = Points(*random_points(s, dtype), torch.rand(ROWS, FEATURES, dtype=dtype))
    weight, raw = random_weights(s, outputs, dtype), random_weights(s, outputs, dtype)
    bias, variance = torch.randn(2, outputs, dtype=dtype), torch.rand(FEATURES, dtype=dtype)
    inputs = points, OwnParameters(weight, raw, bias, variance), random_tree(s, dtype)
    assert_all_close(compiled.moments(*inputs), reference.moments(*inputs))
    upstream = torch.randn(2, ROWS, outputs, dtype=dtype)
    for actual, expected in zip(
        compiled.moments_backward(*upstream, *inputs),
        reference.moments_backward(*upstream, *inputs),
        strict=True,
    ):
        floating = [t.is_floating_point() for t in expected]
        assert_all_close(compress(actual, floating), compress(expected, floating))


@pytest.mark.parametrize("size", [CHUNK, CHUNK + 1, 2 * CHUNK + 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_divergences_of_several_chunks(size, dtype):
    mean = torch.randn(size, dtype=dtype, requires_grad=True)
    scale = (torch.rand(size, dtype=dtype) + 0.1).requires_grad_()
    found = standard_normal_kl(mean, scale)
    normal = torch.distributions.Normal(mean.double(), scale.double())
    expected = torch.distributions.kl_divergence(
        normal, torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    ).sum()
    assert_close(found, expected)
    for actual, exact in zip(
        torch.autograd.grad(found, (mean, scale)),
        torch.autograd.grad(expected, (mean, scale)),
        strict=True,
    ):
        assert_close(actual, exact)
