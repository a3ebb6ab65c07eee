"""Predictions of y against integrals and sampling."""

import gpytorch
import pytest
import torch
from gpytorch import likelihoods
from helpers import assert_close
from likelihood_oracles import (
    ROWS,
    TARGETS,
    conditional,
    integrate,
    marginals,
    perturbed,
    targets_for,
)
from torch.distributions import Normal

from sikagp.likelihoods import HeteroscedasticGaussianLikelihood, build_likelihood
from sikagp.mixtures import GaussianMixture
from sikagp.predictions import class_probabilities, log_marginal, predictive
from sikagp.variational import GaussianMarginals


@pytest.mark.parametrize("name", ["gaussian", "student_t", "bernoulli", "logistic", "poisson"])
def test_log_marginal_is_the_log_of_the_integral(name):
    likelihood, marginal, y = perturbed(name, 1), marginals(1), targets_for(name)[:, :1]
    density = integrate(lambda f: conditional(name, likelihood, f).log_prob(y).exp(), marginal)
    expected = density.mean(0).log().squeeze(-1)
    actual = log_marginal(likelihood, GaussianMixture(marginal), y.squeeze(-1))
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


def test_heteroscedastic_prediction_has_exact_moments_and_the_right_density():
    likelihood, marginal = HeteroscedasticGaussianLikelihood(), marginals(2, samples=2)
    prediction = predictive(likelihood, GaussianMixture(marginal))
    noise = (marginal.mean[..., 1:] + 0.5 * marginal.variance[..., 1:]).exp()
    mean = marginal.mean[..., :1]
    variance = (marginal.variance[..., :1] + noise).mean(0) + mean.var(0, correction=0)
    assert_close(prediction.mean, mean.mean(0))
    assert_close(prediction.variance, variance)
    y = torch.randn(ROWS, 1, dtype=torch.float64)
    draws = marginal.rsample((100_000,))
    scale = (marginal.variance[..., :1] + draws[..., 1:].exp()).sqrt()
    density = Normal(mean, scale).log_prob(y).exp().mean((0, 1)).squeeze(-1)
    torch.testing.assert_close(prediction.log_prob(y), density.log(), atol=0.02, rtol=0)


def test_softmax_mixes_classes_if_told_to():
    likelihood = likelihoods.SoftmaxLikelihood(num_features=2, num_classes=3)
    certain = GaussianMarginals(torch.randn(1, ROWS, 2), torch.full((1, ROWS, 2), 1e-12))
    logits = certain.mean[0] @ likelihood.mixing_weights.T
    prediction = predictive(likelihood, GaussianMixture(certain))
    assert_close(prediction.probs, logits.softmax(-1))


def test_class_probabilities_are_averaged_never_logits():
    likelihood = build_likelihood("softmax", 2)
    wide = GaussianMarginals(torch.tensor([[3.0, 0.0]]), torch.tensor([[25.0, 1e-12]]))
    draws = torch.sigmoid(3 + 5 * torch.randn(400_000))
    probability = predictive(likelihood, wide, 4000).probs[0, 0]
    assert abs(float(probability) - float(draws.mean())) < 0.02
    assert float(probability) < 0.8 < float(torch.sigmoid(torch.tensor(3.0)))


def test_class_probabilities_ignore_the_other_rows_and_repeat():
    likelihood, mixture = build_likelihood("softmax", 3), GaussianMixture(marginals(3))
    alone = GaussianMixture(
        GaussianMarginals(mixture.components.mean[:, 1:2], mixture.components.variance[:, 1:2])
    )
    draws = class_probabilities(likelihood, mixture, 12)
    assert draws.shape == (12, ROWS, 3)
    assert torch.equal(draws[:, 1:2], class_probabilities(likelihood, alone, 12))


def test_softmax_log_marginal_is_the_log_of_mean_probabilities():
    likelihood, mixture = build_likelihood("softmax", 3), GaussianMixture(marginals(3))
    y = torch.randint(3, (ROWS,))
    with gpytorch.settings.num_likelihood_samples(60_000):
        actual = log_marginal(likelihood, mixture, y)
    expected = predictive(likelihood, mixture, 60_000).log_prob(y)
    torch.testing.assert_close(actual, expected, atol=0.02, rtol=0)


