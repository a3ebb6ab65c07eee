"""Everything that trains by gradient: one model, one likelihood, one loop for all of them."""

import dataclasses
from pathlib import Path
from typing import Any

import gpytorch
import torch
from gpytorch.likelihoods import Likelihood, SoftmaxLikelihood
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.domains import Domain
from sikagp.experiments.methods.base import (
    FitReport,
    Prediction,
    Problem,
    hold_out,
    tensors,
)
from sikagp.experiments.methods.composition import OnFeatures
from sikagp.experiments.methods.heads import HEADS, WITHOUT_NOISE, Inputs
from sikagp.experiments.methods.noise import as_column, residual_noise
from sikagp.experiments.methods.settings import REGRESSION_LIKELIHOODS, Setting
from sikagp.experiments.methods.timing import EpochLog, EpochTimer
from sikagp.likelihoods import build_likelihood, num_outputs
from sikagp.mixtures import GaussianMixture, concatenate
from sikagp.predictions import class_probabilities, predictive
from sikagp.training import TrainingConfig, fit
from sikagp.training.data import Rows
from sikagp.validation import check_choice
from sikagp.variational import GaussianMarginals

_CHUNK = 1024


class Trained:
    """A model with a likelihood, trained by :func:`sikagp.training.fit`.

    Args:
        name: which head.
        problem: sizes, task, and options: those of :class:`Setting`, and the head's own.

    Attributes:
        model: the trained model.
        likelihood: the trained likelihood.
    """

    model: nn.Module
    likelihood: Likelihood

    def __init__(self, name: str, problem: Problem) -> None:
        self.name, self.problem = name, problem
        own = {field.name for field in dataclasses.fields(Setting)}
        options = problem.options
        self.setting = Setting(**{key: options[key] for key in options if key in own})
        self.head_options = {key: options[key] for key in options if key not in own}
        if not problem.classifies:
            check_choice("likelihood", self.setting.likelihood, REGRESSION_LIKELIHOODS)

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Build the model for these rows and train it."""
        config = TrainingConfig(seed=seed, **self.problem.training)
        if self._lacks_noise:
            train, validation = hold_out(train, validation, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.build(train)
        timer = EpochTimer()
        with gpytorch.settings.num_likelihood_samples(self.setting.train_samples):
            result = fit(
                self.model,
                self.likelihood,
                train,
                config,
                validation_data=validation,
                folder=folder,
                callbacks=[timer] if progress else [timer, EpochLog()],
                trainer_options={
                    "enable_progress_bar": progress,
                    "accelerator": self.setting.device,
                },
            )
        self.model.to(self.setting.device)
        self.likelihood.to(self.setting.device)
        if self._lacks_noise and validation is not None:
            self._take_noise(*tensors(validation))
        history = [
            entry | {"seconds": seconds}
            for entry, seconds in zip(result.history, timer.seconds, strict=True)
        ]
        return FitReport(sum(timer.seconds), len(history), history)

    def build(self, train: Rows) -> None:
        """Make a fresh model and likelihood; grids on tables cover the training rows."""
        setting, problem = self.setting, self.problem
        size = setting.embedding or problem.in_features
        rows = tensors(train)[0] if setting.plain else None
        domain = (
            Domain(-setting.reach, setting.reach)
            if rows is None
            else Domain.fit(rows, margin=setting.margin)
        )
        outputs = problem.out_features
        if not problem.classifies:
            outputs = num_outputs(setting.likelihood, outputs)
        model = HEADS[self.name](Inputs(size, domain, rows), outputs, **self.head_options)
        if setting.initial_scale is not None:
            for module in model.modules():
                if hasattr(module, "weight_scale"):
                    module.weight_scale = setting.initial_scale  # type: ignore[assignment]
        if not setting.plain:
            model = self._on_features(model)
        self.model, self.likelihood = model, self._build_likelihood(size)

    def predict(self, x: Float[Tensor, "rows *features"]) -> Prediction:
        """Predict in chunks; x may be a batch of whatever the backbone takes."""
        parts = [self._predict(rows.to(self.setting.device)) for rows in x.split(_CHUNK)]
        if isinstance(parts[0], Tensor):
            return torch.cat(parts, dim=1)
        return concatenate(parts, dim=1)

    @torch.no_grad()
    def _predict(self, x: Float[Tensor, "rows *features"]) -> Any:
        output = self.model(x)
        if isinstance(self.likelihood, SoftmaxLikelihood):
            samples = self.setting.test_samples
            return class_probabilities(self.likelihood, output, samples).cpu()
        mixture = predictive(self.likelihood, output).components  # type: ignore[union-attr]
        return GaussianMixture(GaussianMarginals(mixture.mean.cpu(), mixture.variance.cpu()))

    def _on_features(self, head: nn.Module) -> OnFeatures:
        setting = self.setting
        normalisation = setting.normalisation or ("batch" if setting.normalises else "none")
        return OnFeatures(
            nn.Identity() if setting.backbone is None else setting.backbone(),
            self.problem.in_features,
            head,
            embedding=setting.embedding,
            normalisation=normalisation,
            spectral_norm=setting.spectral_norm,
            trend=setting.own_layer or False,
        )

    def _build_likelihood(self, channels: int) -> Likelihood:
        classes = self.problem.out_features
        if not self.problem.classifies:
            return build_likelihood(self.setting.likelihood, classes)
        if self.name == "svdkl":
            return SoftmaxLikelihood(num_features=channels, num_classes=classes)
        return build_likelihood("softmax", classes)

    @property
    def _lacks_noise(self) -> bool:
        gaussian = not self.problem.classifies and self.setting.likelihood == "gaussian"
        return gaussian and self.name in WITHOUT_NOISE

    def _take_noise(
        self, x: Float[Tensor, "rows *features"], y: Float[Tensor, "rows *targets"]
    ) -> None:
        mean = self.predict(x).components.mean  # type: ignore[union-attr]
        noise = residual_noise(mean, as_column(y)).unsqueeze(-1)
        self.likelihood.noise = noise.to(self.setting.device)
