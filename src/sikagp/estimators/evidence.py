"""Exact inference for a layer under Gaussian noise, by the evidence itself and not by its bound.

Given rows x that count c times and a target y, the layer is a linear model of whitened weights w,

    y = Phi w + e,        w ~ N(0, I),        e ~ N(0, noise / c)

where the columns of Phi are the basis functions of all features, times the root of their prior
variance, and a one for the bias. With ``A = I + Phi^T C Phi / noise``, ``b = Phi^T C y / noise``

    2 log p(y) = b^T A^-1 b - log det A - y^T C y / noise - sum(c) log(2 pi noise)

A mean-field bound falls short of this by more the smoother the functions are, so what maximises the
bound is too rough. Lengthscales, prior variances and noise hence maximise the evidence. Then q is
the optimum of the bound: its mean ``A^-1 b`` is exact, its variances are ``1 / A_ii``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from sikagp._typing import Float
from sikagp.basis import dense_features
from sikagp.layers import SIKALayer
from sikagp.models.architecture import part_of

MAX_STEPS = 25
# Rows by which hyperparameters are chosen; weights are learned from all.
MAX_ROWS = 1000
# Bounds of the logarithms of lengthscales and of prior variances; below it a term has no effect.
LENGTHSCALES, VARIANCES = (math.log(0.1), math.log(100.0)), (-14.0, 7.0)
NOISES = (-9.0, 5.0)


class Observed(NamedTuple):
    """What a layer is to learn: inputs, targets, and how much each row counts."""

    x: Float[Tensor, "rows features"]
    y: Float[Tensor, "rows targets"]
    weight: Float[Tensor, " rows"]


def thinned(data: Observed) -> Observed:
    """Of many rows a fixed random choice."""
    chosen = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))[:MAX_ROWS]
    return Observed(*(values[chosen] for values in data))


def design(layer: SIKALayer, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows weights"]:
    """Evaluate Phi: the weights feature by feature, the bias last."""
    phi = dense_features(layer.features(x), layer.weight_mean.shape[1])
    phi = (phi * layer.variance.sqrt().unsqueeze(-1)).flatten(1)
    return torch.cat([phi, phi.new_ones(len(phi), 1)], dim=1)


def normal_equations(
    layer: SIKALayer, likelihood: GaussianLikelihood, data: Observed
) -> tuple[Float[Tensor, "targets weights weights"], Float[Tensor, "targets weights"]]:
    """Precision A of the weights and ``b = A m``, target by target."""
    phi, noise = design(layer, data.x), likelihood.noise.view(-1, 1)
    weighted = phi.T * data.weight
    identity = torch.eye(phi.shape[1], dtype=phi.dtype)
    return weighted @ phi / noise.unsqueeze(-1) + identity, (weighted @ data.y).T / noise


def log_evidence(
    layer: SIKALayer, likelihood: GaussianLikelihood, data: Observed
) -> Float[Tensor, ""]:
    """Logarithm of p(y) with all weights integrated out, summed over targets."""
    precision, b = normal_equations(layer, likelihood, data)
    factor, noise = torch.linalg.cholesky(precision), likelihood.noise.flatten()
    whitened = torch.linalg.solve_triangular(factor, b.unsqueeze(-1), upper=False)
    explained = whitened.square().sum() - (data.weight @ data.y.square() / noise).sum()
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum()
    return 0.5 * (explained - log_det - data.weight.sum() * (2 * math.pi * noise).log().sum())


def _assign(parameters: Sequence[Tensor], values: Float[np.ndarray, " numbers"]) -> None:
    """Copy a vector into parameters, which keep their own memory."""
    parts = torch.from_numpy(values).split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))


def maximise_evidence(layer: SIKALayer, likelihood: GaussianLikelihood, data: Observed) -> None:
    """Set lengthscales, prior variances and noise to what makes the targets most probable."""
    noise = list(likelihood.parameters())
    bounds = [VARIANCES] * layer.in_features + [NOISES] * sum(part.numel() for part in noise)
    parameters = [layer.log_variance, *noise]
    if layer.log_lengthscale is not None:
        bounds = [LENGTHSCALES] * layer.in_features + bounds
        parameters = [layer.log_lengthscale, *parameters]

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        _assign(parameters, values)
        with torch.enable_grad():
            value = -log_evidence(layer, likelihood, data)
            slope = torch.autograd.grad(value, parameters)
        return value.item(), parameters_to_vector(slope).numpy()

    layer.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.no_grad():
        start = parameters_to_vector(parameters).numpy()
        options = {"jac": True, "bounds": bounds, "options": {"maxiter": MAX_STEPS}}
        found = minimize(loss, start, method="L-BFGS-B", **options).x
        _assign(parameters, found)
    for parameter in parameters:
        parameter.requires_grad_(False)


@torch.no_grad()
def set_posterior(layer: SIKALayer, likelihood: GaussianLikelihood, data: Observed) -> None:
    """Set q to the maximum of the evidence lower bound, given everything else."""
    precision, b = normal_equations(layer, likelihood, data)
    factor = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve(b.unsqueeze(-1), factor).squeeze(-1).T
    scale = precision.diagonal(dim1=-2, dim2=-1).rsqrt().T
    shape = layer.weight_mean.shape
    layer.weight_mean.copy_(mean[:-1].view(shape))
    layer.weight_scale = scale[:-1].reshape(shape)
    layer.bias_mean.copy_(mean[-1])  # type: ignore[union-attr]
    layer.bias_scale = scale[-1]


def learn_exactly(
    layer: SIKALayer, likelihood: GaussianLikelihood, data: Observed, kept: list[int]
) -> None:
    """Infer some features of a layer anew and switch the others off.

    Hyperparameters start where they are; of many rows a few decide about them.
    """
    part, data = part_of(layer, kept, bias=True), data._replace(x=data.x[:, kept])
    maximise_evidence(part, likelihood, thinned(data))
    set_posterior(part, likelihood, data)
    with torch.no_grad():
        layer.log_variance.fill_(VARIANCES[0])
        layer.weight_mean.zero_()
        layer.weight_scale = 1.0
        for name, parameter in part.named_parameters():
            target = getattr(layer, name)
            target[... if "bias" in name else kept] = parameter
