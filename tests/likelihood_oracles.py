"""Likelihoods by hand, and expectations under Gaussians by brute force."""

import torch
from gpytorch import likelihoods
from torch.distributions import Bernoulli, Distribution, Normal, Poisson, StudentT

from sikagp.likelihoods import build_likelihood
from sikagp.variational import GaussianMarginals

ROWS, TARGETS, SAMPLES = 5, 2, 3


def marginals(outputs: int, *, samples: int = SAMPLES) -> GaussianMarginals:
    mean = torch.randn(samples, ROWS, outputs, dtype=torch.float64)
    return GaussianMarginals(mean, 0.1 + 0.5 * torch.rand_like(mean))


def perturbed(name: str, targets: int = TARGETS) -> likelihoods.Likelihood:
    """Return a likelihood whose parameters differ between targets."""
    likelihood = build_likelihood(name, targets).double()
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.add_(torch.randn_like(parameter))
    return likelihood


def conditional(name: str, likelihood, f: torch.Tensor) -> Distribution:
    """p(y | f) by hand; f has shape (..., rows, targets)."""
    if name == "gaussian":
        return Normal(f, likelihood.noise.flatten().sqrt())
    if name == "student_t":
        return StudentT(likelihood.deg_free.flatten(), f, likelihood.noise.flatten().sqrt())
    if name == "bernoulli":
        return Bernoulli(Normal(0.0, 1.0).cdf(f))
    if name == "logistic":
        return Bernoulli(1 / (1 + torch.exp(-f)))
    return Poisson(torch.nn.functional.softplus(f))


def integrate(function, marginal: GaussianMarginals) -> torch.Tensor:
    """E[function(f)] under each Gaussian by the trapezoid rule."""
    node = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    density = Normal(0.0, 1.0).log_prob(node).exp()
    f = marginal.mean + marginal.variance.sqrt() * node.view(-1, 1, 1, 1)
    return torch.trapezoid(function(f) * density.view(-1, 1, 1, 1), node, dim=0)


def targets_for(name: str) -> torch.Tensor:
    y = torch.randn(ROWS, TARGETS, dtype=torch.float64)
    labels = (y > 0).double()
    others = {"bernoulli": labels, "logistic": labels, "poisson": y.abs().mul(3).round()}
    return others.get(name, y)
