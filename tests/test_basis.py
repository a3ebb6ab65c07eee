"""The basis: an exact Nyström factor, sparse, and the functions that the paper prints."""

import pytest
import torch
from helpers import assert_close, doubles
from hypothesis import given
from hypothesis import strategies as st
from oracles import (
    CASES,
    THETA,
    gram,
    make_prior,
    nystrom,
    paper_index,
    random_nodes,
    template_function,
    theorem_1,
)

from sikagp import Laplace
from sikagp.basis import SparseFeatures, active_sum, dense_features, sparse_features
from sikagp.grid import DyadicGrid, dyadic_order
from sikagp.tree import grid_prior

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_spacing = pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])


def basis_of(case, level, uneven=False):
    """Return x -> dense Phi(x) of shape (len(x), M), and the nodes."""
    prior, nodes = make_prior(case.kernel, level, random_nodes(level) if uneven else None)
    return lambda x: dense_features(sparse_features(x[:, None], prior), len(nodes))[:, 0], nodes


@by_name
@by_spacing
@pytest.mark.parametrize("level", [1, 2, 4, 7])
def test_products_of_features_are_the_nystrom_covariance(case, uneven, level):
    features, nodes = basis_of(case, level, uneven)
    x = torch.rand(40, dtype=torch.float64)
    assert_close(features(x) @ features(x).T, nystrom(case.covariance, x, nodes))


@by_name
@by_spacing
@pytest.mark.parametrize("level", [1, 3, 6])
def test_products_of_features_are_the_covariance_on_nodes(case, uneven, level):
    features, nodes = basis_of(case, level, uneven)
    assert_close(features(nodes) @ features(nodes).T, gram(case.covariance, nodes, nodes))


@by_name
@by_spacing
def test_active_functions_are_few_and_distinct(case, uneven):
    prior, nodes = make_prior(case.kernel, 6, random_nodes(6) if uneven else None)
    x = torch.cat([nodes, torch.rand(50, dtype=torch.float64), doubles([-0.5, 1.5])])
    values, index = sparse_features(x[:, None], prior)
    assert values.shape == index.shape == (len(x), 1, 6 + 2)
    assert all(len(set(row)) == 8 for row in index[:, 0].tolist())
    assert bool(((index >= 0) & (index < len(nodes))).all())


@pytest.mark.parametrize("theta", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("level", [1, 2, 3, 5])
def test_laplace_basis_is_theorem_1(level, theta):
    prior, nodes = make_prior(Laplace(), level, theta=theta)
    x = torch.cat([nodes, torch.rand(60, dtype=torch.float64)])
    actual = dense_features(sparse_features(x[:, None], prior), len(nodes))[:, 0]
    assert_close(actual, theorem_1(x, theta, level))


@by_name
@by_spacing
def test_inner_functions_are_the_paper_s_templates(case, uneven):
    level = 4
    features, nodes = basis_of(case, level, uneven)
    x = torch.rand(60, dtype=torch.float64)
    for weight, number in enumerate(dyadic_order(level)[2:].tolist(), start=2):
        half = number & -number
        abc = nodes[[number - half, number, number + half]]
        assert_close(features(x)[:, weight], template_function(case.covariance, x, abc))


@pytest.mark.parametrize("level", [1, 2, 5, 12])
def test_the_paper_s_index_selects_the_same_products(level):
    prior, nodes = make_prior(Laplace(), level)
    x = torch.cat([nodes[:: max(1, 2**level // 64)], torch.rand(60, dtype=torch.float64)])
    values, index = sparse_features(x[:, None], prior)
    oracle = paper_index(x[:, None], level)
    weight = torch.randn(len(nodes), dtype=torch.float64)
    assert_close((values * weight[index]).sum(-1), (values * weight[oracle]).sum(-1))
    assert bool(((index == oracle) | (values == 0)).all())


@pytest.mark.parametrize("x", [0.0, 1.0, 0.5, 0.25])
def test_edges_touch_no_gradient_but_that_of_non_zero_functions(x):
    prior, nodes = make_prior(Laplace(), 3)
    weight = torch.randn(1, len(nodes), 1, dtype=torch.float64, requires_grad=True)
    active_sum(sparse_features(doubles([[x]]), prior), weight).sum().backward()
    assert_close(weight.grad[0, :, 0], theorem_1(doubles([x]), THETA, 3)[0])


@by_name
def test_beyond_the_grid_only_the_ends_speak(case):
    prior = make_prior(case.kernel, 3)[0]
    x = doubles([[-0.7], [1.2]])
    values, index = sparse_features(x, prior)
    at_ends = sparse_features(x.clamp(0, 1), prior).values
    gain = case.kernel.extrapolate(x - x.clamp(0, 1), doubles(THETA)).gain
    assert not bool(values[..., 2:].any())
    assert_close(values[..., :2], at_ends[..., :2] * gain)
    assert index[0, 0].tolist()[:2] == [0, 1]


@given(
    level=st.integers(1, 12),
    exponent=st.floats(-3, 3),
    values=st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=20),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_features_and_residual_make_up_the_prior_variance(level, exponent, values, dtype):
    x = torch.tensor(values, dtype=dtype).unsqueeze(-1)
    prior = grid_prior(Laplace(), DyadicGrid(level), torch.tensor([10.0**exponent], dtype=dtype))
    explained = sparse_features(x, prior).values.square().sum(-1)
    number = prior.grid.locate(x)
    a, c = prior.grid.position(torch.stack([number, number + 1], -1), dtype).unbind(-1)
    residual = prior.kernel.interpolate(a, x, c, prior.rate).residual
    assert_close(explained + residual, torch.ones_like(x))


def test_dense_features_scatter_each_feature_by_itself():
    features = SparseFeatures(doubles([[[1, 2], [3, 4]]]), torch.tensor([[[0, 3], [2, 1]]]))
    assert dense_features(features, 4).tolist() == [[[1, 0, 0, 2], [0, 4, 3, 0]]]


@pytest.mark.parametrize("samples", [(), (5,)])
@pytest.mark.parametrize("own_features", [False, True])
def test_active_sum_is_the_dense_product(samples, own_features):
    prior = grid_prior(Laplace(), DyadicGrid(3), doubles([2.0, 7.0]))
    lead = samples if own_features else ()
    features = sparse_features(torch.rand(*lead, 6, 2, dtype=torch.float64), prior)
    weight = torch.randn(*samples, 2, 9, 4, dtype=torch.float64)
    dense = dense_features(features, 9)
    expected = torch.einsum("...bdm,...dmo->...bo", dense, weight)
    assert_close(active_sum(features, weight), expected)
