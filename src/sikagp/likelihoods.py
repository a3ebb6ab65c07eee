"""Likelihoods: GPyTorch's, two more of the same kind, and their expectations under marginals.

    expected_log_prob = E_q(f) [ log p(y | f) ],        one number per row

in closed form for Gaussian noise, by Gauss-Hermite quadrature where y depends on one output, and
by Monte Carlo for the softmax. Any other likelihood of GPyTorch is asked itself.
"""

import functools
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gpytorch import likelihoods, settings
from gpytorch.likelihoods.likelihood import _OneDimensionalLikelihood
from torch import Tensor

from sikagp._typing import Float, Shaped
from sikagp.integrations.gpytorch import outputs_as_batch, to_gpytorch
from sikagp.validation import check_choice
from sikagp.variational import GaussianMarginals

QUADRATURE_POINTS = 20
_LOG_2PI = math.log(2 * math.pi)

# Numbers or labels, (rows, targets) or, where there is one target, (rows,).
Targets = Shaped[Tensor, " rows"] | Shaped[Tensor, "rows targets"]


class HeteroscedasticGaussianLikelihood(likelihoods.Likelihood):
    """Gaussian noise that depends on the input: two outputs per target, f and g.

    .. math:: y = f(x) + \\epsilon, \\qquad \\epsilon \\sim N(0, \\exp g(x))

    The first half of a model's outputs are the means f, the second half the log variances g.
    """

    def forward(
        self, function_samples: Float[Tensor, "*batch outputs"], *args: Any, **kwargs: Any
    ) -> Any:
        """Distribution of y given outputs of shape (*batch, 2 * targets)."""
        mean, log_noise = function_samples.chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, (0.5 * log_noise).exp())
        return torch.distributions.Independent(normal, 1)

    def expected_log_prob(
        self, observations: Targets, function_dist: Any, *args: Any, **kwargs: Any
    ) -> Float[Tensor, "*rows"]:
        """Closed form: ``E exp(-g) = exp(-mean + variance / 2)``."""
        mean, log_noise = function_dist.mean.chunk(2, dim=-1)
        variance, log_noise_variance = function_dist.variance.chunk(2, dim=-1)
        precision = torch.exp(0.5 * log_noise_variance - log_noise)
        error = (_column(observations, mean) - mean).square() + variance
        return -0.5 * (error * precision + log_noise + _LOG_2PI).sum(-1)


class LogisticLikelihood(_OneDimensionalLikelihood):
    """Two classes with a logistic link, where GPyTorch's Bernoulli likelihood has a probit.

    .. math:: p(y = 1) = 1 / (1 + \\exp(-f(x)))

    Its tails are heavier, so a wrong label weighs less.
    """

    def forward(
        self, function_samples: Float[Tensor, "*batch outputs"], *args: Any, **kwargs: Any
    ) -> torch.distributions.Bernoulli:
        """Distribution of y given f."""
        return torch.distributions.Bernoulli(logits=function_samples)


def build_likelihood(name: str, num_targets: int) -> likelihoods.Likelihood:
    """Make a likelihood by name, for that many targets (or classes)."""
    batch_shape = torch.Size([num_targets])
    makers = {
        "gaussian": lambda: likelihoods.GaussianLikelihood(batch_shape=batch_shape),
        "heteroscedastic": HeteroscedasticGaussianLikelihood,
        "student_t": lambda: likelihoods.StudentTLikelihood(batch_shape=batch_shape),
        "bernoulli": likelihoods.BernoulliLikelihood,
        "logistic": LogisticLikelihood,
        "poisson": likelihoods.PoissonLikelihood,
        "softmax": lambda: likelihoods.SoftmaxLikelihood(
            num_classes=num_targets, mixing_weights=False
        ),
    }
    return makers[check_choice("likelihood", name, makers)]()


def num_outputs(name: str, num_targets: int) -> int:
    """Number of outputs that a model needs for a named likelihood."""
    return 2 * num_targets if name == "heteroscedastic" else num_targets


@functools.singledispatch
def expected_log_prob(
    likelihood: likelihoods.Likelihood, marginals: GaussianMarginals, y: Targets
) -> Float[Tensor, "*samples rows"]:
    """Expected log likelihood of each row, given marginals of shape (*samples, rows, outputs).

    Targets have shape (rows,), or (rows, targets) if there are several.
    """
    if isinstance(likelihood, _OneDimensionalLikelihood):
        target = _column(y, marginals.mean)
        return likelihood.expected_log_prob(target.mT, outputs_as_batch(marginals)).sum(-2)
    target = y.squeeze(-1) if marginals.mean.shape[-1] == y.shape[-1] == 1 else y
    return likelihood.expected_log_prob(target, to_gpytorch(marginals))


@expected_log_prob.register
def _gaussian(
    likelihood: likelihoods.GaussianLikelihood, marginals: GaussianMarginals, y: Targets
) -> Float[Tensor, "*samples rows"]:
    noise = likelihood.noise.flatten()
    error = (_column(y, marginals.mean) - marginals.mean).square() + marginals.variance
    return -0.5 * (error / noise + noise.log() + _LOG_2PI).sum(-1)


@expected_log_prob.register
def _heteroscedastic(
    likelihood: HeteroscedasticGaussianLikelihood, marginals: GaussianMarginals, y: Targets
) -> Float[Tensor, "*samples rows"]:
    return likelihood.expected_log_prob(y, marginals)