def test_gaussian_prediction_adds_the_noise_of_each_target():
    likelihood, marginal = perturbed("gaussian"), marginals(TARGETS)
    prediction = predictive(likelihood, GaussianMixture(marginal))
    assert_close(prediction.components.variance, marginal.variance + likelihood.noise.flatten())


@pytest.mark.parametrize("name", ["student_t", "poisson"])
def test_quadrature_predictions_have_the_moments_of_samples(name):
    likelihood, marginal = perturbed(name), marginals(TARGETS)
    prediction = predictive(likelihood, GaussianMixture(marginal))
    draws = conditional(name, likelihood, marginal.rsample((200_000,))).sample()
    draws = draws.transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(prediction.mean, draws.mean(0), atol=0.05, rtol=0.05)
    if name == "poisson":
        torch.testing.assert_close(prediction.variance, draws.var(0), atol=0.05, rtol=0.05)


def test_bernoulli_prediction_is_the_probit_average():
    likelihood, marginal = build_likelihood("bernoulli", 1), marginals(1)
    expected = integrate(Normal(0.0, 1.0).cdf, marginal).mean(0)
    assert_close(predictive(likelihood, GaussianMixture(marginal)).probs, expected)


def test_logistic_prediction_is_the_average_of_probabilities():
    likelihood, marginal = build_likelihood("logistic", 1), marginals(1)
    expected = integrate(lambda f: conditional("logistic", likelihood, f).probs, marginal).mean(0)
    actual = predictive(likelihood, GaussianMixture(marginal)).probs
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


def test_unknown_likelihoods_are_refused():
    with pytest.raises(TypeError, match="LaplaceLikelihood"):
        predictive(likelihoods.LaplaceLikelihood(), marginals(1))


@pytest.mark.parametrize(("components", "wanted", "drawn"), [(1, 7, 7), (3, 7, 9), (4, 2, 4)])
def test_every_component_has_as_many_draws(components, wanted, drawn):
    likelihood, mixture = (
        build_likelihood("softmax", 3),
        GaussianMixture(marginals(3, samples=components)),
    )
    assert len(class_probabilities(likelihood, mixture, wanted)) == drawn


def test_heteroscedastic_predictions_of_several_targets_are_those_of_each():
    likelihood, marginal = HeteroscedasticGaussianLikelihood(), marginals(6, samples=2)
    whole = predictive(likelihood, GaussianMixture(marginal))
    for i in range(3):
        part = GaussianMarginals(marginal.mean[..., [i, 3 + i]], marginal.variance[..., [i, 3 + i]])
        alone = predictive(likelihood, GaussianMixture(part))
        assert_close(whole.mean[:, [i]], alone.mean)
        assert_close(whole.variance[:, [i]], alone.variance)
        assert_close(whole.quantile(0.9)[:, [i]], alone.quantile(0.9))


@pytest.mark.parametrize("name", ["gaussian", "heteroscedastic", "student_t"])
def test_densities_of_y_integrate_to_one(name):
    likelihood, marginal = perturbed(name, 1), marginals(1 + (name == "heteroscedastic"))
    y = torch.linspace(-200, 200, 20_001, dtype=torch.float64)
    one_row = GaussianMarginals(
        marginal.mean[:, :1].expand(-1, len(y), -1), marginal.variance[:, :1].expand(-1, len(y), -1)
    )
    density = log_marginal(likelihood, GaussianMixture(one_row), y).exp()
    assert torch.trapezoid(density, y).item() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("name", ["bernoulli", "logistic"])
def test_probabilities_of_two_labels_sum_to_one(name):
    likelihood, output = build_likelihood(name, 1), GaussianMixture(marginals(1))
    yes, no = (log_marginal(likelihood, output, torch.full((ROWS,), y)).exp() for y in (1.0, 0.0))
    assert_close(yes + no, torch.ones(ROWS))
    assert_close(yes, predictive(likelihood, output).probs.squeeze(-1))
