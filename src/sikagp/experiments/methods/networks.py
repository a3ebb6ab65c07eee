"""Deterministic networks in the clothes of a Gaussian process: marginals without variance."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.experiments.methods.bayesian import ACTIVATIONS
from sikagp.mixtures import GaussianMixture
from sikagp.validation import check_choice, check_fraction
from sikagp.variational import GaussianMarginals


class Network(nn.Module):
    """Multilayer perceptron; without hidden layers it is linear.

    Args:
        sizes: numbers of units from input to output.
        activation: ``"relu"``, ``"silu"`` or ``"tanh"``.

    Shape:
        Input (*batch, sizes[0]), marginals (*batch, sizes[-1]) of variance zero.
    """

    def __init__(self, sizes: Sequence[int], *, activation: str = "relu") -> None:
        super().__init__()
        self.in_features, self.out_features = sizes[0], sizes[-1]
        self.layers = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))
        self.activation = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]()

    def forward(
        self, x: Float[Tensor, "*batch in_features"]
    ) -> GaussianMarginals | GaussianMixture:
        """Outputs, without doubt."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return certain(self.layers[-1](x))

    def kl_divergence(self) -> Float[Tensor, ""]:
        """Zero: nothing is Bayesian."""
        return next(self.parameters()).new_zeros(())


class DropoutNetwork(Network):
    """Perceptron with dropout before every layer but the first, in prediction too.

    A network without hidden layers drops its input features. In evaluation mode the masks are
    fixed and shared by all rows, so that predictions repeat and do not depend on other rows.

    Args:
        sizes: numbers of units from input to output.
        rate: share of units that are dropped.
        num_samples: masks in evaluation mode.
        activation: as in :class:`Network`.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        rate: float = 0.1,
        num_samples: int = 50,
        activation: str = "relu",
    ) -> None:
        super().__init__(sizes, activation=activation)
        self.rate, self.num_samples = check_fraction("rate", rate), num_samples
        dropped = sizes[1:-1] if len(sizes) > 2 else sizes[:1]
        generator = torch.Generator().manual_seed(0)
        for i, width in enumerate(dropped):
            kept = torch.rand(num_samples, 1, width, generator=generator) >= rate
            self.register_buffer(f"mask{i}", kept / (1 - rate), persistent=False)

    def forward(self, x: Float[Tensor, "rows in_features"]) -> GaussianMarginals | GaussianMixture:
        """Outputs under one random mask per row, or under every fixed mask."""
        *hidden, last = self.layers
        if not hidden:
            return self._finish(last(self._drop(0, x)))
        x = self.activation(hidden[0](x))
        for i, layer in enumerate(hidden[1:]):
            x = self.activation(layer(self._drop(i, x)))
        return self._finish(last(self._drop(len(hidden) - 1, x)))

    def _drop(
        self, index: int, x: Float[Tensor, "*batch width"]
    ) -> Float[Tensor, "*masks_and_batch width"]:
        if self.training:
            return F.dropout(x, self.rate)
        return x * self.get_buffer(f"mask{index}")

    def _finish(
        self, output: Float[Tensor, "*batch outputs"]
    ) -> GaussianMarginals | GaussianMixture:
        return certain(output) if self.training else GaussianMixture(certain(output))


def certain(mean: Float[Tensor, "*batch outputs"]) -> GaussianMarginals:
    """Marginals of variance zero."""
    return GaussianMarginals(mean, torch.zeros_like(mean))
