"""Compositions: any layer that gives marginals, stacked, or on the features of a backbone."""

from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.mixtures import GaussianMixture, mixture_of_draws
from sikagp.models import DeepGP, DeepKernel


class Stack(DeepGP):
    """A deep Gaussian process of given layers, each with its sizes and a KL divergence.

    Args:
        layers: modules from (*batch, in_features) to marginals (*batch, out_features).
        mean_function: linear mean of hidden layers, as in :class:`DeepGP`.
        num_samples: draws in training and in evaluation mode.
    """

    def __init__(
        self,
        layers: list[Any],
        *,
        mean_function: str = "learned",
        num_samples: tuple[int, int] = (10, 20),
    ) -> None:
        nn.Module.__init__(self)
        self._assemble(layers, mean_function, num_samples)


class OnFeatures(DeepKernel):
    """A head on the features of a backbone: embedding, normalisation, head.

    Args:
        backbone: module that returns features of shape (*batch, num_features).
        num_features: number of features that the backbone returns.
        head: module from (*batch, channels) to marginals or a mixture, with a KL divergence.
        embedding: number of channels that a linear layer compresses the features to.
        normalisation: ``"running"``, ``"batch"`` or ``"none"``, as in :class:`DeepKernel`.
        spectral_norm: whether to hold the spectral norms of the backbone at 1.
        trend: as in :class:`DeepKernel`, for heads that give marginals.
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        head: Any,
        *,
        embedding: int | None,
        normalisation: str,
        spectral_norm: bool,
        trend: bool | nn.Linear = False,
    ) -> None:
        nn.Module.__init__(self)
        self._assemble(
            backbone,
            num_features,
            head,
            embedding,
            normalisation,
            spectral_norm,
            trend=trend,
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Marginals or mixture, as the head gives them; arguments go to the backbone."""
        return self._output(*args, **kwargs)


class FlipoutDeepGP(DeepGP):
    """SIKA layers trained with the paper's flipout draws of weights in place of marginals.

    Evaluation mode uses the exact marginals, as every deep model here does.
    """

    def forward(
        self,
        x: Float[Tensor, "rows in_features"],
        num_samples: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> GaussianMixture:
        """Mixture over draws: of all layers in training, of the hidden ones in evaluation."""
        if not self.training:
            return super().forward(x, num_samples, generator=generator)
        first, *others = self.layers
        draws = first.sample(  # type: ignore[operator]
            x, num_samples or self.num_samples[0], method="flipout", generator=generator
        )
        inputs = x
        for i, layer in enumerate(others):
            if i < len(self.means):
                draws = draws + self.means[i](inputs)
            inputs, draws = draws, layer.flipout_each(draws, generator=generator)  # type: ignore[operator]
        return mixture_of_draws(draws)
