"""The dyadic order, and the cell and the bridges that hold an input."""

import pytest
import torch
from helpers import assert_close, doubles
from hypothesis import given
from hypothesis import strategies as st
from oracles import paper_index, random_nodes

from sikagp.grid import DyadicGrid, dyadic_order, level_slice

LEVELS = range(1, 13)
unit_floats = st.floats(0, 1, allow_subnormal=False)


def test_order_of_level_3_is_the_paper_s():
    nodes = dyadic_order(3) / 8
    assert nodes.tolist() == [0, 1, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8, 7 / 8]


@pytest.mark.parametrize("level", LEVELS)
def test_order_is_a_permutation_and_nested(level):
    order = dyadic_order(level)
    assert order.sort().values.equal(torch.arange(2**level + 1))
    assert (dyadic_order(level + 1)[: len(order)]).equal(2 * order)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_fill_the_weights_after_the_two_ends(level):
    positions = torch.arange(2**level + 1)
    levels = [positions[level_slice(lev)] for lev in range(1, level + 1)]
    assert torch.cat(levels).equal(positions[2:])
    assert [len(part) for part in levels] == [2 ** (lev - 1) for lev in range(1, level + 1)]


def grids(level: int) -> list[DyadicGrid]:
    return [DyadicGrid(level), DyadicGrid(level, random_nodes(level))]


@given(level=st.integers(1, 12), values=st.lists(unit_floats, min_size=1, max_size=20))
def test_located_cell_holds_x(level, values):
    x = doubles(values).unsqueeze(-1)
    for grid in grids(level):
        cell = grid.locate(x)
        left, right = grid.position(torch.stack([cell, cell + 1], -1), x.dtype).unbind(-1)
        assert bool(((left <= x) & (x <= right)).all())
        assert bool(((x < right) | (cell == grid.num_cells - 1)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", LEVELS)
def test_a_node_starts_its_cell_and_one_ends_the_last(level, dtype):
    grid = DyadicGrid(level)
    number = torch.arange(grid.num_nodes)
    x = grid.position(number.view(1, -1), dtype).view(-1, 1)
    assert grid.locate(x).flatten().equal(number.clamp(max=grid.num_cells - 1))


@pytest.mark.parametrize("level", [1, 4, 7])
def test_an_uneven_node_starts_its_cell_too(level):
    nodes = random_nodes(level)
    number = torch.arange(nodes.shape[1])
    cell = DyadicGrid(level, nodes[:1]).locate(nodes[0].unsqueeze(-1)).flatten()
    assert cell.equal(number.clamp(max=2**level - 1))


def test_locate_stays_in_range_for_nan():
    x = doubles([[float("nan")]])
    for grid in grids(3):
        assert 0 <= int(grid.locate(x)) < grid.num_cells


def test_each_feature_has_its_own_nodes():
    nodes = doubles([[0, 0.1, 0.2, 0.3, 1], [0, 0.7, 0.8, 0.9, 1]])
    grid = DyadicGrid(2, nodes)
    cell = grid.locate(doubles([[0.25, 0.25], [0.85, 0.85]]))
    assert cell.tolist() == [[2, 0], [3, 2]]
    assert_close(grid.position(cell.unsqueeze(-1), nodes.dtype)[0, :, 0], nodes[[0, 1], [2, 0]])


@given(level=st.integers(1, 12), values=st.lists(unit_floats, min_size=1, max_size=20))
def test_brackets_are_the_bridges_around_x(level, values):
    x = doubles(values).unsqueeze(-1)
    spacing = 0.5 ** torch.arange(1, level + 1)
    left, middle, right, weight = DyadicGrid(level).brackets(x)
    assert bool(((left <= x.unsqueeze(-1)) & (x.unsqueeze(-1) <= right)).all())
    assert bool((middle - left == spacing).all() and (right - middle == spacing).all())
    assert (dyadic_order(level)[weight] / 2**level).equal(middle.to(torch.float32))


def test_brackets_of_uneven_nodes_follow_the_same_tree():
    nodes = random_nodes(4)
    x = torch.rand(50, 1, dtype=torch.float64)
    left, middle, right, weight = DyadicGrid(4, nodes).brackets(x)
    number = dyadic_order(4)[weight]
    half = 2 ** (4 - torch.arange(1, 5))
    for bracket, node in ((left, number - half), (middle, number), (right, number + half)):
        assert_close(bracket, nodes[0, node])
    assert bool(((left <= x.unsqueeze(-1)) & (x.unsqueeze(-1) < right)).all())


@given(level=st.integers(1, 12), values=st.lists(unit_floats, min_size=1, max_size=20))
def test_weights_of_brackets_agree_with_the_paper_s_index(level, values):
    """They may differ only where x is an end of the bridge, and psi is zero."""
    x = doubles(values).unsqueeze(-1)
    left, _, right, weight = DyadicGrid(level).brackets(x)
    at_an_end = (x.unsqueeze(-1) == left) | (x.unsqueeze(-1) == right)
    assert bool(((weight == paper_index(x, level)[..., 2:]) | at_an_end).all())


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([[0.0, 1.0]], r"level 1 takes nodes of shape \(features, 3\), got \(1, 2\)"),
        ([[0.0, 0.5, 0.9]], "increase strictly from 0 to 1"),
        ([[0.1, 0.5, 1.0]], "increase strictly from 0 to 1"),
        ([[0.0, 0.0, 1.0]], "increase strictly from 0 to 1"),
    ],
)
def test_bad_nodes_are_refused(nodes, message):
    with pytest.raises(ValueError, match=message):
        DyadicGrid(1, torch.tensor(nodes))
