"""Exact inference for layers with Gaussian noise, against dense Gaussian process regression."""

import math

import numpy as np
import pytest
import torch
from helpers import assert_close, random_layer, randomize
from torch.distributions import MultivariateNormal

from sikagp.estimators import SIKARegressor, evidence, regressor, selection
from sikagp.estimators.evidence import (
    Observed,
    design,
    learn_exactly,
    log_evidence,
    maximise_evidence,
    set_posterior,
)
from sikagp.estimators.selection import effect_shares, needed_terms, relearn_pairs
from sikagp.likelihoods import build_likelihood, expected_log_prob
from sikagp.models import DeepGP
from sikagp.models.architecture import part_of, with_pairs
from sikagp.models.predictor import Predictor


def problem(targets: int = 2, rows: int = 30, **options):
    layer = random_layer(3, targets, kernel="matern52", level=2, **options).requires_grad_(False)
    likelihood = build_likelihood("gaussian", targets).double().requires_grad_(False)
    likelihood.noise = torch.linspace(0.1, 0.3, targets).double().view(-1, 1)
    x, y = torch.rand(rows, 3).double(), torch.randn(rows, targets).double()
    return layer, likelihood, Observed(x, y, torch.ones(rows).double())


def bound(layer, likelihood, data: Observed) -> torch.Tensor:
    """Evidence lower bound of mean-field weights, each row counted by its weight."""
    fit = expected_log_prob(likelihood, layer(data.x), data.y)
    return data.weight @ fit - layer.kl_divergence()


def test_the_evidence_is_the_density_of_the_targets_under_the_prior():
    layer, likelihood, data = problem()
    phi = design(layer, data.x)
    expected = 0.0
    for y, noise in zip(data.y.T, likelihood.noise.flatten(), strict=True):
        covariance = phi @ phi.T + noise * torch.eye(30).double()
        expected += MultivariateNormal(torch.zeros(30).double(), covariance).log_prob(y)
    assert_close(log_evidence(layer, likelihood, data), expected)


def test_rows_may_be_repeated_or_weighted():
    layer, likelihood, data = problem()
    count = torch.arange(30) % 3
    repeated = [values.repeat_interleave(count, 0) for values in data]
    weighted = data._replace(weight=count.double())
    assert_close(
        log_evidence(layer, likelihood, weighted),
        log_evidence(layer, likelihood, Observed(*repeated)),
    )


def test_the_posterior_mean_is_that_of_dense_regression():
    layer, likelihood, data = problem()
    x = torch.rand(20, 3).double()
    set_posterior(layer, likelihood, data)
    phi, other = design(layer, data.x), design(layer, x)
    for t, noise in enumerate(likelihood.noise.flatten()):
        gram = phi @ phi.T + noise * torch.eye(30).double()
        expected = other @ phi.T @ torch.linalg.solve(gram, data.y[:, t])
        assert_close(layer(x).mean[:, t], expected)


def test_no_other_q_has_a_higher_bound():
    layer, likelihood, data = problem(residual="none")
    data = data._replace(weight=torch.rand(30).double())
    set_posterior(layer, likelihood, data)
    names = ("weight_mean", "raw_weight_scale", "bias_mean", "raw_bias_scale")
    q = [getattr(layer, name).requires_grad_() for name in names]
    slopes = torch.autograd.grad(bound(layer, likelihood, data), q)
    for slope in slopes:
        assert_close(slope, torch.zeros_like(slope))


def test_hyperparameters_of_the_process_that_made_the_targets_are_found():
    """A smooth effect, a rough one, none at all, and the noise."""
    torch.manual_seed(0)
    layer, likelihood, data = problem(1, 400, lengthscale=1.0)
    x = data.x
    clean = torch.sin(2 * x[:, 0]) + 0.5 * torch.sin(20 * x[:, 1])
    data = data._replace(y=(clean + 0.1 * torch.randn(400)).unsqueeze(-1).double())
    layer.refine(4)
    layer.variance = 1 / 3
    before = log_evidence(layer, likelihood, data)
    maximise_evidence(layer, likelihood, data)
    assert log_evidence(layer, likelihood, data) > before + 100
    assert likelihood.noise.item() == pytest.approx(0.01, rel=0.2)
    smooth, rough, _ = layer.lengthscale
    assert smooth > 3 * rough
    set_posterior(layer, likelihood, data)
    assert effect_shares(layer, x, data.weight)[2] < 1e-3
    assert (layer(x).mean[:, 0] - clean).square().mean().sqrt() < 0.05


@pytest.mark.parametrize("kernel", ["laplace", "brownian"])
def test_kernels_with_and_without_lengthscales_can_be_learned(kernel):
    layer, likelihood, data = problem()
    layer = random_layer(3, 2, kernel=kernel, level=2)
    before = log_evidence(layer, likelihood, data).item()
    maximise_evidence(layer, likelihood, data)
    assert log_evidence(layer, likelihood, data) > before
    assert not any(part.requires_grad for part in layer.parameters())


