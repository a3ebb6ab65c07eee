"""The layer's interface, and what must not change its answers."""

import math

import pytest
import torch
from helpers import PLANS, assert_close, doubles, off_node_points, random_layer
from jaxtyping import TypeCheckError

from sikagp import Domain, Laplace, RunningDomain, SIKALayer
from sikagp.basis import dense_features

by_batch = pytest.mark.parametrize("batch", [(), (1,), (6,), (2, 3), (2, 0, 3)])


def test_shape_hints_are_checked_while_tests_run():
    with pytest.raises(TypeCheckError):
        random_layer()(torch.zeros(3, 2, dtype=torch.long))


@by_batch
@pytest.mark.parametrize("plan", ["auto", *PLANS])
def test_shapes(batch, plan):
    layer = random_layer(2, 3, level=4, plan=plan)
    x = torch.rand(*batch, 2, dtype=torch.float64)
    q = layer(x)
    assert q.mean.shape == q.variance.shape == q.stddev.shape == (*batch, 3)
    assert q.rsample((5,)).shape == (5, *batch, 3)
    values, index = layer.features(x)
    assert values.shape == index.shape == (*batch, 2, layer.num_active)
    assert layer.paths(4)(x).shape == (4, *batch, 3)
    for method in ("local", "flipout", "path"):
        assert layer.sample(x, 5, method=method).shape == (5, *batch, 3)


def test_sizes_and_initial_values():
    layer = SIKALayer(4, 3, level=5)
    assert layer.num_nodes == 33
    assert layer.num_active == 7
    assert layer.weight_mean.shape == layer.weight_scale.shape == (4, 33, 3)
    assert_close(layer.variance, torch.full((4,), 0.25))
    assert_close(layer.lengthscale, torch.ones(4))
    assert bool((layer.weight_scale > 0).all())
    assert isinstance(layer.weight_mean, torch.nn.Parameter)


@pytest.mark.parametrize("in_features", [1, 5, 40])
def test_prior_variance_of_f_starts_at_one_whatever_the_number_of_features(in_features):
    layer = SIKALayer(in_features, 1, bias=False, dtype=torch.float64)
    layer.weight_scale = 1.0
    variance = layer(off_node_points(7, 9, in_features)).variance
    assert_close(variance, torch.ones_like(variance))


def test_mean_and_variance_are_features_times_weights():
    layer = random_layer(residual="none", kernel=Laplace(), lengthscale=doubles([0.2, 3.0]))
    x = torch.randn(4, 6, 2, dtype=torch.float64)
    phi = dense_features(layer.features(x), layer.num_nodes)
    scale, variance = layer.variance.sqrt(), layer.weight_scale.square()
    mean = torch.einsum("...dm,d,dmo->...o", phi, scale, layer.weight_mean) + layer.bias_mean
    spread = torch.einsum("...dm,d,dmo->...o", phi.square(), scale.square(), variance)
    assert_close(layer(x).mean, mean)
    assert_close(layer(x).variance, spread + layer.bias_scale.square())


def test_features_do_not_depend_on_variance_or_bias():
    layer = random_layer()
    x = torch.rand(5, 2, dtype=torch.float64)
    before = layer.features(x).values
    layer.variance = 7.0
    with torch.no_grad():
        layer.bias_mean.add_(3.0)
    assert torch.equal(layer.features(x).values, before)


@pytest.mark.parametrize("plan", ["auto", *PLANS])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_rows_do_not_see_each_other(plan, mode):
    layer = random_layer(level=5, plan=plan).train(mode == "train")
    x = off_node_points(5, 64, 2)
    order = torch.randperm(64)
    with torch.no_grad():
        q, shuffled = layer(x), layer(x[order])
        alone = [layer(row) for row in x]
        halves = [layer(x[:10]), layer(x[10:])]
    for moment in ("mean", "variance"):
        whole = getattr(q, moment)
        assert_close(getattr(shuffled, moment), whole[order])
        assert_close(torch.stack([getattr(one, moment) for one in alone]), whole)
        assert_close(torch.cat([getattr(half, moment) for half in halves]), whole)


