"""Matérn kernels against dense algebra on states, which include derivatives of f."""

import math

import numpy as np
import pytest
import torch
from helpers import assert_close

from sikagp import SIKALayer
from sikagp.basis import dense_features, sparse_features
from sikagp.grid import DyadicGrid
from sikagp.kernels import Matern32, Matern52
from sikagp.table import two_point
from sikagp.tree import grid_prior

by_kernel = pytest.mark.parametrize("kernel", [Matern32(), Matern52()], ids=["3/2", "5/2"])
RATES = torch.tensor([0.05, 1.0, 5.0, 30.0], dtype=torch.float64)


def closed_form(kernel, distance):
    """The textbook formula, in distances over the lengthscale."""
    t = math.sqrt(2 * kernel.smoothness) * distance.abs()
    polynomial = 1 + t if kernel.state_size == 2 else 1 + t + t**2 / 3
    return polynomial * torch.exp(-t)


def derivative(kernel, distance, order):
    """Derivatives of k(d) in d: each turns a polynomial p times exp(-t) into p' - p."""
    rate = math.sqrt(2 * kernel.smoothness)
    polynomial = np.polynomial.Polynomial([1, 1] if kernel.state_size == 2 else [1, 1, 1 / 3])
    for _ in range(order):
        polynomial = polynomial.deriv() - polynomial
    t = rate * distance.abs()
    value = torch.from_numpy(polynomial(t.numpy())) * torch.exp(-t) * rate**order
    return value * distance.sign() if order % 2 else value


def state_covariance(kernel, x, y):
    """Cov of (f, f', ..) at x and at y: derivatives of k(x - y), with signs for those in y."""
    distance = x[:, None] - y[None, :]
    s = kernel.state_size
    blocks = torch.zeros(len(x), s, len(y), s, dtype=torch.float64)
    for i in range(s):
        for j in range(s):
            blocks[:, i, :, j] = (-1) ** j * derivative(kernel, distance, i + j)
    return blocks.reshape(len(x) * s, len(y) * s)


def points():
    return torch.rand(12, 4, dtype=torch.float64) * 1.6 - 0.3


@by_kernel
def test_covariance_is_the_closed_form(kernel):
    x, y = torch.rand(2, 50, dtype=torch.float64)
    for rate in RATES:
        assert_close(kernel.covariance(x, y, rate), closed_form(kernel, rate * (x - y)))


@by_kernel
@pytest.mark.parametrize("level", [1, 3, 5])
def test_features_are_a_factor_of_the_nystroem_kernel_on_states(kernel, level):
    grid, x = DyadicGrid(level), points()
    prior = grid_prior(kernel, grid, RATES)
    features = sparse_features(x, prior)
    assert features.values.shape[-1] == kernel.state_size * (level + 2)
    phi = dense_features(features, kernel.state_size * grid.num_nodes)
    nodes = torch.linspace(0, 1, grid.num_nodes, dtype=torch.float64)
    _, weights = two_point(x, prior)
    for d, rate in enumerate(RATES):
        known = state_covariance(kernel, rate * nodes, rate * nodes)
        across = state_covariance(kernel, rate * x[:, d], rate * nodes)[:: kernel.state_size]
        if torch.linalg.cond(known) > 1e12:
            continue  # the oracle itself is not accurate
        nystroem = across @ torch.linalg.solve(known, across.T)
        assert_close(phi[:, d] @ phi[:, d].T, nystroem)
        open_variance = (weights.inside + weights.outside)[:, d]
        assert_close(open_variance, 1 - nystroem.diagonal())


@by_kernel
def test_on_the_nodes_nothing_is_missing(kernel):
    prior = grid_prior(kernel, DyadicGrid(4), RATES)
    nodes = torch.linspace(0, 1, 17, dtype=torch.float64).unsqueeze(-1).expand(-1, 4)
    phi = dense_features(sparse_features(nodes, prior), kernel.state_size * 17)
    for d, rate in enumerate(RATES):
        distance = rate * (nodes[:, None, d] - nodes[None, :, d])
        assert_close(phi[:, d] @ phi[:, d].T, closed_form(kernel, distance))


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
def test_plans_agree_in_values_and_gradients(kernel):
    layer = SIKALayer(4, 2, level=4, kernel=kernel, lengthscale=0.3, dtype=torch.float64)
    results = []
    for plan in ("table", "sparse", "dense"):
        layer.plan = plan
        layer.zero_grad()
        x = points().requires_grad_() if not results else results[0][0].detach().requires_grad_()
        q = layer(x)
        (q.mean.sin().sum() + q.variance.log().sum()).backward()
        gradients = [p.grad.clone() for p in layer.parameters()]
        results.append([x, q.mean, q.variance, x.grad, *gradients])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert_close(a, b)


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
def test_gradient_in_the_lengthscale(kernel):
    layer = SIKALayer(2, 1, level=2, kernel=kernel, lengthscale=0.4, dtype=torch.float64)
    x = torch.tensor([[0.13, 0.71], [-0.4, 1.6], [0.55, 0.29]], dtype=torch.float64)

    def moments(log_lengthscale, x):
        parameters = {"log_lengthscale": log_lengthscale}
        q = torch.func.functional_call(layer, parameters, (x,))
        return q.mean, q.variance

    inputs = layer.log_lengthscale.detach().requires_grad_(), x.requires_grad_()
    assert torch.autograd.gradcheck(moments, inputs)


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
@pytest.mark.parametrize("lengthscale", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("level", [1, 7, 12])
def test_float32_is_accurate(kernel, lengthscale, level):
    exact = SIKALayer(
        1, 1, level=level, kernel=kernel, lengthscale=lengthscale, dtype=torch.float64
    )
    exact.weight_scale = 0.5
    coarse = SIKALayer(1, 1, level=level, kernel=kernel, lengthscale=lengthscale)
    coarse.load_state_dict(exact.state_dict())
    x = torch.cat([torch.rand(200, 1) * 2 - 0.5, torch.tensor([[0.0], [1.0], [-1e6], [1e6]])])
    a, b = coarse(x), exact(x.double())
    assert_close(a.mean.double(), b.mean, dtype=torch.float32)
    assert_close(a.variance.double(), b.variance, dtype=torch.float32)
