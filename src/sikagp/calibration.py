r"""Calibration after training: one number, fitted on rows that were held out.

Classes get a temperature,

.. math:: p_T(c) \propto p(c)^{1/T}

which changes no ranking of the classes of a row. Quantities get a width: every deviation from the
predictive mean is multiplied by it, which changes no mean. Both work on predictions of any kind:
those of an ensemble or of a Gaussian process are averaged first and calibrated then.
"""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp._typing import Float, Int
from sikagp.mixtures import GaussianMixture
from sikagp.validation import check_positive
from sikagp.variational import GaussianMarginals

_LOG_RANGE = 7.0
_BISECTIONS = 50


def temper(
    probs: Float[Tensor, "*batch classes"], temperature: float
) -> Float[Tensor, "*batch classes"]:
    """Logarithms of tempered class probabilities.

    >>> temper(torch.tensor([0.8, 0.2]), 0.5).exp()
    tensor([0.9412, 0.0588])
    """
    check_positive("temperature", temperature, ())
    log_probs = probs.clamp_min(torch.finfo(probs.dtype).tiny).log()
    return (log_probs / temperature).log_softmax(-1)


@torch.no_grad()
def fit_temperature(probs: Float[Tensor, "rows classes"], target: Int[Tensor, " rows"]) -> float:
    """Temperature with the lowest negative log likelihood on held-out rows.

    That is convex in ``b = 1 / T``, and its slope, the expected minus the observed log
    probability, is bisected over log b. Rows that are all classified with room to spare would
    have T = 0, and hopeless ones T = infinity; both ends are cut off.
    """
    _check_rows("a temperature", target)
    log_probs = probs.double().clamp_min(torch.finfo(probs.dtype).tiny).log()
    observed = log_probs.gather(-1, target.unsqueeze(-1)).mean()
    low, high = -_LOG_RANGE, _LOG_RANGE
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        tempered = (torch.tensor(middle).exp() * log_probs).softmax(-1)
        if (tempered * log_probs).sum(-1).mean() < observed:
            low = middle
        else:
            high = middle
    return float(torch.tensor(-(low + high) / 2).exp())


@torch.no_grad()
def tempered_layer(
    layer: nn.Linear, features: Float[Tensor, "rows features"], target: Int[Tensor, " rows"]
) -> nn.Linear:
    """Copy of a network's last layer whose softmax has the temperature that fits held-out rows.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.eye_(layer.weight)  # sure of itself by 8 to 1, and right in 3 of 4 rows
    >>> features, target = torch.tensor([[2.0794, 0.0]]).expand(4, 2), torch.tensor([0, 0, 0, 1])
    >>> cooler = tempered_layer(layer, features, target)
    >>> cooler(features[:1]).softmax(-1).detach()
    tensor([[0.7500, 0.2500]])
    """
    temperature = fit_temperature(layer(features).double().softmax(-1), target)
    cooler = copy.deepcopy(layer)
    for parameter in cooler.parameters():
        parameter.div_(temperature)
    return cooler


@torch.no_grad()
def fit_factor(
    logits: Float[Tensor, "samples rows classes"], target: Int[Tensor, " rows"]
) -> float:
    """Factor of all logits with the lowest negative log likelihood on held-out rows.

    The prediction is the average of the samples' softmax, so with a single sample the factor is
    one over the temperature.

    >>> logits = torch.tensor([[[2.0794, 0.0]]]).expand(1, 4, 2)  # sure of itself by 8 to 1
    >>> round(fit_factor(logits, torch.tensor([0, 0, 0, 1])), 3)
    0.528
    """
    _check_rows("a factor", target)
    logits = logits.double()

    def loss(log_factor: float) -> float:
        by_sample = (math.exp(log_factor) * logits).log_softmax(-1)
        return float(F.nll_loss(by_sample.logsumexp(0), target))

    return _lowest(loss, _LOG_RANGE)


def widen(prediction: GaussianMixture, width: float) -> GaussianMixture:
    """Multiply all deviations from the mixture's mean.

    >>> normal = GaussianMarginals(torch.zeros(1, 3, 1), torch.ones(1, 3, 1))
    >>> widen(GaussianMixture(normal), 2.0).stddev.flatten()
    tensor([2., 2., 2.])
    """
    check_positive("width", width, ())
    mean, components = prediction.mean, prediction.components
    shifted = mean + width * (components.mean - mean)
    return GaussianMixture(GaussianMarginals(shifted, width**2 * components.variance))


@torch.no_grad()
def fit_width(prediction: GaussianMixture, target: Float[Tensor, "rows outputs"]) -> float:
    """Width with the highest density of held-out targets."""
    _check_rows("a width", target)

    def loss(log_width: float) -> float:
        return -float(widen(prediction, math.exp(log_width)).log_prob(target).mean())

    return _lowest(loss, _LOG_RANGE / 2)


def _check_rows(what: str, target: Tensor) -> None:
    if len(target) == 0:
        raise ValueError(f"{what} is fitted on at least one row, got none")


def _lowest(loss: Callable[[float], float], log_range: float) -> float:
    """Positive number at whose logarithm the loss is lowest."""
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(loss, bounds=(-log_range, log_range), method="bounded")
    return math.exp(best.x)
