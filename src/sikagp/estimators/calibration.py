"""Noise and temperature of trained models, set by rows that were held out.

While training, every row draws its hidden units anew, and the evidence lower bound takes the spread
of these draws for noise. A prediction is a mixture over draws, so it would count that spread twice
and its intervals would be too wide. Hence the noise is set again, under the prediction itself:

    noise = argmax sum over rows of log p(y | x),        target by target

over rows that were held out, if there are enough: those learned from would look too certain.

Class probabilities get a temperature T, for they come out too close to even where labels are clean.
Rows that are all predicted well would ask for T = 0, however few they are, so it has a prior:

    T = argmax sum over rows of log p_T(y | x) + log N(log T | 0, SPREAD^2)
"""

import math

import torch
from gpytorch.likelihoods import GaussianLikelihood
from scipy.optimize import minimize_scalar
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.calibration import temper
from sikagp.mixtures import GaussianMixture, as_mixture
from sikagp.models.predictor import Predictor
from sikagp.variational import GaussianMarginals

# Share of the rows that is held out for this, and from how many rows on.
SHARE, ENOUGH = 0.1, 500
MAX_ROWS = 2000
# Standardised targets have unit variance; GPyTorch keeps noise above the lower bound.
SMALLEST, LARGEST = 1.01e-4, 10.0
# Deviation of the logarithm of a temperature under its prior, and the most that is looked at.
SPREAD, MOST = 0.5, 2.0


def num_held_out(rows: int) -> int:
    """Rows to hold out of so many, for noise, temperature and choices."""
    return 0 if rows < ENOUGH else min(int(SHARE * rows), MAX_ROWS)


@torch.no_grad()
def refit_noise(
    member: Predictor,
    x: Float[Tensor, "rows features"],
    y: Float[Tensor, "rows targets"],
    weight: Float[Tensor, " rows"],
) -> None:
    """Give a Gaussian likelihood the noise under which the rows are most probable.

    Of many rows a fixed random choice is taken. Other likelihoods are left alone.
    """
    if not isinstance(member.likelihood, GaussianLikelihood):
        return
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:MAX_ROWS]
    x, y, weight = x[chosen], y[chosen], weight[chosen]
    f = as_mixture(member.model(x)).components
    noise = [
        _most_probable(f.mean[..., t : t + 1], f.variance[..., t : t + 1], y[:, t], weight)
        for t in range(y.shape[1])
    ]
    member.likelihood.noise = torch.tensor(noise).to(member.likelihood.noise).view(-1, 1)


def _most_probable(mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor) -> float:
    """Noise of one target, given draws of shape (samples, rows, 1)."""

    def loss(log_noise: float) -> float:
        mixture = GaussianMixture(GaussianMarginals(mean, variance + math.exp(log_noise)))
        return -float(weight @ mixture.log_prob(y.unsqueeze(-1)))

    bounds = math.log(SMALLEST), math.log(LARGEST)
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


@torch.no_grad()
def held_out_temperature(
    probs: Float[Tensor, "rows classes"],
    target: Int[Tensor, " rows"],
    weight: Float[Tensor, " rows"],
) -> float:
    """Most probable temperature given weighted rows that were not learned from."""

    def loss(log_temperature: float) -> float:
        log_probs = temper(probs, math.exp(log_temperature)).gather(-1, target.unsqueeze(-1))
        return (log_temperature / SPREAD) ** 2 / 2 - float(weight @ log_probs.squeeze(-1))

    return math.exp(minimize_scalar(loss, bounds=(-MOST, MOST), method="bounded").x)
