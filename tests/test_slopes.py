"""Derivatives of f: Gaussian marginals in closed form."""

import pytest
import torch
from helpers import assert_close, random_layer

from sikagp import Domain

by_kernel = pytest.mark.parametrize("kernel", ["matern32", "matern52"])
by_residual = pytest.mark.parametrize("residual", ["full", "outside", "none"])


def layer_of(kernel, residual="full", **options):
    domain = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 3.0])
    options = {"domain": domain, "lengthscale": 0.7, "level": 3, **options}
    return random_layer(2, 3, kernel=kernel, residual=residual, **options)


def points():
    inner = torch.rand(7, 2, dtype=torch.float64) * 4 - 1.5
    return torch.cat([inner, torch.tensor([[-1.0, 3.0], [0.25, 1.5]], dtype=torch.float64)])


@by_kernel
@pytest.mark.parametrize("even", [True, False])
def test_mean_is_the_gradient_of_the_mean(kernel, even):
    x = points().requires_grad_()
    layer = layer_of(kernel) if even else layer_of(kernel, domain=Domain.quantiles(x, level=3))
    mean = layer(x).mean
    for o in range(3):  # rows do not depend on each other
        (expected,) = torch.autograd.grad(mean[:7, o].sum(), x, retain_graph=True)
        assert_close(layer.gradient(x).mean[:7, :, o], expected[:7])
    single = layer.gradient(x[0])
    assert single.mean.shape == single.variance.shape == (2, 3)


@by_kernel
@by_residual
def test_variance_is_that_of_finite_differences(kernel, residual):
    """Var of (f(x + h) - f(x - h)) / 2h, from covariances of the weights and the residual."""
    layer, x, h = layer_of(kernel, residual), points()[:7], 1e-4
    for d in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[d] = h
        ahead, behind = layer.features(x + step), layer.features(x - step)
        size = layer.weight_mean.shape[1]
        dense = [
            torch.zeros(len(x), size, dtype=torch.float64).scatter_(
                1, part.index[:, d], part.values[:, d]
            )
            for part in (ahead, behind)
        ]
        slope = (dense[0] - dense[1]) / (2 * h) * layer.variance[d].sqrt()
        expected = slope.square() @ layer.weight_scale[d].square()
        total = layer.kernel.covariance(x.new_zeros(1), x.new_zeros(1), x.new_ones(1))
        assert_close(total, x.new_ones(1))
        # prior variance of f', less what the weights explain
        curvature = 3 if kernel == "matern32" else 5 / 3
        missing = curvature / 0.7**2 * layer.variance[d] - slope.square().sum(-1)
        beyond = (layer.domain(x)[:, d] < 0) | (layer.domain(x)[:, d] > 1)
        counted = {"full": torch.ones_like(beyond), "outside": beyond, "none": beyond & False}
        expected = expected + (missing * counted[residual]).unsqueeze(-1)
        torch.testing.assert_close(layer.gradient(x).variance[:, d], expected, rtol=1e-3, atol=1e-3)


def test_draws_of_paths_have_these_moments():
    layer, x, h = layer_of("matern52", "none"), points()[:3], 1e-4
    paths = layer.paths(3000)
    q = layer.gradient(x)
    for d in range(2):
        step = h * torch.eye(2, dtype=torch.float64)[d]
        slopes = (paths(x + step) - paths(x - step)) / (2 * h)
        error = (slopes.mean(0) - q.mean[:, d]) / q.stddev[:, d]
        assert error.abs().max() < 6 / 3000**0.5
        assert (slopes.var(0) / q.variance[:, d] - 1).abs().max() < 0.2


def test_far_away_the_prior_returns():
    layer = layer_of("matern52")
    q = layer.gradient(torch.full((1, 2), 50.0, dtype=torch.float64))
    assert_close(q.mean, torch.zeros_like(q.mean))
    expected = 5 / 3 / 0.7**2 * layer.variance
    assert_close(q.variance[0], expected.unsqueeze(-1).expand(2, 3))


def test_gradients_can_be_trained_on():
    layer, x = layer_of("matern32"), points()[:4].requires_grad_()
    q = layer.gradient(x)
    (q.mean.sum() + q.variance.sum()).backward()
    assert all(p.grad.isfinite().all() for n, p in layer.named_parameters() if "bias" not in n)
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kernel", ["laplace", "brownian"])
def test_rough_kernels_are_refused(kernel):
    options = {} if kernel == "laplace" else {"lengthscale": 1.0}
    with pytest.raises(ValueError, match=r"draws of \w+ have no derivative.*Matérn"):
        layer_of(kernel, **options).gradient(points())
