"""Dense layers: correlations of a trusted library, the start, and networks by hand."""

import gpytorch
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sikagp import Domain
from sikagp.experiments.methods.bayesian import ACTIVATIONS, BayesianLinear
from sikagp.experiments.methods.dense import CORRELATIONS, DenseLayer, DrawnDenseLayer
from sikagp.experiments.methods.noise import as_column, residual_noise, with_noise

GPYTORCH = {
    "laplace": gpytorch.kernels.MaternKernel(nu=0.5),
    "matern32": gpytorch.kernels.MaternKernel(nu=1.5),
    "matern52": gpytorch.kernels.MaternKernel(nu=2.5),
    "rbf": gpytorch.kernels.RBFKernel(),
}


@pytest.mark.parametrize("name", CORRELATIONS)
@torch.no_grad()
def test_correlations_are_those_of_gpytorch(name):
    kernel = GPYTORCH[name].double()
    kernel.lengthscale = 1.0
    r = torch.linspace(0, 6, 50, dtype=torch.float64)
    expected = kernel(torch.zeros(1, 1, dtype=torch.float64), r.unsqueeze(-1)).to_dense()[0]
    assert_close(CORRELATIONS[name](r), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", CORRELATIONS)
@torch.no_grad()
def test_features_share_a_prior_variance_of_one(kernel):
    layer = DenseLayer(4, 1, level=3, kernel=kernel, domain=Domain(0.0, 1.0), lengthscale=0.5)
    assert_close(layer.variance, torch.full((4,), 0.25))
    at_nodes = torch.linspace(0, 1, 9).unsqueeze(-1).expand(-1, 4)
    prior = layer.features(at_nodes).square().sum((-1, -2))
    assert_close(prior, torch.ones(9), atol=1e-4, rtol=0)


@torch.no_grad()
def test_lengthscales_count_in_units_of_the_input():
    narrow = DenseLayer(1, 1, level=3, domain=Domain(0.0, 1.0), lengthscale=0.5)
    wide = DenseLayer(1, 1, level=3, domain=Domain(0.0, 10.0), lengthscale=5.0)
    x = torch.rand(20, 1)
    assert_close(wide.features(10 * x), narrow.features(x), rtol=1e-4, atol=1e-5)


def test_weights_start_near_zero_and_almost_certain():
    layer = DenseLayer(50, 4, level=4, domain=Domain(0.0, 1.0))
    assert layer.weight_mean.std().item() == pytest.approx(0.1, rel=0.1)
    assert layer.weight_scale.max() < 0.2
    assert_close(layer.bias_mean, torch.zeros(4))
    # Those of a network are draws from the prior.
    means = BayesianLinear(300, 4, activation="relu").weight_mean
    assert means.std().item() == pytest.approx(1, rel=0.1)


@torch.no_grad()
def test_drawn_weights_have_the_exact_marginals():
    torch.manual_seed(0)
    layer = DrawnDenseLayer(3, 2, level=2, domain=Domain(0.0, 1.0), num_draws=40_000)
    layer.weight_scale, layer.bias_scale, layer.bias_mean[:] = 0.7, 0.4, torch.tensor([1.0, -2.0])
    x = torch.rand(5, 3)
    drawn, exact = layer.train()(x), layer.eval()(x)
    assert_close(drawn.components.variance, torch.zeros(40_000, 5, 2))
    assert_close(drawn.mean, exact.mean, atol=0.02, rtol=0)
    assert_close(drawn.variance, exact.variance, atol=0, rtol=0.04)


@torch.no_grad()
def test_rows_share_the_weights_of_a_draw():
    layer = DrawnDenseLayer(3, 2, level=2, domain=Domain(0.0, 1.0), num_draws=4)
    x = torch.rand(1, 3).expand(6, 3)
    values = layer(x).components.mean
    assert values.shape == (4, 6, 2)
    assert_close(values, values[:, :1].expand(4, 6, 2))
    assert values[:, 0].std(0).min() > 0
    with pytest.raises(ValueError, match="num_draws"):
        DrawnDenseLayer(3, 2, domain=Domain(0.0, 1.0), num_draws=0)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"kernel must be one of 'laplace', .*, got 'cubic'"):
        DenseLayer(1, 1, domain=Domain(0.0, 1.0), kernel="cubic")
    with pytest.raises(ValueError, match=r"activation must be one of 'identity', .*, got 'gelu'"):
        BayesianLinear(1, 1, activation="gelu")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@torch.no_grad()
def test_a_bayesian_layer_has_prior_variance_one_on_standard_inputs(activation):
    width = 400
    layer = BayesianLinear(width, 1, activation=activation)
    layer.weight_mean.zero_()
    layer.weight_scale, layer.bias_scale = 1.0, 1e-6
    prior = layer(torch.randn(2000, width)).variance.mean().item()
    # Rectifiers keep half of the square; others keep most of it or less.
    second = ACTIVATIONS[activation]()(torch.randn(200_000)).square().mean().item()
    gain = 1 if activation in ("identity", "tanh") else 2
    assert prior == pytest.approx(gain * second, rel=0.03)
    if activation in ("identity", "relu"):
        assert prior == pytest.approx(1, rel=0.03)


@torch.no_grad()
def test_the_divergence_covers_weights_and_biases():
    layer = BayesianLinear(2, 3, activation="tanh")
    layer.weight_mean.zero_()
    layer.weight_scale = layer.bias_scale = 1.0
    assert layer.kl_divergence().abs() < 1e-5
    layer.bias_mean.fill_(2.0)
    assert_close(layer.kl_divergence(), torch.tensor(3 * 2.0), atol=1e-4, rtol=0)
    layer.bias_mean.zero_()
    layer.weight_mean.fill_(1.0)
    assert_close(layer.kl_divergence(), torch.tensor(6 * 0.5), atol=1e-4, rtol=0)


def test_certain_predictions_keep_a_little_noise():
    y = torch.randn(30, 2)
    noise = residual_noise(y.unsqueeze(0), y)
    assert_close(noise, torch.full((2,), 1e-6))
    assert_close(residual_noise(y.expand(3, -1, -1), y), noise)


def test_noise_belongs_to_each_target():
    y = torch.zeros(40, 2)
    mean = torch.stack([torch.full((40,), 2.0), torch.full((40,), 0.5)], -1).unsqueeze(0)
    noise = residual_noise(mean, y)
    assert_close(noise, torch.tensor([4.0, 0.25]))
    expected = torch.distributions.Normal(mean[0], noise.sqrt()).log_prob(y)
    assert_close(with_noise(mean, noise).log_prob(y), expected.sum(-1))


def test_targets_get_a_column():
    assert as_column(torch.zeros(5)).shape == (5, 1)
    assert as_column(torch.zeros(5, 2)).shape == (5, 2)


def test_activations_are_those_of_torch():
    x = torch.randn(100)
    expected = {"identity": x, "relu": x.relu(), "silu": nn.functional.silu(x), "tanh": x.tanh()}
    assert set(ACTIVATIONS) == set(expected)
    for name, values in expected.items():
        assert_close(ACTIVATIONS[name]()(x), values)
