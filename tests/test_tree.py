"""The tree of bridges: gains and innovations of every midpoint."""

import pytest
import torch
from helpers import assert_close, doubles
from oracles import CASES, THETA, condition, make_prior, random_nodes

from sikagp import GaussMarkov, Laplace
from sikagp.grid import DyadicGrid, dyadic_order
from sikagp.tree import BridgeTree, grid_prior, level_rows

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.parametrize("level", [1, 3, 7])
def test_laplace_gains_and_innovations(level):
    tree = make_prior(Laplace(), level)[0].tree
    angle = THETA * 0.5 ** torch.arange(1, level + 1, dtype=torch.float64)
    assert tree.left.shape == (1, level, 1, 1)
    assert_close(tree.left.flatten(), 0.5 / torch.cosh(angle))
    assert_close(tree.right.flatten(), 0.5 / torch.cosh(angle))
    assert_close(tree.factor.flatten(), torch.sqrt(torch.tanh(angle)))


@by_name
@pytest.mark.parametrize("uneven", [False, True])
def test_midpoints_follow_from_their_neighbours(case, uneven):
    level = 4
    prior, nodes = make_prior(case.kernel, level, random_nodes(level) if uneven else None)
    for position, number in enumerate(dyadic_order(level)[2:].tolist()):
        half = number & -number
        lev = level - half.bit_length() + 1
        around = torch.stack([nodes[number - half], nodes[number + half]])
        weights, left_open = condition(case.covariance, nodes[number : number + 1], around)
        row = position if prior.tree.left.shape[1] > level else lev - 1
        gains = torch.cat([prior.tree.left[0, row, 0], prior.tree.right[0, row, 0]])
        carries_something = case.covariance(around, around) > 0
        assert_close(gains * carries_something, weights[0])
        assert_close(prior.tree.factor[0, row, 0, 0].square(), left_open[0, 0])


@pytest.mark.parametrize(
    ("kernel", "nodes", "rows"),
    [
        (Laplace(), None, 4),
        (Laplace(), random_nodes(4), 15),
        (GaussMarkov(torch.exp, lambda x: torch.exp(-x)), None, 15),
    ],
)
def test_bridges_are_shared_within_a_level_only_if_they_are_alike(kernel, nodes, rows):
    tree = make_prior(kernel, 4, nodes)[0].tree
    assert {part.shape[1] for part in tree[1:]} == {rows}


def test_rows_of_a_level():
    assert [level_rows(3, 3, lev) for lev in (1, 2, 3)] == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert [level_rows(7, 3, lev) for lev in (1, 2, 3)] == [slice(0, 1), slice(1, 3), slice(3, 7)]


@pytest.mark.parametrize("rows", [3, 7])
def test_factor_of_finds_the_row_of_a_weight(rows):
    parts = (torch.randn(2, rows, 1, 1) for _ in range(3))
    tree = BridgeTree(torch.randn(2, 2, 2), *parts)
    weight = torch.tensor([[[2, 4, 7], [2, 3, 5]]])
    expected = tree.factor
    if rows == 7:
        expected = torch.stack([tree.factor[0, [0, 2, 5]], tree.factor[1, [0, 1, 3]]]).unsqueeze(0)
    assert_close(tree.factor_of(weight).expand(1, 2, 3, 1, 1), expected.expand(1, 2, 3, 1, 1))


def test_features_have_their_own_rates():
    rate = doubles([0.5, 20.0])
    both = grid_prior(Laplace(), DyadicGrid(3), rate).tree
    for feature in range(2):
        single = grid_prior(Laplace(), DyadicGrid(3), rate[feature : feature + 1]).tree
        for part, expected in zip(both, single, strict=True):
            assert_close(part[feature], expected[0])


@pytest.mark.parametrize("theta", [1e-3, 1.0, 1e3])
def test_float32_trees_are_rounded_only_once(theta):
    rate = torch.tensor([theta])
    single = grid_prior(Laplace(), DyadicGrid(12), rate).tree
    double = grid_prior(Laplace(), DyadicGrid(12), rate.double()).tree
    for part, exact in zip(single, double, strict=True):
        assert part.dtype == torch.float32
        assert torch.equal(part, exact.float())


@pytest.mark.parametrize("nodes", [None, random_nodes(3)])
def test_gradient_of_the_rate(nodes):
    rate = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda r: tuple(grid_prior(Laplace(), DyadicGrid(3, nodes), r).tree), (rate,)
    )
