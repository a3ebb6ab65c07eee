"""Expected log likelihoods against integrals, sampling and GPyTorch."""

import gpytorch
import pytest
import torch
from gpytorch import likelihoods
from gpytorch.distributions import MultivariateNormal
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
from linear_operator.operators import DiagLinearOperator

from sikagp.likelihoods import (
    HeteroscedasticGaussianLikelihood,
    build_likelihood,
    expected_log_prob,
    num_outputs,
)
from sikagp.mixtures import GaussianMixture
from sikagp.predictions import log_marginal
from sikagp.variational import GaussianMarginals

ONE_OUTPUT = ["gaussian", "student_t", "bernoulli", "logistic", "poisson"]


@pytest.mark.parametrize("name", ONE_OUTPUT)
def test_expected_log_prob_is_the_integral(name):
    likelihood, marginal, y = perturbed(name), marginals(TARGETS), targets_for(name)
    expected = integrate(lambda f: conditional(name, likelihood, f).log_prob(y), marginal).sum(-1)
    actual = expected_log_prob(likelihood, marginal, y)
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ONE_OUTPUT)
def test_expected_log_prob_is_gpytorch_s(name):
    likelihood, marginal, y = perturbed(name), marginals(TARGETS), targets_for(name)
    as_batch = MultivariateNormal(marginal.mean.mT, DiagLinearOperator(marginal.variance.mT))
    expected = likelihood.expected_log_prob(y.mT, as_batch).sum(-2)
    actual = expected_log_prob(likelihood, marginal, y)
    # GPyTorch approximates the logarithm of the normal distribution function.
    tolerance = 2e-3 if name == "bernoulli" else 1e-5
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_other_one_dimensional_likelihoods_go_through_gpytorch():
    likelihood = likelihoods.LaplaceLikelihood().double()
    marginal, y = marginals(1, samples=2), torch.randn(ROWS, dtype=torch.float64)
    expected = likelihood.expected_log_prob(
        y, MultivariateNormal(marginal.mean[..., 0], DiagLinearOperator(marginal.variance[..., 0]))
    )
    assert_close(expected_log_prob(likelihood, marginal, y), expected)


def test_other_likelihoods_of_one_output_go_through_gpytorch():
    noise = torch.rand(ROWS, dtype=torch.float64) + 0.1
    likelihood = likelihoods.FixedNoiseGaussianLikelihood(noise)
    marginal, y = marginals(1), torch.randn(ROWS, 1, dtype=torch.float64)
    error = (y - marginal.mean).square() + marginal.variance
    expected = -0.5 * (error.squeeze(-1) / noise + (2 * torch.pi * noise).log())
    assert_close(expected_log_prob(likelihood, marginal, y), expected)


def test_multitask_likelihoods_go_through_gpytorch():
    likelihood = likelihoods.MultitaskGaussianLikelihood(num_tasks=TARGETS, rank=0).double()
    marginal, y = marginals(TARGETS), torch.randn(ROWS, TARGETS, dtype=torch.float64)
    noise = likelihood.task_noises + likelihood.noise
    error = (y - marginal.mean).square() + marginal.variance
    expected = -0.5 * (error / noise + (2 * torch.pi * noise).log()).sum(-1)
    assert_close(expected_log_prob(likelihood, marginal, y), expected)


def test_heteroscedastic_expectation_matches_sampling():
    likelihood, marginal = HeteroscedasticGaussianLikelihood(), marginals(2 * TARGETS, samples=1)
    y = torch.randn(ROWS, TARGETS, dtype=torch.float64)
    draws = likelihood(marginal.rsample((200_000,))).log_prob(y)
    error = draws.std(0) / 200_000**0.5
    actual = expected_log_prob(likelihood, marginal, y)
    assert ((actual - draws.mean(0)).abs() < 5 * error).all()


def test_heteroscedastic_targets_are_independent():
    likelihood, whole = HeteroscedasticGaussianLikelihood(), marginals(6)
    y = torch.randn(ROWS, 3, dtype=torch.float64)
    alone = [
        expected_log_prob(
            likelihood,
            GaussianMarginals(whole.mean[..., [i, 3 + i]], whole.variance[..., [i, 3 + i]]),
            y[:, i],
        )
        for i in range(3)
    ]
    assert_close(expected_log_prob(likelihood, whole, y), sum(alone))
    given = likelihood(whole.mean)
    assert_close(given.mean, whole.mean[..., :3])
    assert_close(given.variance.log(), whole.mean[..., 3:])


@pytest.mark.parametrize("name", ONE_OUTPUT)
def test_certain_outputs_leave_the_likelihood_itself(name):
    likelihood, marginal, y = perturbed(name), marginals(TARGETS), targets_for(name)
    certain = GaussianMarginals(marginal.mean, torch.full_like(marginal.mean, 1e-18))
    expected = conditional(name, likelihood, marginal.mean).log_prob(y).sum(-1)
    assert_close(expected_log_prob(likelihood, certain, y), expected)


@pytest.mark.parametrize("name", ["heteroscedastic", *ONE_OUTPUT[:-1]])
def test_expectations_lie_below_the_log_of_the_prediction(name):
    """Jensen's inequality, which makes the ELBO a bound."""
    likelihood, y = perturbed(name, 1), targets_for(name)[:, :1]
    marginal = marginals(num_outputs(name, 1), samples=1)
    expected = expected_log_prob(likelihood, marginal, y)[0]
    assert (expected < log_marginal(likelihood, GaussianMixture(marginal), y)).all()


def test_softmax_expectation_agrees_with_gpytorch_s_samples():
    likelihood, marginal = build_likelihood("softmax", 3), marginals(3)
    y = torch.randint(3, (ROWS,))
    with gpytorch.settings.num_likelihood_samples(60_000):
        actual = expected_log_prob(likelihood, marginal, y)
        expected = likelihood.expected_log_prob(y, marginal.to_gpytorch())
    torch.testing.assert_close(actual, expected, atol=0.02, rtol=0)


def test_softmax_does_not_mistake_rows_for_classes():
    # GPyTorch transposes its input if there are as many rows as classes.
    likelihood, y = build_likelihood("softmax", ROWS), torch.arange(ROWS)
    certain = GaussianMarginals(torch.randn(1, ROWS, ROWS), torch.full((1, ROWS, ROWS), 1e-12))
    expected = torch.log_softmax(certain.mean[0], -1)[y, y]
    assert_close(expected_log_prob(likelihood, certain, y)[0], expected)


def test_names_and_shapes_are_checked(as_users_run):
    with pytest.raises(ValueError, match=r"'gaussian', .* got 'cauchy'"):
        build_likelihood("cauchy", 1)
    with pytest.raises(ValueError, match=r"targets of shape \(5, 2\), got \(5,\)"):
        expected_log_prob(build_likelihood("gaussian", 2), marginals(2), torch.zeros(5))
    assert num_outputs("heteroscedastic", 3) == 6
    assert num_outputs("softmax", 3) == 3
