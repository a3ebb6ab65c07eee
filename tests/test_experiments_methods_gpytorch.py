"""GPyTorch's models as its users build them: kernels, where they start, and what they mix."""

import math

import gpytorch
import pytest
import torch
from torch.testing import assert_close

from sikagp import Domain
from sikagp.experiments.methods.dense import CORRELATIONS
from sikagp.experiments.methods.gpytorch_heads import GPyTorchDeepGP, GPyTorchHead
from sikagp.experiments.methods.gpytorch_models import (
    KERNELS,
    SVGP,
    HiddenLayer,
    SVDKLHead,
    build_kernel,
    typical_distance,
)


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_kernels_have_one_lengthscale_per_feature(name):
    kernel = build_kernel(name, 3, lengthscale=1.7)
    assert_close(kernel.base_kernel.lengthscale, torch.full((1, 3), 1.7))
    kernel.base_kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0])
    kernel.outputscale = 1.3
    x = torch.randn(6, 3)
    scaled = x / torch.tensor([0.5, 1.0, 2.0])
    expected = 1.3 * CORRELATIONS[name](torch.cdist(scaled, scaled))
    assert_close(kernel(x).to_dense(), expected, rtol=1e-4, atol=1e-3)


def test_unknown_kernels_are_refused():
    with pytest.raises(ValueError, match="kernel must be one of 'laplace'"):
        build_kernel("cubic", 1, lengthscale=1.0)


def test_lengthscales_start_at_typical_distances():
    rows = torch.randn(2000, 50)
    middle = (rows[:1000] - rows[1000:]).norm(dim=-1).mean() / math.sqrt(2)
    assert typical_distance(50) == pytest.approx(middle.item(), rel=0.02)
    lengthscale = SVGP(50, 1, 4).covar_module.base_kernel.lengthscale.detach()
    assert_close(lengthscale, torch.full((1, 50), math.sqrt(50)))


@pytest.mark.parametrize("outputs", [1, 3])
def test_inducing_points_start_where_they_are_put(outputs):
    points = torch.randn(5, 2)
    model = SVGP(2, outputs, 5, points=points)
    strategy = model.variational_strategy
    strategy = strategy if outputs == 1 else strategy.base_variational_strategy
    assert strategy.inducing_points.requires_grad
    assert_close(strategy.inducing_points.detach(), points.expand(*[3][: outputs - 1], 5, 2))
    with torch.no_grad():
        strategy.inducing_points.add_(1)
    assert points.abs().max() < 5  # the rows themselves stay
    random = SVGP(2, 1, 500).variational_strategy.inducing_points
    assert 0 <= random.min() < 0.05 < 0.95 < random.max() <= 1


def test_means_of_hidden_layers_are_linear_and_the_last_is_constant():
    model = GPyTorchDeepGP(torch.randn(6, 2), (2, 3, 3, 1))
    kinds = [type(layer.mean_module).__name__ for layer in model.layers]
    assert kinds == ["LinearMean", "LinearMean", "ConstantMean"]
    sizes = [layer.variational_strategy.inducing_points.shape[-1] for layer in model.layers]
    assert sizes == [2, 3, 3]
    starts = torch.cat([layer.variational_strategy.inducing_points for layer in model.layers[1:]])
    assert starts.min() < 0  # random points are standardised, too


def test_evaluation_leaves_the_random_state_alone():
    model = GPyTorchDeepGP(torch.randn(6, 2), (2, 3, 1), num_samples=(2, 5))
    x = torch.randn(4, 2)
    model(x)  # starts q
    model.eval()
    before = torch.random.get_rng_state()
    with torch.no_grad():
        model(x)
    assert torch.equal(torch.random.get_rng_state(), before)


@torch.no_grad()
def test_the_deep_divergence_is_summed_over_layers_and_units():
    model = GPyTorchDeepGP(torch.randn(6, 2), (2, 3, 1), num_samples=(2, 5))
    model(torch.randn(4, 2))
    expected = 0.0
    for layer in model.layers:
        strategy = layer.variational_strategy
        q = strategy.variational_distribution
        for mean, covariance in zip(q.mean, q.covariance_matrix, strict=True):
            normal = torch.distributions.MultivariateNormal(mean, covariance)
            prior = torch.distributions.MultivariateNormal(torch.zeros(6), torch.eye(6))
            expected = expected + torch.distributions.kl_divergence(normal, prior)
    assert_close(model.kl_divergence(), expected, rtol=1e-3, atol=1e-3)


def test_features_of_a_mixing_head_share_a_kernel_or_have_one_each():
    for shared, shape in ((True, (1, 1)), (False, (3, 1, 1))):
        head = SVDKLHead(3, 8, shared_kernel=shared)
        lengthscale = head.covar_module.base_kernel.lengthscale
        assert tuple(lengthscale.shape) == shape
        assert_close(lengthscale.detach(), torch.full(shape, 0.2))


@torch.no_grad()
def test_each_process_of_a_mixing_head_sees_its_own_column():
    head = GPyTorchHead(SVDKLHead(2, 16), 2, Domain(0.0, 1.0))
    head(torch.rand(3, 2))
    q = head.model.variational_strategy.base_variational_strategy._variational_distribution
    q.variational_mean[0] = 1.0
    q.variational_mean[1] = torch.linspace(-1, 1, 16)
    head.eval()
    x = torch.tensor([[0.2, 0.8], [0.8, 0.2]])
    mean = head(x).mean
    assert_close(mean[0, 0], mean[1, 0], rtol=0.05, atol=0.05)
    assert mean[0, 1] > 0.3 > -0.3 > mean[1, 1]


def test_the_prior_of_a_hidden_layer_is_its_mean_and_kernel():
    layer = HiddenLayer(torch.randn(4, 2), 3, kernel="rbf", last=True)
    x = torch.randn(3, 5, 2)
    with torch.no_grad():
        prior = layer.forward(x)
        assert_close(prior.mean, layer.mean_module(x))
        assert_close(prior.covariance_matrix, layer.covar_module(x).to_dense())
    assert isinstance(prior, gpytorch.distributions.MultivariateNormal)
