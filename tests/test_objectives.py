"""Objectives against GPyTorch's own, and against the evidence they bound."""

import gpytorch
import pytest
import torch
from gpytorch.priors import GammaPrior
from helpers import assert_close, random_layer

from sikagp.integrations.gpytorch import as_gp
from sikagp.likelihoods import HeteroscedasticGaussianLikelihood, build_likelihood
from sikagp.models import DeepGP
from sikagp.objectives import PredictiveLogLikelihood, VariationalELBO, warm_up

OURS = {"elbo": VariationalELBO, "predictive": PredictiveLogLikelihood}
THEIRS = {
    "elbo": gpytorch.mlls.VariationalELBO,
    "predictive": gpytorch.mlls.PredictiveLogLikelihood,
}


def rows(outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.randn(6, outputs, dtype=torch.float64)
    return torch.rand(6, 2, dtype=torch.float64), y.squeeze(-1)


@pytest.mark.parametrize("kind", ["elbo", "predictive"])
@pytest.mark.parametrize("name", ["gaussian", "bernoulli"])
def test_one_layer_gives_gpytorch_s_number(kind, name):
    layer, (x, y) = random_layer(2, 1), rows(1)
    y = (y > 0).double() if name == "bernoulli" else y
    likelihood = build_likelihood(name, 1).double()
    ours = OURS[kind](likelihood, layer, 50, beta=0.3)
    gp = as_gp(layer)
    theirs = THEIRS[kind](likelihood, gp, 50, beta=0.3)
    # GPyTorch approximates the logarithm of the normal distribution function.
    tolerance = 2e-3 if name == "bernoulli" else 1e-9
    torch.testing.assert_close(
        ours(layer(x), y), theirs(gp(x), y).squeeze(), rtol=tolerance, atol=tolerance
    )


def test_several_targets_give_gpytorch_s_number():
    layer, (x, y) = random_layer(2, 3), rows(3)
    ours = build_likelihood("gaussian", 3).double()
    theirs = gpytorch.likelihoods.MultitaskGaussianLikelihood(3, has_global_noise=False).double()
    noise = torch.tensor([0.1, 0.2, 0.3])
    ours.noise, theirs.task_noises = noise[:, None], noise
    gp = as_gp(layer)
    expected = gpytorch.mlls.VariationalELBO(theirs, gp, 50)(gp(x), y)
    assert_close(VariationalELBO(ours, layer, 50)(layer(x), y), expected)


def test_deep_elbo_averages_over_samples_and_counts_the_divergence_once():
    model, (x, y) = DeepGP((2, 4, 1), level=2, num_samples=5).double(), rows(1)
    likelihood, output = build_likelihood("gaussian", 1).double(), model(x)
    terms = [
        likelihood.expected_log_prob(
            y, gpytorch.distributions.MultivariateNormal(mean, variance.diag())
        )
        for mean, variance in zip(
            output.components.mean.squeeze(-1), output.components.variance.squeeze(-1), strict=True
        )
    ]
    divergence = sum(layer.kl_divergence() for layer in model.layers)
    expected = torch.stack(terms).mean() - divergence / 40
    assert_close(VariationalELBO(likelihood, model, 40)(output, y), expected)


def test_deep_predictive_objective_has_the_mixture_inside_the_logarithm():
    model, (x, y) = DeepGP((2, 4, 1), level=2, num_samples=5).double(), rows(1)
    likelihood, output = build_likelihood("gaussian", 1).double(), model(x)
    scale = (output.components.variance + likelihood.noise).sqrt()
    density = torch.distributions.Normal(output.components.mean, scale).log_prob(y[:, None]).exp()
    expected = density.mean(0).log().mean() - model.kl_divergence() / 40
    assert_close(PredictiveLogLikelihood(likelihood, model, 40)(output, y), expected)


def test_deep_models_work_in_gpytorch_s_own_objective():
    model, (x, y) = DeepGP((2, 4, 1), level=2, num_samples=(5, 5)).double().eval(), rows(1)
    likelihood, gp = build_likelihood("gaussian", 1).double(), as_gp(model)
    theirs = gpytorch.mlls.VariationalELBO(likelihood, gp, 40)(gp(x), y)
    assert_close(theirs.mean(), VariationalELBO(likelihood, model, 40)(model(x), y))


def test_input_dependent_noise_works_in_gpytorch_s_own_objective():
    layer, (x, y) = random_layer(2, 4), rows(2)
    likelihood, gp = HeteroscedasticGaussianLikelihood(), as_gp(layer)
    theirs = gpytorch.mlls.VariationalELBO(likelihood, gp, 40)(gp(x), y)
    assert_close(theirs, VariationalELBO(likelihood, layer, 40)(layer(x), y))


def test_elbo_is_below_the_evidence_and_improves_to_near_it():
    layer = random_layer(1, 1, level=2, residual="none")
    x, y = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None], rows(1)[1].repeat(2)
    likelihood = build_likelihood("gaussian", 1).double()
    objective = VariationalELBO(likelihood, layer, 12)
    for parameter in (*likelihood.parameters(), layer.log_variance, layer.log_lengthscale):
        parameter.requires_grad_(False)
    values, index = layer.features(x)
    phi = torch.zeros(12, 1, layer.num_nodes, dtype=torch.float64).scatter(-1, index, values)
    phi = phi.squeeze(1) * layer.variance.sqrt()
    # The bias is a further weight with a standard normal prior.
    covariance = phi @ phi.T + 1 + likelihood.noise * torch.eye(12, dtype=torch.float64)
    evidence = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y)
    optimizer = torch.optim.LBFGS([p for p in layer.parameters() if p.requires_grad], max_iter=200)
    start = 12 * objective(layer(x), y)

    def closure():
        optimizer.zero_grad()
        loss = -objective(layer(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    end = 12 * objective(layer(x), y)
    assert start < end < evidence
    # At the optimum of a mean-field posterior its means are the exact ones.
    exact = torch.cat([phi, torch.ones(12, 1)], -1)
    exact = exact @ exact.T @ torch.linalg.solve(covariance, y)
    torch.testing.assert_close(layer(x).mean.squeeze(-1), exact, atol=1e-3, rtol=0)


def test_weights_of_rows_act_like_repetition():
    layer, (x, y) = random_layer(2, 1), rows(1)
    objective = VariationalELBO(build_likelihood("gaussian", 1).double(), layer, 50, beta=0.0)
    weight = torch.tensor([2.0, 1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    again = torch.tensor([0, 0, 1, 2, 4, 5])
    assert_close(objective(layer(x), y, weight), objective(layer(x[again]), y[again]))


def test_priors_of_the_likelihood_count():
    layer, (x, y) = random_layer(2, 1), rows(1)
    prior = GammaPrior(2.0, 3.0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=prior).double()
    plain = gpytorch.likelihoods.GaussianLikelihood().double()
    difference = VariationalELBO(likelihood, layer, 50)(layer(x), y) - VariationalELBO(
        plain, layer, 50
    )(layer(x), y)
    assert_close(difference, prior.log_prob(likelihood.noise).sum() / 50)


def test_warm_up_rises_linearly_to_one():
    assert [warm_up(step, 4) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    assert warm_up(0, 0) == 1


def test_bad_numbers_are_refused(as_users_run):
    likelihood, layer = build_likelihood("gaussian", 1), random_layer(2, 1)
    with pytest.raises(ValueError, match="negative, got -1"):
        VariationalELBO(likelihood, layer, 5, beta=-1.0)
    with pytest.raises(ValueError, match="num_data"):
        VariationalELBO(likelihood, layer, 0)
