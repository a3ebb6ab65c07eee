"""GPyTorch's models as modules that give marginals, so that they train and predict as all do."""

from collections.abc import Sequence
from typing import Any

import gpytorch
import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.domains import Domain
from sikagp.experiments.methods.gpytorch_models import HiddenLayer
from sikagp.mixtures import GaussianMixture
from sikagp.variational import GaussianMarginals


class GPyTorchHead(nn.Module):
    """One of GPyTorch's variational models.

    Args:
        model: the model; one or several outputs.
        in_features: number of features it expects.
        domain: interval that is mapped to the unit interval, and to which inputs are clamped,
            for models on a grid; None passes inputs through.

    Shape:
        Input (rows, in_features), marginals (rows, outputs).
    """

    def __init__(
        self, model: gpytorch.models.ApproximateGP, in_features: int, domain: Domain | None = None
    ) -> None:
        super().__init__()
        self.model, self.in_features, self.domain = model, in_features, domain

    def forward(self, x: Float[Tensor, "rows in_features"]) -> GaussianMarginals:
        """Marginals of f at each row."""
        if self.domain is not None:
            x = self.domain(x).clamp(0, 1)
        q = self.model(x)
        mean, variance = q.mean, q.variance
        if mean.ndim == 1:
            mean, variance = mean.unsqueeze(-1), variance.unsqueeze(-1)
        return GaussianMarginals(mean, variance)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), summed over outputs or features."""
        return self.model.variational_strategy.kl_divergence().sum()


class GPyTorchDeepGP(nn.Module):
    """GPyTorch's deep GP with doubly stochastic inference.

    Args:
        points: where the first layer's inducing points start.
        sizes: numbers of units from input to output.
        kernel: kernel of all layers, with one lengthscale per feature.
        num_samples: draws in training and in evaluation mode.

    Shape:
        Input (rows, sizes[0]), mixture of shape (rows, sizes[-1]).
    """

    def __init__(
        self,
        points: Float[Tensor, "num_points in_features"],
        sizes: Sequence[int],
        *,
        kernel: str = "rbf",
        num_samples: tuple[int, int] = (10, 20),
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = sizes[0], sizes[-1]
        self.num_samples = tuple(num_samples)
        count = len(sizes) - 1
        starts = [points, *(torch.randn(len(points), size) for size in sizes[1:-1])]
        self.layers = nn.ModuleList(
            HiddenLayer(starts[i], sizes[i + 1], kernel=kernel, last=i == count - 1)
            for i in range(count)
        )

    def forward(self, x: Float[Tensor, "rows in_features"]) -> GaussianMixture:
        """Mixture over draws of the hidden layers; evaluation mode repeats its draws."""
        if self.training:
            return self._mixture(x, self.num_samples[0])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self._mixture(x, self.num_samples[1])

    def _mixture(self, x: Float[Tensor, "rows in_features"], num_samples: int) -> GaussianMixture:
        output: Any = x
        with gpytorch.settings.num_likelihood_samples(num_samples):
            for layer in self.layers:
                output = layer(output)
        return GaussianMixture(GaussianMarginals(output.mean, output.variance))

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), summed over layers and units."""
        terms = [layer.variational_strategy.kl_divergence() for layer in self.layers]  # type: ignore[operator, union-attr]
        return torch.stack([term.sum() for term in terms]).sum()