def test_terms_that_are_not_kept_have_no_effect():
    layer, likelihood, data = problem()
    learn_exactly(layer, likelihood, data, [0, 2])
    part, x = part_of(layer, [0, 2], bias=True), torch.rand(20, 3).double()
    torch.testing.assert_close(layer(x).mean, part(x[:, [0, 2]]).mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(layer(x).variance, part(x[:, [0, 2]]).variance, atol=1e-5, rtol=0)
    alone = log_evidence(part, likelihood, data._replace(x=data.x[:, [0, 2]]))
    torch.testing.assert_close(log_evidence(layer, likelihood, data), alone, atol=1e-2, rtol=0)


def test_all_rows_are_learned_even_if_few_decide_about_hyperparameters(monkeypatch):
    monkeypatch.setattr(evidence, "MAX_ROWS", 10)
    layer, likelihood, data = problem()
    learn_exactly(layer, likelihood, data, [0, 1, 2])
    found = layer.weight_mean.clone()
    set_posterior(layer, likelihood, data)
    assert_close(layer.weight_mean, found)


def test_effects_share_the_variance_of_a_sum():
    layer, _, data = problem(1)
    weight = torch.rand(30).double()
    shares = effect_shares(layer, data.x, weight)
    effects = torch.stack([part_of(layer, [d], bias=False)(data.x[:, [d]]).mean for d in range(3)])
    expected = np.array(
        [np.cov(row[:, 0], aweights=weight, ddof=0) for row in effects.detach().numpy()]
    )
    np.testing.assert_allclose(shares.numpy(), expected / expected.sum())


def test_an_effect_counts_for_the_target_it_matters_most_to():
    layer, _, data = problem(2)
    with torch.no_grad():
        layer.weight_mean[0, :, 1] = layer.weight_mean[1:, :, 0] = 0
        layer.weight_mean[0] *= 1e-3  # the first target is small, but has the first feature alone
    assert effect_shares(layer, data.x, data.weight)[0] > 1 / 3


def test_a_pair_brings_its_features_and_both_of_its_terms():
    d, pairs = 4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    shares = torch.zeros(16)
    shares[d + len(pairs) + pairs.index((1, 3))] = 0.9  # the difference of 1 and 3
    shares[0] = 0.1
    names = with_pairs(torch.eye(d).double(), d)[:, needed_terms(shares, d)].T
    turned = torch.tensor([[0, 1, 0, 1], [0, 1, 0, -1]]).double() / math.sqrt(2)
    assert_close(names, torch.cat([torch.eye(4).double()[[0, 1, 3]], turned]))


def test_the_fewest_terms_with_nearly_all_of_the_variance_are_kept():
    shares = torch.zeros(36)
    shares[[0, 8, 10, 5, 4]] = torch.tensor([0.5, 0.4, 0.095, 0.004, 0.001])
    assert needed_terms(shares, 6) == [0, 3, 5, 8, 10, 23, 25]  # pairs (0, 3) and (0, 5)
    assert needed_terms(torch.full((36,), torch.nan), 6) == []


@pytest.mark.parametrize(("most", "learned"), [(1, True), (0, False)])
def test_models_that_need_many_pairs_are_left_alone(monkeypatch, most, learned):
    monkeypatch.setattr(selection, "MOST_PAIRS", most)
    model = DeepGP((2, 1), pairs=True, level=2).double().eval().requires_grad_(False)
    member = Predictor(model, build_likelihood("gaussian", 1).double())
    randomize(model.layers[0])
    before = model.layers[0].weight_mean.clone()
    x = torch.rand(20, 2).double()
    data = Observed(x, x.prod(1, keepdim=True), torch.ones(20).double())
    assert relearn_pairs(member, data) == learned
    assert torch.equal(model.layers[0].weight_mean, before) != learned


def test_a_product_of_two_features_is_found_among_others(monkeypatch):
    random = np.random.RandomState(0)
    X, new = random.randn(2, 300, 5)
    f, truth = (x[:, 1] * x[:, 3] + np.sin(x[:, 0]) for x in (X, new))
    errors = []
    concluded = SIKARegressor._concluded

    def spy(self, trial, split):
        errors.append(np.sqrt(np.mean((self.predict(new) - truth) ** 2)))
        return concluded(self, trial, split)

    monkeypatch.setattr(SIKARegressor, "_concluded", spy)
    model = SIKARegressor(hidden="pairs", max_epochs=200, random_state=0)
    model.fit(X, f + 0.3 * random.randn(300))
    assert np.sqrt(np.mean((model.predict(new) - truth) ** 2)) < 0.75 * errors[0]
    noise = model._members[0].likelihood.noise.item() * model._output.scale.item() ** 2
    assert noise == pytest.approx(0.09, rel=0.25)
    layer = model._members[0].model.layers[0]
    kept = (layer.log_variance > evidence.VARIANCES[0]).nonzero().flatten().tolist()
    assert {0, 1, 3} <= set(kept)
    assert len(kept) < 12


@pytest.mark.parametrize("worse", [True, False])
def test_of_the_two_ways_to_learn_pairs_the_held_out_rows_choose(monkeypatch, worse):
    def spoil(member, data):
        member.model.layers[0].bias_mean.add_(10.0 if worse else 0.0)
        relearned.append(member)
        return True

    relearned = []
    monkeypatch.setattr(regressor, "relearn_pairs", spoil)
    X = np.random.RandomState(0).rand(500, 2)
    model = SIKARegressor(hidden="pairs", level=1, max_epochs=2, random_state=0).fit(X, X.sum(1))
    assert (model._members[0] is relearned[0]) != worse
