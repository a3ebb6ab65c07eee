"""Predictions of y: what the likelihood makes of the marginals of f.

Probabilities are averaged, never logits: a prediction is the mixture over a deep model's samples
and over f of the likelihood's own distribution.
"""

import functools
import math

import torch
from gpytorch import likelihoods
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    MixtureSameFamily,
    Poisson,
    StudentT,
)

from sikagp._typing import Float
from sikagp.likelihoods import (
    HeteroscedasticGaussianLikelihood,
    LogisticLikelihood,
    Targets,
    mix_classes,
    quadrature,
    sampled_log_prob,
)
from sikagp.mixtures import GaussianMixture, antithetic_noise, as_mixture, binned_exp
from sikagp.variational import GaussianMarginals


@functools.singledispatch
def predictive(
    likelihood: likelihoods.Likelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> GaussianMixture | Distribution:
    """Distribution of y at each row.

    ===================  ===========================================================
    likelihood           result
    ===================  ===========================================================
    Gaussian             :class:`GaussianMixture` of shape (*batch, targets)
    heteroscedastic      the same, with more components
    Student-t, Poisson   ``MixtureSameFamily`` over (*batch, targets)
    Bernoulli, logistic  ``Bernoulli`` with averaged probabilities (*batch, targets)
    softmax              ``Categorical`` with averaged probabilities (*batch, classes)
    ===================  ===========================================================

    Only the softmax needs sampling: at least ``num_samples`` draws, the same for every row and
    every call.
    """
    raise TypeError(f"no prediction is known for a {type(likelihood).__name__}")


@predictive.register
def _gaussian(
    likelihood: likelihoods.GaussianLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> GaussianMixture:
    mixture = as_mixture(output).components
    noise = likelihood.noise.flatten()
    return GaussianMixture(GaussianMarginals(mixture.mean, mixture.variance + noise))


@predictive.register
def _heteroscedastic(
    likelihood: HeteroscedasticGaussianLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> GaussianMixture:
    marginals = as_mixture(output).components
    mean, log_noise = marginals.mean.chunk(2, dim=-1)
    variance, log_noise_variance = marginals.variance.chunk(2, dim=-1)
    noise = binned_exp(GaussianMarginals(log_noise, log_noise_variance))
    components = GaussianMarginals(
        mean.expand_as(noise).flatten(0, 1), (variance + noise).flatten(0, 1)
    )
    return GaussianMixture(components)


@predictive.register(likelihoods.StudentTLikelihood)
@predictive.register(likelihoods.PoissonLikelihood)
def _quadrature(
    likelihood: likelihoods.StudentTLikelihood | likelihoods.PoissonLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> MixtureSameFamily:
    marginals = as_mixture(output).components
    node, weight = quadrature(marginals.mean.dtype, marginals.mean.device)
    f = marginals.mean.unsqueeze(-1) + marginals.stddev.unsqueeze(-1) * node
    f = f.movedim(0, -2).flatten(-2)
    weights = weight.repeat(len(marginals.mean)).expand(f.shape)
    return MixtureSameFamily(Categorical(weights), _conditional(likelihood, f))


def _conditional(
    likelihood: likelihoods.Likelihood, f: Float[Tensor, "*batch outputs components"]
) -> Distribution:
    if isinstance(likelihood, likelihoods.PoissonLikelihood):
        return Poisson(torch.nn.functional.softplus(f))
    degrees = likelihood.deg_free.reshape(-1, 1)
    return StudentT(degrees, f, likelihood.noise.reshape(-1, 1).sqrt())


@predictive.register
def _bernoulli(
    likelihood: likelihoods.BernoulliLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> Bernoulli:
    marginals = as_mixture(output).components
    link = marginals.mean / (1 + marginals.variance).sqrt()
    return Bernoulli(torch.special.ndtr(link).mean(0))


@predictive.register
def _logistic(
    likelihood: LogisticLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> Bernoulli:
    marginals = as_mixture(output).components
    node, weight = quadrature(marginals.mean.dtype, marginals.mean.device)
    f = marginals.mean.unsqueeze(-1) + marginals.stddev.unsqueeze(-1) * node
    return Bernoulli((f.sigmoid() @ weight).mean(0))


@predictive.register
def _softmax(
    likelihood: likelihoods.SoftmaxLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> Categorical:
    return Categorical(class_probabilities(likelihood, output, num_samples).mean(0))


def class_probabilities(
    likelihood: likelihoods.SoftmaxLikelihood,
    output: GaussianMarginals | GaussianMixture,
    num_samples: int = 100,
) -> Float[Tensor, "samples *batch classes"]:
    """Class probabilities of every draw; their mean predicts, their spread is the model's doubt.

    Draws are the same for all rows and repeat at every call.
    """
    marginals = as_mixture(output).components
    components, *batch, outputs = marginals.mean.shape
    draws = -(-num_samples // components)
    noise = antithetic_noise(draws, components * outputs, seed=0).to(marginals.mean)
    noise = noise.view(draws, components, *[1] * len(batch), outputs)
    f = torch.addcmul(marginals.mean, marginals.stddev, noise)
    return mix_classes(likelihood, f).softmax(-1).flatten(0, 1)


def log_marginal(
    likelihood: likelihoods.Likelihood, output: GaussianMarginals | GaussianMixture, y: Targets
) -> Float[Tensor, " rows"]:
    """Log density of y under the prediction, one number per row; differentiable.

    For the softmax it is estimated with fresh draws at every call.
    """
    if isinstance(likelihood, likelihoods.SoftmaxLikelihood):
        log_prob = sampled_log_prob(likelihood, as_mixture(output).components, y).flatten(0, 1)
        return log_prob.logsumexp(0) - math.log(len(log_prob))
    return log_density(predictive(likelihood, output), y)


def log_density(prediction: GaussianMixture | Distribution, y: Targets) -> Float[Tensor, " rows"]:
    """Log density (or probability) of y under its prediction, jointly over the targets of a row."""
    if isinstance(prediction, Categorical):
        return prediction.log_prob(y)
    if y.ndim < prediction.mean.ndim:
        y = y.unsqueeze(-1)
    if isinstance(prediction, GaussianMixture):
        return prediction.log_prob(y)
    return prediction.log_prob(y.to(prediction.mean.dtype)).sum(-1)
