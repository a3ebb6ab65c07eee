"""Mixtures against torch.distributions."""

import pytest
import torch
from helpers import assert_close
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from sikagp.mixtures import GaussianMixture, antithetic_noise, as_mixture, binned_exp, concatenate
from sikagp.variational import GaussianMarginals


@pytest.fixture
def mixture() -> GaussianMixture:
    mean = torch.randn(6, 4, 2, dtype=torch.float64)
    return GaussianMixture(GaussianMarginals(mean, torch.rand_like(mean) + 0.1))


@pytest.fixture
def oracle(mixture: GaussianMixture) -> MixtureSameFamily:
    """Joint over the two outputs, components last."""
    parts = mixture.components
    normal = Normal(parts.mean.movedim(0, 1), parts.variance.movedim(0, 1).sqrt())
    weights = Categorical(torch.ones(4, 6, dtype=torch.float64))
    return MixtureSameFamily(weights, Independent(normal, 1))


def test_moments_and_density_match_torch(mixture, oracle):
    y = torch.randn(4, 2, dtype=torch.float64)
    assert_close(mixture.mean, oracle.mean)
    assert_close(mixture.variance, oracle.variance)
    assert_close(mixture.stddev, oracle.variance.sqrt())
    assert_close(mixture.log_prob(y), oracle.log_prob(y))


def test_cdf_is_the_integral_of_the_density():
    mean, variance = torch.tensor([[[-1.0]], [[2.0]]]), torch.tensor([[[1.0]], [[0.25]]])
    y = torch.linspace(-8, 0.5, 20001).unsqueeze(-1)
    mixture = GaussianMixture(
        GaussianMarginals(mean.expand(2, 20001, 1), variance.expand(2, 20001, 1))
    )
    density = mixture.log_prob(y).exp()
    assert_close(mixture.cdf(y)[-1, 0], torch.trapezoid(density, y.squeeze(-1)))


@pytest.mark.parametrize("probability", [0.025, 0.5, 0.975])
def test_quantile_inverts_the_cdf(mixture, probability):
    quantile = mixture.quantile(probability)
    assert_close(mixture.cdf(quantile), torch.full((4, 2), probability, dtype=torch.float64))


def test_quantile_of_one_component_is_the_normal_one():
    one = as_mixture(GaussianMarginals(torch.tensor([[1.0]]), torch.tensor([[4.0]])))
    assert_close(one.quantile(0.9), Normal(1.0, 2.0).icdf(torch.tensor([[0.9]])))


def test_draws_have_the_mixture_s_moments_and_correlation():
    # Two far components: outputs of a row must come from the same one.
    mean = torch.tensor([[[-3.0, -3.0]], [[3.0, 3.0]]])
    mixture = GaussianMixture(GaussianMarginals(mean, torch.full_like(mean, 0.25)))
    draws = mixture.rsample((20000,))
    assert draws.shape == (20000, 1, 2)
    torch.testing.assert_close(draws.mean(0), mixture.mean, atol=0.1, rtol=0)
    torch.testing.assert_close(draws.var(0), mixture.variance, atol=0.2, rtol=0)
    assert torch.corrcoef(draws[:, 0].T)[0, 1] > 0.95


def test_draws_carry_gradients_and_repeat_with_a_generator():
    mean = torch.zeros(3, 5, 2, requires_grad=True)
    mixture = GaussianMixture(GaussianMarginals(mean, torch.ones(3, 5, 2)))
    first = mixture.rsample((7,), generator=torch.Generator().manual_seed(1))
    again = mixture.rsample((7,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(first, again)
    first.sum().backward()
    assert mean.grad.sum() == 7 * 5 * 2
    assert mixture.rsample().shape == (5, 2)


def test_antithetic_noise_cancels_and_repeats():
    noise = antithetic_noise(10, 4, seed=3)
    assert_close(noise.mean(0), torch.zeros(4))
    assert torch.equal(noise, antithetic_noise(10, 4, seed=3))
    assert antithetic_noise(7, 4, seed=3).shape == (7, 4)
    assert abs(float(antithetic_noise(4000, 4, seed=0).var()) - 1) < 0.05


def test_bins_of_an_exponential_have_equal_weight_and_the_exact_mean():
    g = GaussianMarginals(torch.randn(3, 2).double(), torch.rand(3, 2).double() + 0.1)
    factor = torch.distributions.LogNormal(g.mean, g.stddev)
    bins = binned_exp(g)
    assert_close(bins.mean(0), factor.mean)
    assert (bins.diff(dim=0) > 0).all()
    share = torch.arange(len(bins) + 1).view(-1, 1, 1) / len(bins)
    edges = factor.icdf(share.double())
    assert ((edges[:-1] < bins) & (bins < edges[1:])).all()

    def parts(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return binned_exp(GaussianMarginals(mean, variance))

    both = [part.requires_grad_() for part in (g.mean, g.variance)]
    assert torch.autograd.gradcheck(parts, both)
    certain = torch.zeros(1, 1, requires_grad=True)
    parts(torch.ones(1, 1), certain).sum().backward()
    assert certain.grad.isfinite().all()


def test_mixtures_are_put_together_by_components_or_by_rows():
    one, other = (
        GaussianMixture(GaussianMarginals(torch.randn(2, 3, 1), torch.rand(2, 3, 1) + 0.1))
        for _ in range(2)
    )
    longer = concatenate([one, other], 1)
    assert_close(longer.mean, torch.cat([one.mean, other.mean]))
    assert_close(longer.variance, torch.cat([one.variance, other.variance]))
    richer = concatenate([one, other], 0)
    assert_close(richer.mean, (one.mean + other.mean) / 2)
    density = torch.stack([one.log_prob(one.mean), other.log_prob(one.mean)]).exp().mean(0)
    assert_close(richer.log_prob(one.mean).exp(), density)


def test_what_cannot_be_a_mixture_is_refused(as_users_run):
    with pytest.raises(ValueError, match=r"shape \(samples, \*batch, outputs\), got \(3,\)"):
        GaussianMixture(GaussianMarginals(torch.zeros(3), torch.ones(3)))
    with pytest.raises(TypeError, match="got Tensor"):
        as_mixture(torch.zeros(3, 1))
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        as_mixture(GaussianMarginals(torch.zeros(3, 1), torch.ones(3, 1))).quantile(1.5)
