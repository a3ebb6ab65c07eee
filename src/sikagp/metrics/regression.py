r"""Scores of predictive distributions of real numbers, averaged over rows and outputs.

The prediction for a target y is a Gaussian :math:`N(\mu, \sigma^2)` or an equally weighted mixture
:math:`\frac1S \sum_s N(\mu_s, \sigma_s^2)`, whose components lie along the first dimension.
Variances are those of the target: they include the noise.
"""

import math

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.metrics.validation import (
    check_floating,
    check_gaussians,
    check_mixtures,
    check_same_shape,
)
from sikagp.precision import at_least_float32
from sikagp.validation import check_fraction


def rmse(mean: Float[Tensor, "*shape"], target: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    r"""Root mean squared error :math:`\sqrt{\frac1T \sum_t (y_t - \mu_t)^2}`."""
    check_floating(mean=mean, target=target)
    check_same_shape(mean=mean, target=target)
    return (at_least_float32(mean) - at_least_float32(target)).square().mean().sqrt()


def nlpd(
    mean: Float[Tensor, "*shape"],
    variance: Float[Tensor, "*shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    r"""Negative log predictive density of a Gaussian, in nats.

    .. math:: \frac1T \sum_t \frac{(y_t - \mu_t)^2}{2 \sigma_t^2} + \frac12 \log 2\pi\sigma_t^2
    """
    check_gaussians(mean, variance, target)
    return -_log_density(mean, variance, target).mean()


def mixture_nlpd(
    means: Float[Tensor, " components *shape"],
    variances: Float[Tensor, " components *shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    r"""Negative log predictive density of a mixture, exact.

    .. math:: -\frac1T \sum_t \log \frac1S \sum_s N(y_t; \mu_{st}, \sigma_{st}^2)
    """
    check_mixtures(means, variances, target)
    joint = _log_density(means, variances, target).logsumexp(0)
    return (math.log(len(means)) - joint).mean()


def mixture_moments(
    means: Float[Tensor, " components *shape"], variances: Float[Tensor, " components *shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    r"""Mean and variance of a mixture, the Gaussian that the paper scores.

    .. math:: \mu = \frac1S \sum_s \mu_s, \qquad
              \sigma^2 = \frac1S \sum_s \sigma_s^2 + (\mu_s - \mu)^2
    """
    check_floating(means=means, variances=variances)
    check_same_shape(means=means, variances=variances)
    means, variances = at_least_float32(means), at_least_float32(variances)
    mean = means.mean(0)
    return mean, variances.mean(0) + (means - mean).square().mean(0)


def pit(
    mean: Float[Tensor, "*shape"],
    variance: Float[Tensor, "*shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    r"""Probability integral transform :math:`F_t(y_t)`: uniform on [0, 1] if calibrated."""
    check_gaussians(mean, variance, target)
    return 0.5 + 0.5 * _erf(mean, variance, target)


def mixture_pit(
    means: Float[Tensor, " components *shape"],
    variances: Float[Tensor, " components *shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    r"""Probability integral transform of a mixture, :math:`\frac1S \sum_s F_{st}(y_t)`."""
    check_mixtures(means, variances, target)
    return 0.5 + 0.5 * _erf(means, variances, target).mean(0)


def covered(pit: Float[Tensor, "*shape"], level: float) -> Float[Tensor, ""]:
    r"""Share of targets between the quantiles :math:`(1 \mp \text{level}) / 2`, from their PIT.

    A target lies between two quantiles exactly when its PIT lies between their probabilities, so
    no quantile has to be found.
    """
    inside = (2 * pit - 1).abs() <= check_fraction("level", level)
    # A NaN is no number inside or outside; the share of a diverged model is NaN as well.
    return torch.where(pit.isnan(), pit, inside.to(pit.dtype)).mean()


def coverage(
    mean: Float[Tensor, "*shape"],
    variance: Float[Tensor, "*shape"],
    target: Float[Tensor, "*shape"],
    *,
    level: float = 0.95,
) -> Float[Tensor, ""]:
    r"""Share of targets inside the central interval :math:`\mu \pm \sigma \Phi^{-1}((1+p)/2)`."""
    return covered(pit(mean, variance, target), level)


def mixture_coverage(
    means: Float[Tensor, " components *shape"],
    variances: Float[Tensor, " components *shape"],
    target: Float[Tensor, "*shape"],
    *,
    level: float = 0.95,
) -> Float[Tensor, ""]:
    """Share of targets between the mixture's own quantiles (1 - level) / 2 and (1 + level) / 2."""
    return covered(mixture_pit(means, variances, target), level)


def crps(
    mean: Float[Tensor, "*shape"],
    variance: Float[Tensor, "*shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    r"""Continuous ranked probability score of a Gaussian, in the target's units.

    With :math:`A(\mu, \sigma^2) = E|Z|` for :math:`Z \sim N(\mu, \sigma^2)`,

    .. math:: \mathrm{CRPS} = E|Y - y| - \tfrac12 E|Y - Y'|
              = A(y - \mu, \sigma^2) - \tfrac12 A(0, 2\sigma^2).
    """
    check_gaussians(mean, variance, target)
    return mixture_crps(mean.unsqueeze(0), variance.unsqueeze(0), target)


def mixture_crps(
    means: Float[Tensor, " components *shape"],
    variances: Float[Tensor, " components *shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    r"""Continuous ranked probability score of a mixture, exact.

    .. math:: \frac1S \sum_s A(y - \mu_s, \sigma_s^2)
              - \frac1{2 S^2} \sum_{rs} A(\mu_r - \mu_s, \sigma_r^2 + \sigma_s^2)
    """
    check_mixtures(means, variances, target)
    means, variances = at_least_float32(means), at_least_float32(variances)
    error = _mean_absolute(target - means, variances).mean(0)
    # One component against all at a time: memory grows with S, not with S^2.
    spread = torch.zeros_like(error)
    for mean, variance in zip(means, variances, strict=True):
        spread = spread + _mean_absolute(mean - means, variance + variances).mean(0)
    return (error - 0.5 * spread / len(means)).mean()


def _log_density(
    mean: Float[Tensor, "*components_and_shape"],
    variance: Float[Tensor, "*components_and_shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, "*components_and_shape"]:
    mean, variance = at_least_float32(mean), at_least_float32(variance)
    return -0.5 * ((target - mean).square() / variance + torch.log(2 * math.pi * variance))


def _erf(
    mean: Float[Tensor, "*components_and_shape"],
    variance: Float[Tensor, "*components_and_shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, "*components_and_shape"]:
    """``2 F(y) - 1``."""
    mean, variance = at_least_float32(mean), at_least_float32(variance)
    return torch.erf((target - mean) / (2 * variance).sqrt())


def _mean_absolute(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """``E|Z|`` for Z ~ N(mean, variance)."""
    scale = (2 * variance).sqrt()
    z = mean / scale
    return scale * torch.exp(-z.square()) / math.sqrt(math.pi) + mean * torch.erf(z)
