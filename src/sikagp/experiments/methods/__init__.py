"""Systems that are compared, through one interface."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sikagp.domains import Domain
from sikagp.likelihoods import build_likelihood
from sikagp.mixtures import GaussianMixture
from sikagp.models import DeepGP
from sikagp.models.predictor import Predictor
from sikagp.training import TrainingConfig, fit


@dataclass(frozen=True)
class FitReport:
    """What training took."""

    seconds: float
    epochs: int
    history: list[dict[str, float]] = field(default_factory=list)


class DeepSIKA:
    """Stacked SIKA layers with Gaussian noise."""

    def __init__(self, options: Mapping[str, Any], training: Mapping[str, Any]) -> None:
        self.options, self.training = dict(options), training

    def fit(
        self,
        train: tuple[Tensor, Tensor],
        validation: tuple[Tensor, Tensor] | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Train on standardised rows."""
        options = dict(self.options)
        hidden = options.pop("hidden", (64, 64))
        samples = tuple(options.pop("num_samples", (10, 20)))
        torch.manual_seed(seed)
        sizes = (train[0].shape[1], *hidden, 1)
        domain = Domain.fit(train[0], margin=0.1)
        model = DeepGP(sizes, domain=domain, num_samples=samples, **options)
        self.predictor = Predictor(model, build_likelihood("gaussian", 1))
        start = time.perf_counter()
        result = fit(
            model,
            self.predictor.likelihood,
            train,
            TrainingConfig(seed=seed, **self.training),
            validation_data=validation,
            folder=folder,
            trainer_options={"enable_progress_bar": progress},
        )
        return FitReport(time.perf_counter() - start, len(result.history), result.history)

    @torch.no_grad()
    def predict(self, x: Tensor) -> GaussianMixture:
        """Mixtures of y in standardised units."""
        return self.predictor(x)


def build_method(
    name: str,
    *,
    in_features: int,
    out_features: int,
    task: str,
    options: Mapping[str, Any],
    training: Mapping[str, Any],
) -> DeepSIKA:
    """Make an untrained method."""
    if name != "deep-sika":
        raise ValueError(f"name must be 'deep-sika', got {name!r}")
    return DeepSIKA(options, training)
