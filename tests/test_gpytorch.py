"""Equality with GPyTorch's sparse variational GP, and its likelihoods at work on our marginals."""

import gpytorch
import pytest
import torch
from gpytorch.variational import CholeskyVariationalDistribution, UnwhitenedVariationalStrategy
from helpers import assert_close, doubles, random_layer
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from sikagp import GaussianMarginals, SIKALayer
from sikagp.basis import dense_features

JITTER = 1e-10


class SparseGP(gpytorch.models.ApproximateGP):
    """One feature and one output of a layer: its nodes are the inducing points."""

    def __init__(self, nodes, mean, covariance, lengthscale, variance):
        q = CholeskyVariationalDistribution(len(nodes))
        strategy = UnwhitenedVariationalStrategy(self, nodes, q, jitter_val=JITTER)
        strategy.variational_params_initialized.fill_(1)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=0.5))
        self.double()
        q.variational_mean.data.copy_(mean)
        q.chol_variational_covar.data.copy_(torch.linalg.cholesky(covariance))
        self.covar_module.base_kernel.lengthscale = lengthscale
        self.covar_module.outputscale = variance

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@torch.no_grad()
def peer(layer: SIKALayer, feature: int, output: int) -> SparseGP:
    """q(u) by dense algebra from the layer's features at its nodes."""
    unit = torch.linspace(0, 1, layer.num_nodes, dtype=torch.float64)
    nodes = layer.domain.low + layer.domain.width * unit
    phi = dense_features(
        layer.features(nodes.unsqueeze(-1).expand(-1, layer.in_features)), layer.num_nodes
    )[:, feature]
    variance = layer.variance[feature]
    mean = variance.sqrt() * phi @ layer.weight_mean[feature, :, output]
    root = variance.sqrt() * phi * layer.weight_scale[feature, :, output]
    return SparseGP(
        nodes.unsqueeze(-1), mean, root @ root.T, layer.lengthscale[feature], variance
    ).eval()


@pytest.mark.parametrize("in_features", [1, 2])
@pytest.mark.parametrize("lengthscale", [0.3, 2.0])
@torch.no_grad()
def test_marginals_are_those_of_the_unwhitened_strategy(in_features, lengthscale):
    layer = random_layer(
        in_features, 2, domain=(-1.0, 2.0), lengthscale=lengthscale, residual="full"
    )
    x = torch.linspace(-3, 4, 41, dtype=torch.float64)
    x = torch.stack([x, x.flip(0) + 0.1][:in_features], dim=-1)
    assert bool((x < -1).any() and (x > 2).any())
    q = layer(x)
    for output in range(2):
        peers = [peer(layer, d, output)(x[:, d : d + 1]) for d in range(in_features)]
        mean = sum(p.mean for p in peers) + layer.bias_mean[output]
        variance = sum(p.variance for p in peers) + layer.bias_scale[output].square()
        torch.testing.assert_close(q.mean[:, output], mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(q.variance[:, output], variance, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_kl_is_that_of_the_inducing_values():
    layer = random_layer(1, 1, bias=False)
    twin = peer(layer, 0, 0)
    q = twin.variational_strategy.variational_distribution
    prior = twin(twin.variational_strategy.inducing_points, prior=True)
    kl = kl_divergence(*(MultivariateNormal(u.mean, u.covariance_matrix) for u in (q, prior)))
    torch.testing.assert_close(layer.kl_divergence(), kl, rtol=1e-5, atol=1e-5)


def marginals(*batch: int) -> GaussianMarginals:
    return GaussianMarginals(torch.randn(*batch, 5, 3).double(), torch.rand(*batch, 5, 3).double())


@pytest.mark.parametrize("batch", [(), (4,)])
def test_conversion_keeps_mean_and_variance(batch):
    q = marginals(*batch)
    peer = q.to_gpytorch()
    assert isinstance(peer, gpytorch.distributions.MultitaskMultivariateNormal)
    assert peer.event_shape == (5, 3)
    assert_close(peer.mean, q.mean)
    assert_close(peer.variance, q.variance)
    covariance = peer.covariance_matrix
    assert_close(covariance, torch.diag_embed(q.variance.flatten(-2)))


def test_a_single_row_converts_too():
    layer = random_layer()
    peer = layer(doubles([0.2, 0.4])).to_gpytorch()
    assert_close(peer.mean.flatten(), layer(doubles([0.2, 0.4])).mean)


def test_expected_log_prob_of_a_gaussian_likelihood():
    layer = random_layer()
    x, y = torch.rand(6, 2, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(3, rank=0).double()
    likelihood.noise = 0.2
    likelihood.task_noises = doubles([0.1, 0.2, 0.4])
    noise = 0.2 + likelihood.task_noises
    q = layer(x)
    expected = Normal(q.mean, noise.sqrt()).log_prob(y) - q.variance / (2 * noise)
    actual = likelihood.expected_log_prob(y, q.to_gpytorch())
    assert_close(actual.sum(), expected.sum())


def test_gradients_flow_through_gpytorch():
    layer = random_layer(2, 1)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    x, y = torch.rand(6, 2, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    q = layer(x)
    flat = gpytorch.distributions.MultivariateNormal(
        q.mean[:, 0], q.to_gpytorch().lazy_covariance_matrix
    )
    bound = likelihood.expected_log_prob(y, flat).sum() - layer.kl_divergence()
    noise = likelihood.noise
    q_again = layer(x)
    closed = Normal(q_again.mean[:, 0], noise.sqrt()).log_prob(y).sum()
    closed = closed - (q_again.variance.sum() / (2 * noise)).sum() - layer.kl_divergence()
    assert_close(bound, closed)
    parameters = tuple(layer.parameters())
    for actual, expected in zip(
        torch.autograd.grad(bound, parameters), torch.autograd.grad(closed, parameters), strict=True
    ):
        assert_close(actual, expected)


def test_softmax_likelihood_takes_the_marginals():
    layer = random_layer(2, 3)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_features=3, num_classes=3, mixing_weights=False
    )
    x, labels = torch.rand(4, 2, dtype=torch.float64), torch.tensor([0, 1, 2, 1])
    q = layer(x)
    with gpytorch.settings.num_likelihood_samples(20_000):
        actual = likelihood.expected_log_prob(labels, q.to_gpytorch())
    draws = q.rsample((20_000,)).log_softmax(-1)[:, torch.arange(4), labels]
    spread = draws.std(0) * (2 / 20_000) ** 0.5
    assert ((actual - draws.mean(0)) / spread).abs().max() < 5


def test_softmax_of_certain_marginals_is_the_log_softmax():
    logits = torch.randn(4, 3, dtype=torch.float64)
    q = GaussianMarginals(logits, torch.full_like(logits, 1e-8))
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_features=3, num_classes=3, mixing_weights=False
    )
    labels = torch.tensor([0, 1, 2, 1])
    expected = logits.log_softmax(-1)[torch.arange(4), labels]
    actual = likelihood.expected_log_prob(labels, q.to_gpytorch())
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)
