"""Gaussian noise for methods that have none of their own, from what they miss on held-out rows."""

from torch import Tensor

from sikagp._typing import Float
from sikagp.mixtures import GaussianMixture
from sikagp.variational import GaussianMarginals

_ITERATIONS = 100
_SMALLEST = 1e-6


def residual_noise(
    mean: Float[Tensor, "samples rows targets"], y: Float[Tensor, "rows targets"]
) -> Float[Tensor, " targets"]:
    """Variance of the noise under which held-out targets are most likely.

    With one sample it is the mean squared residual. With several, each row is explained by the
    samples in proportion to their likelihood, and the variance follows by expectation-maximisation.
    """
    squared = (y - mean).square()
    noise = squared.mean((0, 1)).clamp_min(_SMALLEST)
    for _ in range(_ITERATIONS if len(mean) > 1 else 0):
        share = (-0.5 * squared / noise).softmax(0)
        noise = (share * squared).sum(0).mean(0).clamp_min(_SMALLEST)
    return noise


def with_noise(
    mean: Float[Tensor, "samples rows targets"], noise: Float[Tensor, " targets"]
) -> GaussianMixture:
    """Mixture of predictions that share one noise."""
    return GaussianMixture(GaussianMarginals(mean, noise.expand_as(mean)))


def as_column(y: Float[Tensor, "rows *targets"]) -> Float[Tensor, "rows targets"]:
    """Targets with a dimension of their own."""
    return y.unsqueeze(-1) if y.ndim == 1 else y
