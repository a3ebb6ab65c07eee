"""What sikagp is compared with: the same layer, evaluated in other ways.

All start from the parameters of a :class:`SIKALayer` and give the moments of the same function,
without the residual. Dense features are scattered from sparse ones, the cheapest way to get them.

- *dense, local*: one product for the mean, one for the variance; the strong baseline.
- *dense, products only*: the same with features given; no dense method can be faster.
- *dense BNN*: weights drawn anew for every sample and every row, times dense features, as the paper
  times it.
- *dense BNN, shared*: S weight matrices shared by all rows, through one product.
- *gather*: the paper's sparse formulation; active weights are gathered, drawn anew for every sample
  and row, multiplied and summed.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.features import LaplaceFeatures
from sikagp import SIKALayer

Moments = tuple[Tensor, Tensor]


class Weights(NamedTuple):
    """Mean and deviation of weights (features * weights, outputs) and of the bias (outputs,)."""

    mean: Tensor
    deviation: Tensor
    bias_mean: Tensor
    bias_deviation: Tensor


def current_weights(layer: SIKALayer) -> Weights:
    """Weights as a training step sees them: differentiable, with positive deviations."""
    shape = layer.weight_mean.shape[0] * layer.weight_mean.shape[1], -1
    mean, raw = layer.weight_mean.view(shape), layer.raw_weight_scale.view(shape)
    bias = layer.bias_mean.detach(), layer.bias_scale.detach()
    return Weights(mean, F.softplus(raw), *bias)


@torch.no_grad()
def fixed_weights(layer: SIKALayer) -> Weights:
    """Weights as prediction sees them: computed once."""
    return Weights(*(part.detach() for part in current_weights(layer)))


def dense_moments(phi: Tensor, weights: Weights) -> Moments:
    """Mean and variance, shape (rows, outputs), by local reparameterisation."""
    mean = torch.addmm(weights.bias_mean, phi, weights.mean)
    bias_variance = weights.bias_deviation.square()
    return mean, torch.addmm(bias_variance, phi.square(), weights.deviation.square())


class DenseLocal:
    """Prediction by one product for the mean and one for the variance.

    Features and their squares are written into buffers that are kept between calls: asking the
    system for fresh memory would take longer than the products.
    """

    def __init__(self, layer: SIKALayer) -> None:
        self.features, self.weights = LaplaceFeatures(layer), fixed_weights(layer)
        self.variance = self.weights.deviation.square()
        self.bias_variance = self.weights.bias_deviation.square()
        self.phi = self.squared = self.variance.new_empty(0)

    def __call__(self, x: Tensor) -> Moments:
        """Mean and variance, shape (rows, outputs)."""
        values, index = self.features.active(x)
        if len(self.phi) != len(x):
            self.phi = values.new_empty(*values.shape[:-1], self.features.num_weights)
            self.squared = torch.empty_like(self.phi)
        self.phi.zero_().scatter_(-1, index, values)
        torch.square(self.phi, out=self.squared)
        return self.products(self.phi.flatten(1), self.squared.flatten(1))

    def products(self, phi: Tensor, squared: Tensor) -> Moments:
        """Mean and variance from given features and their squares."""
        mean = torch.addmm(self.weights.bias_mean, phi, self.weights.mean)
        return mean, torch.addmm(self.bias_variance, squared, self.variance)


class Drawn:
    """Prediction by draws of weights: one of the functions below, with everything prepared.

    Called with inputs (rows, features) or, if they differ between samples, (samples, rows,
    features); returns draws of shape (samples, rows, outputs).
    """

    def __init__(self, layer: SIKALayer, num_samples: int, draw: "Draw") -> None:
        self.features, self.weights = LaplaceFeatures(layer), fixed_weights(layer)
        self.num_samples, self.draw = num_samples, draw

    def __call__(self, x: Tensor) -> Tensor:
        """Draw all samples for shared inputs, or one for each set of inputs."""
        if x.ndim == 2:
            return self.draw(self.features, self.weights, x, self.num_samples)
        return torch.cat([self.draw(self.features, self.weights, rows, 1) for rows in x])


def noisy(mean: Tensor, deviation: Tensor, *shape: int) -> Tensor:
    """Draw Gaussians of the given shape, to which mean and deviation are broadcast."""
    noise = torch.randn(shape, device=mean.device, dtype=mean.dtype)
    return torch.addcmul(mean, deviation, noise)


def noisy_bias(weights: Weights, num_samples: int) -> Tensor:
    """Draw biases, shape (samples, 1, outputs)."""
    mean, deviation = weights.bias_mean, weights.bias_deviation
    return noisy(mean, deviation, num_samples, 1, len(mean))


def rowwise(phi: Tensor, mean: Tensor, deviation: Tensor, num_samples: int) -> Tensor:
    """Multiply each row with weights drawn for it, one sample after the other.

    Features have shape (rows, width), mean and deviation (width, outputs) or one such matrix for
    every row.
    """
    shape = *phi.shape, mean.shape[-1]
    samples = [
        torch.bmm(phi.unsqueeze(1), noisy(mean, deviation, *shape)).squeeze(1)
        for _ in range(num_samples)
    ]
    return torch.stack(samples)


def dense_network(features: LaplaceFeatures, weights: Weights, x: Tensor, samples: int) -> Tensor:
    """Weights are drawn for every sample and row: M normals for each feature and output."""
    draws = rowwise(features.dense(x), weights.mean, weights.deviation, samples)
    return draws + noisy_bias(weights, samples)


def shared_network(features: LaplaceFeatures, weights: Weights, x: Tensor, samples: int) -> Tensor:
    """S weight matrices, shared by all rows and laid side by side for one product."""
    mean, deviation = weights.mean.unsqueeze(1), weights.deviation.unsqueeze(1)
    width, _, outputs = mean.shape
    matrices = noisy(mean, deviation, width, samples, outputs).flatten(1)
    draws = (features.dense(x) @ matrices).view(len(x), samples, outputs).movedim(1, 0)
    return draws + noisy_bias(weights, samples)


def gather(features: LaplaceFeatures, weights: Weights, x: Tensor, samples: int) -> Tensor:
    """Only active weights are gathered and drawn: L + 2 normals for each feature and output."""
    values, index = features.active(x)
    offset = torch.arange(x.shape[-1], device=x.device).unsqueeze(-1) * features.num_weights
    chosen = (index + offset).flatten(1)
    draws = rowwise(values.flatten(1), weights.mean[chosen], weights.deviation[chosen], samples)
    return draws + noisy_bias(weights, samples)


Draw = Callable[[LaplaceFeatures, Weights, Tensor, int], Tensor]
