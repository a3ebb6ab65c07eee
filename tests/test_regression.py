"""One layer with fixed noise: the exact posterior is Gaussian process regression."""

import pytest
import torch
from helpers import assert_close, off_node_points, random_layer
from oracles import gram, laplace_covariance, nystrom

from sikagp import SIKALayer
from sikagp.basis import dense_features

NOISE = 0.3
NODES = torch.linspace(0, 1, 9, dtype=torch.float64)


def make_layer(in_features: int, **options) -> SIKALayer:
    lengthscale = torch.tensor([0.25, 0.5], dtype=torch.float64)[:in_features]
    return random_layer(in_features, 1, lengthscale=lengthscale, **options).requires_grad_(False)


def design(layer: SIKALayer, x: torch.Tensor) -> torch.Tensor:
    """All basis functions of all features, times their prior standard deviations."""
    phi = dense_features(layer.features(x), layer.num_nodes)
    return (phi * layer.variance.sqrt().unsqueeze(-1)).flatten(1)


def weight_posterior(phi: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    precision = phi.T @ phi / NOISE + torch.eye(phi.shape[1], dtype=phi.dtype)
    covariance = torch.linalg.inv(precision)
    return covariance @ phi.T @ y / NOISE, covariance


def additive(layer: SIKALayer, x: torch.Tensor, y: torch.Tensor, entry=gram) -> torch.Tensor:
    """Dense covariance matrix of the sum over features."""
    total = torch.zeros(len(x), len(y), dtype=x.dtype)
    for d in range(layer.in_features):
        covariance = laplace_covariance(1 / layer.lengthscale[d].item())
        total += layer.variance[d] * entry(covariance, x[:, d], y[:, d])
    return total


def regression(k_train, k_cross, k_test, y):
    gain = torch.linalg.solve(k_train + NOISE * torch.eye(len(y), dtype=y.dtype), k_cross)
    return gain.T @ y, k_test.diagonal() - (k_cross * gain).sum(0)


@pytest.mark.parametrize("in_features", [1, 2])
def test_data_on_nodes_gives_exact_regression_everywhere(in_features):
    layer = make_layer(in_features, bias=False, residual="full")
    x = NODES[torch.randint(0, 9, (30, in_features))]
    y = torch.randn(30, dtype=torch.float64)
    x_test = off_node_points(3, 40, in_features)
    mean, covariance = weight_posterior(design(layer, x), y)
    phi = design(layer, x_test)
    expected = regression(
        additive(layer, x, x), additive(layer, x, x_test), additive(layer, x_test, x_test), y
    )
    assert_close(phi @ mean, expected[0])
    layer.weight_scale = 1e-30  # leaves the residual alone
    variance = (phi @ covariance * phi).sum(-1) + layer(x_test).variance[:, 0]
    assert_close(variance, expected[1])


def test_data_between_nodes_gives_regression_with_the_nystrom_covariance():
    layer = make_layer(1, bias=False)
    x, x_test = torch.rand(2, 25, 1, dtype=torch.float64)
    y = torch.randn(25, dtype=torch.float64)
    both = torch.cat([x, x_test])
    joint = additive(layer, both, both, lambda k, a, _: nystrom(k, a, NODES))
    mean, covariance = weight_posterior(design(layer, x), y)
    phi = design(layer, x_test)
    expected = regression(joint[:25, :25], joint[:25, 25:], joint[25:, 25:], y)
    assert_close(phi @ mean, expected[0])
    assert_close((phi @ covariance * phi).sum(-1), expected[1])


def fit_elbo(layer: SIKALayer, x: torch.Tensor, y: torch.Tensor) -> None:
    """Maximise the evidence lower bound over q, to machine precision."""
    weights = [p for name, p in layer.named_parameters() if "weight" in name or "bias" in name]
    for parameter in weights:
        parameter.requires_grad_()
    optimiser = torch.optim.LBFGS(
        weights,
        max_iter=500,
        tolerance_grad=1e-11,
        tolerance_change=0.0,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def loss():
        optimiser.zero_grad()
        q = layer(x)
        misfit = ((y - q.mean[:, 0]).square() + q.variance[:, 0]).sum() / (2 * NOISE)
        negative_elbo = misfit + layer.kl_divergence()
        negative_elbo.backward()
        return negative_elbo

    optimiser.step(loss)


@pytest.mark.parametrize("plan", ["sparse", "table"])
@pytest.mark.parametrize("residual", ["full", "none"])
def test_the_elbo_is_maximal_at_the_exact_posterior_mean(plan, residual):
    layer = make_layer(1, plan=plan, residual=residual)
    x = off_node_points(3, 40, 1)
    y = torch.sin(6 * x[:, 0]) + 0.5 + 0.3 * torch.randn(40, dtype=torch.float64)
    fit_elbo(layer, x, y)
    phi = torch.cat([design(layer, x), torch.ones_like(x)], dim=1)  # the bias comes last
    mean, covariance = weight_posterior(phi, y)
    scale = torch.linalg.inv(covariance).diagonal().rsqrt()  # the best mean-field scale
    means = torch.cat([layer.weight_mean.flatten(), layer.bias_mean]).detach()
    scales = torch.cat([layer.weight_scale.flatten(), layer.bias_scale]).detach()
    torch.testing.assert_close(means, mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(scales, scale, rtol=0, atol=1e-6)
