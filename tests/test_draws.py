"""Draws: moments within standard errors, and which rows share their randomness."""

import pytest
import torch
from helpers import assert_close, doubles, random_layer
from oracles import theorem_1

from sikagp import RunningDomain
from sikagp.basis import dense_features

DRAWS = 20_000
STANDARD_ERRORS = 5.0
X = doubles([[-0.4, 0.3], [0.0, 1.0], [0.1, 0.6], [0.55, 0.55], [0.8, 1.3]])


def assert_within_standard_errors(draws, mean, variance):
    """Compare sample moments of Gaussian draws (along the first axis) with the true ones."""
    error_of_mean = (draws.mean(0) - mean) / (variance / len(draws)).sqrt()
    error_of_variance = (draws.var(0) / variance - 1) / (2 / (len(draws) - 1)) ** 0.5
    assert error_of_mean.abs().max() < STANDARD_ERRORS
    assert error_of_variance.abs().max() < STANDARD_ERRORS


def row_covariance(layer, x):
    """Covariance between rows of the additive part of output 0, by dense algebra."""
    phi = dense_features(layer.features(x), layer.num_nodes)
    phi = phi * layer.variance.sqrt().unsqueeze(-1)
    return torch.einsum("adm,dm,bdm->ab", phi, layer.weight_scale[..., 0].square(), phi)


@pytest.mark.parametrize("residual", ["full", "none"])
@torch.no_grad()
def test_local_draws_have_the_marginal_moments(residual):
    layer = random_layer(level=2, residual=residual)
    q = layer(X)
    assert_within_standard_errors(layer.sample(X, DRAWS), q.mean, q.variance)


@pytest.mark.parametrize("method", ["flipout", "path"])
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_weight_draws_have_the_marginal_moments(method, bias):
    layer = random_layer(level=2, residual="none", bias=bias)
    q = layer(X)
    draws = layer.sample(X, DRAWS, method=method)
    assert_within_standard_errors(draws, q.mean, q.variance)


@pytest.mark.parametrize("method", ["local", "flipout", "path"])
@torch.no_grad()
def test_only_paths_correlate_rows(method):
    layer = random_layer(level=2, residual="none", bias=False)
    x = torch.cat([X, X[:2]])
    draws = layer.sample(x, DRAWS, method=method)[..., 0]
    covariance = row_covariance(layer, x)
    variance = covariance.diagonal()
    expected = covariance if method == "path" else variance.diag()
    scale = (torch.outer(variance, variance) + expected.square()).div(DRAWS).sqrt()
    assert ((draws.T.cov() - expected) / scale).abs().max() < STANDARD_ERRORS


@pytest.mark.parametrize("method", ["local", "flipout", "path"])
@torch.no_grad()
def test_draws_are_independent_between_samples_and_outputs(method):
    layer = random_layer(level=2, residual="none")
    draws = layer.sample(X[2:3], DRAWS, method=method)[:, 0]
    series = torch.cat([draws[:-1], draws[1:]], dim=1)
    correlation = torch.corrcoef(series.T) - torch.eye(6)
    assert correlation.abs().max() < STANDARD_ERRORS / DRAWS**0.5


@pytest.mark.parametrize("method", ["local", "flipout", "path"])
def test_draws_repeat_with_the_generator_and_carry_gradients(method):
    layer = random_layer()
    first, second = (
        layer.sample(X, 3, method=method, generator=torch.Generator().manual_seed(4))
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert first.shape == (3, 5, 3)
    first.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())


@pytest.mark.parametrize("kernel", ["laplace", "brownian", "bridge"])
def test_paths_are_basis_functions_times_drawn_weights(kernel):
    layer = random_layer(kernel=kernel)
    paths = layer.paths(4, generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(4, *layer.weight_mean.shape, generator=generator, dtype=torch.float64)
    bias_noise = torch.randn(4, layer.out_features, generator=generator, dtype=torch.float64)
    weight = layer.weight_mean + layer.weight_scale * noise
    bias = layer.bias_mean + layer.bias_scale * bias_noise
    phi = dense_features(layer.features(X), layer.num_nodes) * layer.variance.sqrt()[:, None]
    expected = torch.einsum("bdm,pdmo->pbo", phi, weight) + bias[:, None]
    assert_close(paths(X), expected)


@torch.no_grad()
def test_paths_are_coherent():
    layer = random_layer()
    paths = layer.paths(3)
    values = paths(X)
    assert len(paths) == 3
    assert torch.equal(paths(X), values)
    assert_close(paths(X.flip(0)).flip(1), values)
    assert_close(paths(X[1]), values[:, 1])
    assert_close(paths(X.view(1, 5, 2)), values.unsqueeze(1))


@torch.no_grad()
def test_paths_at_their_own_points():
    layer = random_layer()
    paths = layer.paths(3)
    x = torch.randn(3, 4, 5, 2, dtype=torch.float64)
    expected = torch.stack([paths(x[i])[i] for i in range(3)])
    assert_close(paths.each(x), expected)
    assert_close(paths.each(x[:, 0, 0]), expected[:, 0, 0])  # one point for each
    with pytest.raises(ValueError, match=r"shape \(3, \*batch, 2\).*got shape \(4, 5, 2\)"):
        paths.each(x[0])


@torch.no_grad()
def test_paths_accept_an_empty_batch():
    paths = random_layer().paths(3)
    assert paths(X[:0]).shape == (3, 0, 3)
    assert paths.each(X.new_zeros(3, 0, 2)).shape == (3, 0, 3)


@torch.no_grad()
def test_paths_outlive_changes_of_their_layer():
    layer = random_layer(domain=RunningDomain(2))
    paths = layer.paths(2)
    before = paths(X)
    for parameter in layer.parameters():
        parameter.add_(1.0)
    layer.train()(5 * X)
    assert torch.equal(paths(X), before)


@torch.no_grad()
def test_a_path_of_one_weight_is_one_basis_function():
    layer = random_layer(1, 1, bias=False, lengthscale=0.25)
    layer.variance, layer.weight_scale = 1.0, 1e-30
    x = torch.linspace(0, 1, 50, dtype=torch.float64)
    for weight in range(layer.num_nodes):
        layer.weight_mean.zero_()[0, weight, 0] = 1.0
        drawn = layer.paths(1)(x[:, None])[0, :, 0]
        assert_close(drawn, theorem_1(x, 4.0, 3)[:, weight])