def test_prediction_ignores_the_range_of_the_batch():
    layer = random_layer(domain=RunningDomain(2))
    layer(torch.randn(50, 2, dtype=torch.float64))
    layer.eval()
    x = torch.randn(5, 2, dtype=torch.float64)
    with_outlier = torch.cat([x, doubles([[1e6, -1e6]])])
    assert_close(layer(with_outlier).mean[:5], layer(x).mean)


@pytest.mark.parametrize("residual", ["full", "none"])
@pytest.mark.parametrize("added", [1, 3])
def test_levels_that_follow_the_prior_change_neither_mean_nor_kl(added, residual):
    coarse = random_layer(level=3, residual=residual, lengthscale=0.3)
    fine = random_layer(level=3 + added, residual=residual)
    with torch.no_grad():
        fine.weight_mean.zero_()[:, : coarse.num_nodes] = coarse.weight_mean
        scale = torch.ones_like(fine.weight_mean)
        scale[:, : coarse.num_nodes] = coarse.weight_scale
        fine.weight_scale = scale
        for name in ("bias_mean", "raw_bias_scale", "log_lengthscale", "log_variance"):
            getattr(fine, name).copy_(getattr(coarse, name))
    x = off_node_points(7, 60, 2)
    assert_close(fine(x).mean, coarse(x).mean)
    assert_close(fine.kl_divergence(), coarse.kl_divergence())
    if residual == "full":
        assert_close(fine(x).variance, coarse(x).variance)


@pytest.mark.parametrize("t", [5.0, 50.0, 1e6])
def test_far_inputs_get_the_prior(t):
    layer = random_layer(1, 2, lengthscale=0.1, residual="outside")
    for x in (-t, 1 + t):
        q = layer(doubles([[x]]))
        assert_close(q.mean[0], layer.bias_mean)
        prior = layer.variance + layer.bias_scale.square()
        assert_close(q.variance[0], prior)


@pytest.mark.parametrize("plan", PLANS)
def test_function_is_continuous_at_nodes_and_ends(plan):
    layer = random_layer(1, 2, plan=plan)
    nodes = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    step = 1e-12
    for moment in ("mean", "variance"):
        here = getattr(layer(nodes), moment)
        assert_close(getattr(layer(nodes - step), moment), here)
        assert_close(getattr(layer(nodes + step), moment), here)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_reaches_parameters_domain_and_outputs(dtype):
    layer = SIKALayer(2, 1, level=2, domain=Domain(0.0, 1.0), dtype=dtype)
    assert {tensor.dtype for tensor in (*layer.parameters(), *layer.buffers())} == {dtype}
    assert layer(torch.rand(3, 2)).mean.dtype == dtype
    assert layer(torch.rand(3, 2, dtype=torch.float64)).mean.dtype == dtype


def test_lengthscale_may_differ_between_features():
    layer = random_layer(2, 1, lengthscale=doubles([0.1, 10.0]))
    assert_close(layer.lengthscale, doubles([0.1, 10.0]))
    x = doubles([[0.3, 0.3]])
    singles = [random_layer(1, 1, lengthscale=value) for value in (0.125, 8.0)]
    layer.lengthscale = doubles([0.125, 8.0])
    values = layer.features(x).values[0]
    for feature, single in enumerate(singles):
        assert_close(values[feature], single.features(x[:, :1]).values[0, 0])


def test_repr_names_the_choices():
    text = repr(SIKALayer(2, 3, level=4, kernel="brownian", residual="none", bias=False))
    for part in ("in_features=2", "level=4", "kernel=BrownianMotion", "residual='none'"):
        assert part in text


def test_reset_parameters_restores_the_start():
    layer = random_layer(3, 2)
    layer.reset_parameters()
    assert_close(layer.variance, torch.full((3,), 1 / 3).double(), dtype=torch.float32)
    assert layer.weight_mean.std() < 0.2
    assert math.isclose(layer.bias_mean.abs().sum().item(), 0.0)
