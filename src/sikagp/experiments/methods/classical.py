"""Nearest neighbours and gradient boosting, from scikit-learn, with noise from held-out rows."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import Tensor

from sikagp._typing import Float, Shaped
from sikagp.experiments.methods.base import FitReport, Prediction, Problem, hold_out, tensors
from sikagp.experiments.methods.noise import as_column, residual_noise, with_noise
from sikagp.training.data import Rows

NEIGHBOURS = (1, 2, 3, 5, 8, 13, 21)
_LEAST = 1e-6


class ScikitLearn:
    """Chooses among estimators by their density on held-out rows, and keeps the best.

    Args:
        candidates: makes unfitted estimators from a seed, one for each choice.
        problem: sizes and task.
        smoothing: makes probabilities ``(1 - smoothing) p + smoothing / classes``, so that no class
            is impossible; from an estimator to a number.
    """

    def __init__(
        self,
        candidates: Callable[[int], Iterator[Any]],
        problem: Problem,
        smoothing: Callable[[Any], float],
    ) -> None:
        if not problem.classifies and problem.out_features != 1:
            raise ValueError(f"expected one target, got {problem.out_features}")
        self.candidates, self.problem, self.smoothing = candidates, problem, smoothing

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Fit every candidate; seconds are those of the chosen one."""
        del folder, progress  # it takes seconds
        train, validation = hold_out(train, validation, seed)
        (x, y), (held_x, held_y) = tensors(train), tensors(validation)
        best, seconds = -np.inf, 0.0
        for estimator in self.candidates(seed):
            start = time.perf_counter()
            estimator.fit(x.flatten(1).numpy(), y.flatten().numpy())
            took = time.perf_counter() - start
            score, noise = self._score(estimator, held_x, held_y)
            if score > best:
                best, seconds = score, took
                self.estimator, self.noise = estimator, noise
        return FitReport(seconds, 0)

    def predict(self, x: Float[Tensor, "rows *features"]) -> Prediction:
        """One component with constant noise, or one draw of class probabilities."""
        if self.problem.classifies:
            return self._probabilities(self.estimator, x).unsqueeze(0)
        return with_noise(_mean(self.estimator, x), self.noise)

    def _score(
        self, estimator: Any, x: Float[Tensor, "rows *features"], y: Shaped[Tensor, "rows *targets"]
    ) -> tuple[float, Float[Tensor, "*noises"]]:
        """Mean log density of held-out rows, and the noise that goes with it."""
        if self.problem.classifies:
            chosen = self._probabilities(estimator, x).gather(1, y.unsqueeze(1))
            return float(chosen.log().mean()), torch.zeros(())
        mean = _mean(estimator, x)
        noise = residual_noise(mean, as_column(y))
        return float(with_noise(mean, noise).log_prob(as_column(y)).mean()), noise

    def _probabilities(
        self, estimator: Any, x: Float[Tensor, "rows *features"]
    ) -> Float[Tensor, "rows classes"]:
        """Smoothed probabilities of all classes, also of those that training never saw."""
        classes = self.problem.out_features
        found = torch.from_numpy(estimator.predict_proba(x.flatten(1).numpy())).float()
        probabilities = found.new_zeros(len(x), classes)
        probabilities[:, torch.as_tensor(estimator.classes_)] = found
        share = self.smoothing(estimator)
        return (1 - share) * probabilities + share / classes


def _mean(
    estimator: Any, x: Float[Tensor, "rows *features"]
) -> Float[Tensor, "sample rows target"]:
    return torch.from_numpy(estimator.predict(x.flatten(1).numpy())).float().view(1, -1, 1)


def nearest_neighbours(
    problem: Problem, *, neighbours: Sequence[int] = NEIGHBOURS, weights: str = "distance"
) -> ScikitLearn:
    """K nearest neighbours; held-out rows choose their number.

    Class frequencies are smoothed as if one more neighbour were of every class equally.
    """
    kind = KNeighborsClassifier if problem.classifies else KNeighborsRegressor

    def candidates(seed: int) -> Iterator[Any]:
        return (kind(count, weights=weights) for count in neighbours)

    return ScikitLearn(candidates, problem, lambda found: 1 / (1 + found.n_neighbors))


def boosting(problem: Problem, *, max_iter: int = 500, **options: Any) -> ScikitLearn:
    """Histogram gradient boosting with early stopping; held-out rows choose the learning rate."""
    kind = HistGradientBoostingClassifier if problem.classifies else HistGradientBoostingRegressor
    rates = [options.pop("learning_rate")] if "learning_rate" in options else [0.05, 0.1]

    def candidates(seed: int) -> Iterator[Any]:
        fixed = {"max_iter": max_iter, "early_stopping": True, "random_state": seed, **options}
        return (kind(learning_rate=rate, **fixed) for rate in rates)

    return ScikitLearn(candidates, problem, lambda found: _LEAST)