@expected_log_prob.register(likelihoods.StudentTLikelihood)
@expected_log_prob.register(likelihoods.BernoulliLikelihood)
@expected_log_prob.register(LogisticLikelihood)
@expected_log_prob.register(likelihoods.PoissonLikelihood)
def _quadrature(
    likelihood: likelihoods.Likelihood, marginals: GaussianMarginals, y: Targets
) -> Float[Tensor, "*samples rows"]:
    node, weight = quadrature(marginals.mean.dtype, marginals.mean.device)
    f = marginals.mean + marginals.stddev * node.view(-1, *[1] * marginals.mean.ndim)
    log_prob = conditional_log_prob(likelihood, f, _column(y, marginals.mean))
    return torch.tensordot(weight, log_prob.sum(-1), dims=1)


@expected_log_prob.register
def _softmax(
    likelihood: likelihoods.SoftmaxLikelihood, marginals: GaussianMarginals, y: Targets
) -> Float[Tensor, "*samples rows"]:
    return sampled_log_prob(likelihood, marginals, y).mean(0)


def sampled_log_prob(
    likelihood: likelihoods.SoftmaxLikelihood, marginals: GaussianMarginals, y: Targets
) -> Float[Tensor, "draws *samples rows"]:
    """``log p(y | f)`` at draws of f, together at least GPyTorch's number of likelihood samples."""
    components = marginals.mean[..., 0, 0].numel()
    draws = -(-settings.num_likelihood_samples.value() // components)
    logits = mix_classes(likelihood, marginals.rsample((draws,)))
    # With rows last, processors sum the exponentials of several rows at a time.
    by_class = logits.mT.flatten(0, -3).contiguous()
    target = y.expand(logits.shape[:-1])
    loss = F.cross_entropy(by_class, target.flatten(0, -2), reduction="none")
    return -loss.view(target.shape)


def mix_classes(
    likelihood: likelihoods.SoftmaxLikelihood, f: Float[Tensor, "*batch outputs"]
) -> Float[Tensor, "*batch classes"]:
    """Logits of a softmax likelihood, which may mix the outputs linearly."""
    return f if likelihood.mixing_weights is None else f @ likelihood.mixing_weights.mT


@functools.singledispatch
def conditional_log_prob(
    likelihood: likelihoods.Likelihood, f: Float[Tensor, "*samples rows outputs"], y: Targets
) -> Float[Tensor, "*samples rows outputs"]:
    """``log p(y | f)`` where every target depends on its own output."""
    return likelihood(f).log_prob(y)


@conditional_log_prob.register
def _student_t(
    likelihood: likelihoods.StudentTLikelihood,
    f: Float[Tensor, "*samples rows outputs"],
    y: Shaped[Tensor, "rows outputs"],
) -> Float[Tensor, "*samples rows outputs"]:
    degrees, noise = likelihood.deg_free.flatten(), likelihood.noise.flatten()
    half = 0.5 * (degrees + 1)
    constant = torch.lgamma(half) - torch.lgamma(0.5 * degrees)
    constant = constant - 0.5 * torch.log(math.pi * degrees * noise)
    return constant - half * torch.log1p((y - f).square() / (degrees * noise))


@conditional_log_prob.register
def _bernoulli(
    likelihood: likelihoods.BernoulliLikelihood,
    f: Float[Tensor, "*samples rows outputs"],
    y: Shaped[Tensor, "rows outputs"],
) -> Float[Tensor, "*samples rows outputs"]:
    return torch.special.log_ndtr(torch.where(y > 0, f, -f))


@conditional_log_prob.register
def _logistic(
    likelihood: LogisticLikelihood,
    f: Float[Tensor, "*samples rows outputs"],
    y: Shaped[Tensor, "rows outputs"],
) -> Float[Tensor, "*samples rows outputs"]:
    return F.logsigmoid(torch.where(y > 0, f, -f))


@conditional_log_prob.register
def _poisson(
    likelihood: likelihoods.PoissonLikelihood,
    f: Float[Tensor, "*samples rows outputs"],
    y: Shaped[Tensor, "rows outputs"],
) -> Float[Tensor, "*samples rows outputs"]:
    rate = F.softplus(f).clamp_min(torch.finfo(f.dtype).tiny)
    return y * rate.log() - rate - torch.lgamma(y + 1)


@functools.cache
def _hermite(points: int) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    node, weight = np.polynomial.hermite_e.hermegauss(points)
    return torch.from_numpy(node), torch.from_numpy(weight / weight.sum())


def quadrature(
    dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes and weights of Gauss-Hermite quadrature for a standard normal."""
    node, weight = _hermite(QUADRATURE_POINTS)
    return node.to(device, dtype), weight.to(device, dtype)


def _column(
    y: Targets, mean: Float[Tensor, "*samples rows targets"]
) -> Shaped[Tensor, "rows targets"]:
    """Targets as (rows, targets), whether or not a single target came with its dimension."""
    if y.ndim == 1 and mean.shape[-1] == 1:
        y = y.unsqueeze(-1)
    if y.shape != mean.shape[-2:]:
        raise ValueError(
            f"expected targets of shape {tuple(mean.shape[-2:])}, got {tuple(y.shape)}"
        )
    return y
