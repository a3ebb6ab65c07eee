"""Sparse, table and dense plans: the same values and the same gradients."""

import pytest
import torch
from helpers import (
    PLANS,
    assert_close,
    awkward_points,
    doubles,
    off_node_points,
    random_layer,
)
from hypothesis import given
from hypothesis import strategies as st
from oracles import CASES, condition, gram, laplace_covariance

from sikagp import SIKALayer, layers

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_residual = pytest.mark.parametrize("residual", ["full", "outside", "none"])
LENGTHSCALES = (1e-3, 1.0, 1e3)


def moments_and_gradients(layer: SIKALayer, x: torch.Tensor, plan: str) -> list[torch.Tensor]:
    """Mean, variance, and the gradients of a random combination of both."""
    layer.plan = plan
    x = x.clone().requires_grad_()
    q = layer(x)
    pattern = torch.linspace(-1, 2, q.mean.numel(), dtype=q.mean.dtype).view_as(q.mean)
    loss = (q.mean * pattern).sum() + (q.variance * pattern.flip(0)).sum()
    gradients = torch.autograd.grad(loss, [x, *layer.parameters()])
    return [q.mean, q.variance, *gradients]


@by_name
@by_residual
@pytest.mark.parametrize("level", [1, 4])
def test_all_plans_agree(case, residual, level):
    layer = random_layer(kernel=case.kernel, residual=residual, level=level)
    x = off_node_points(level, 40, 2)
    expected = moments_and_gradients(layer, x, "dense")
    for plan in ("sparse", "table"):
        for actual, oracle in zip(moments_and_gradients(layer, x, plan), expected, strict=True):
            assert_close(actual, oracle)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("level", [1, 5, 12])
def test_plans_agree_on_awkward_points(level, lengthscale, dtype):
    layer = random_layer(1, 2, level=level, lengthscale=lengthscale, dtype=dtype)
    x = awkward_points(level, dtype=dtype)
    with torch.no_grad():
        outputs = {}
        for layer.plan in PLANS:
            outputs[layer.plan] = layer(x)
    for plan in ("sparse", "table"):
        assert_close(outputs[plan].mean, outputs["dense"].mean)
        assert_close(outputs[plan].variance, outputs["dense"].variance)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("level", [1, 7, 12])
def test_values_and_gradients_are_finite(level, lengthscale, dtype, plan):
    layer = random_layer(1, 2, level=level, lengthscale=lengthscale, dtype=dtype)
    results = moments_and_gradients(layer, awkward_points(level, dtype=dtype), plan)
    assert all(bool(result.isfinite().all()) for result in results)
    assert bool((results[1] > 0).all())


@given(
    level=st.integers(1, 12),
    exponent=st.floats(-3, 3),
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=12),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_plans_agree_for_any_input(level, exponent, values, dtype):
    torch.manual_seed(level)
    layer = random_layer(1, 1, level=level, lengthscale=10.0**exponent, dtype=dtype)
    x = torch.tensor(values, dtype=dtype).unsqueeze(-1)
    results = {plan: moments_and_gradients(layer, x, plan) for plan in PLANS}
    for plan in ("sparse", "table"):
        for actual, expected in zip(results[plan][:2], results["dense"][:2], strict=True):
            assert_close(actual, expected)
        assert all(bool(result.isfinite().all()) for result in results[plan])


@by_residual
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("kernel", ["laplace", "brownian"])
def test_gradcheck(plan, kernel, residual):
    layer = random_layer(2, 2, level=2, kernel=kernel, residual=residual, plan=plan)
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    x = doubles([[-0.3, 0.4], [0.6, 1.2], [0.1, 0.9]]).requires_grad_()

    def moments(x, *parameters):
        swapped = dict(zip(names, parameters, strict=True))
        q = torch.func.functional_call(layer, swapped, (x,))
        return q.mean, q.variance

    assert {"weight_mean", "raw_weight_scale", "log_variance"} <= set(names)
    assert ("log_lengthscale" in names) == (kernel == "laplace")
    every_entry = kernel == "laplace" and residual == "full"
    assert torch.autograd.gradcheck(moments, (x, *values), fast_mode=not every_entry)


@by_residual
def test_residual_modes_differ_by_the_open_variance(residual):
    layer = random_layer(1, 1, lengthscale=0.3, residual=residual)
    theta = 1 / layer.lengthscale.item()
    x = doubles([-0.4, 0.0, 0.03, 0.25, 0.7, 1.0, 1.3])
    nodes = torch.linspace(0, 1, 9, dtype=torch.float64)
    left_open = condition(laplace_covariance(theta), x, nodes)[1].diagonal()
    inside = (x >= 0) & (x <= 1)
    added = {"full": left_open, "outside": left_open * ~inside, "none": 0 * left_open}[residual]
    with torch.no_grad():
        variance = layer(x[:, None]).variance[:, 0]
        layer.residual = "none"
        grid_only = layer(x[:, None]).variance[:, 0]
    assert_close(variance - grid_only, layer.variance.detach() * added)


@pytest.mark.parametrize("plan", PLANS)
def test_prior_weights_give_the_prior_covariance(plan):
    layer = random_layer(1, 1, bias=False, plan=plan, lengthscale=0.25)
    layer.weight_scale = 1.0
    x = off_node_points(3, 30, 1)
    prior_variance = gram(laplace_covariance(4.0), x[:, 0], x[:, 0]).diagonal()
    assert_close(layer(x).variance[:, 0], layer.variance * prior_variance)


def test_auto_takes_the_sparse_plan_for_few_rows_and_the_table_for_many(monkeypatch):
    taken = []
    original = layers.trained_moments
    monkeypatch.setattr(
        layers, "trained_moments", lambda *inputs: taken.append("table") or original(*inputs)
    )
    layer = random_layer(level=9, plan="auto")
    few, many = torch.rand(2, 2, dtype=torch.float64), torch.rand(500, 2, dtype=torch.float64)
    layer(few)
    assert taken == []
    layer(many)
    assert taken == ["table"]
