"""The last layer that a network comes with, as it is or with a learned confidence."""

from pathlib import Path

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.experiments.methods import FitReport, Problem
from sikagp.experiments.methods.base import tensors
from sikagp.experiments.methods.trained import Trained
from sikagp.models import DeepTemperature
from sikagp.training.data import Rows


class GivenLayer:
    """A trained linear layer on features; there is nothing left to learn.

    Args:
        layer: from features to logits.
    """

    def __init__(self, layer: nn.Linear) -> None:
        self.layer = layer

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Do nothing, in no time."""
        return FitReport(seconds=0.0, epochs=0)

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "1 rows classes"]:
        """Class probabilities, in one draw."""
        return self.layer(x).softmax(-1).unsqueeze(0)


class LearnedTemperature(Trained):
    """A :class:`DeepTemperature` around a trained linear layer on features.

    Args:
        layer: from features to logits.
        problem: sizes, and options: those of all trained methods, and the SIKA layer's.
    """

    model: DeepTemperature

    def __init__(self, layer: nn.Linear, problem: Problem) -> None:
        super().__init__("sika", problem)
        self.layer = layer

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Learn from the training rows; the held-out ones set the level of confidence."""
        report = super().fit(train, None, seed=seed, folder=folder, progress=progress)
        if validation is not None:
            x, y = (part.to(self.setting.device) for part in tensors(validation))
            self.model.calibrate(x, y)
        return report

    def build(self, train: Rows) -> None:
        """Make a fresh model and likelihood."""
        self.model = DeepTemperature(
            nn.Identity(), self.layer, reach=self.setting.reach, **self.head_options
        )
        self.likelihood = self._build_likelihood(self.problem.in_features)
