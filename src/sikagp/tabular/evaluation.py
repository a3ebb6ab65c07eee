"""Scores of a model on rows that it has not seen."""

import dataclasses

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sikagp import metrics
from sikagp._typing import Float, Int, Shaped
from sikagp.tabular.model import TabularModel, target_values

LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Targets and predictions of the test rows, and scores beside the best constant prediction."""

    target: Shaped[np.ndarray, " rows"]
    predictions: pd.DataFrame
    scores: dict[str, float]


def evaluate(model: TabularModel, train: pd.DataFrame, test: pd.DataFrame) -> Evaluation:
    """Score predictions for the test rows."""
    predictions = model.predict(test, level=LEVEL)
    target = target_values(test[model.target], model.task)
    known = target_values(train[model.target], model.task)
    if model.task == "regression":
        scores = _regression_scores(predictions, target, float(known.mean()))
    else:
        scores = _classification_scores(model, predictions, target, known)
    return Evaluation(target, predictions, scores)


def class_probabilities(
    model: TabularModel, predictions: pd.DataFrame, target: Shaped[np.ndarray, " rows"]
) -> tuple[Float[Tensor, "rows classes"], Int[Tensor, " rows"]]:
    """Probabilities of all classes, and numbers of the true ones."""
    classes = model.estimator.classes_
    probs = torch.tensor(predictions.iloc[:, -len(classes) :].to_numpy())
    return probs, torch.from_numpy(np.searchsorted(classes, target))


def _regression_scores(
    predictions: pd.DataFrame, target: Float[np.ndarray, " rows"], constant: float
) -> dict[str, float]:
    mean, std, y = (
        torch.tensor(values) for values in (predictions["mean"], predictions["std"], target)
    )
    inside = (predictions["lower"] <= target) & (target <= predictions["upper"])
    return {
        "rmse": float(metrics.rmse(mean, y)),
        "nlpd": float(metrics.nlpd(mean, std.square(), y)),
        "coverage_95": float(inside.mean()),
        "rmse_of_the_mean": float(np.sqrt(np.mean((target - constant) ** 2))),
    }


def _classification_scores(
    model: TabularModel,
    predictions: pd.DataFrame,
    target: Shaped[np.ndarray, " rows"],
    known: Shaped[np.ndarray, " known"],
) -> dict[str, float]:
    probs, label = class_probabilities(model, predictions, target)
    values, counts = np.unique(known, return_counts=True)
    return {
        "accuracy": float(metrics.accuracy(probs, label)),
        "nll": float(metrics.nll(probs, label)),
        "ece": float(metrics.ece(probs, label)),
        "accuracy_of_the_most_common": float(np.mean(target == values[counts.argmax()])),
    }
