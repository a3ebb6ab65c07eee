"""The one interface of everything that is compared."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from sikagp._typing import Float, Shaped
from sikagp.mixtures import GaussianMixture
from sikagp.training.data import Rows, TensorRows, split

Task = Literal["regression", "classification"]
TASKS = ("regression", "classification")

# Standardised predictions of y, or class probabilities of every draw (samples, rows, classes).
Prediction = GaussianMixture | Float[Tensor, "samples rows classes"]

HELD_OUT = 0.1


@dataclasses.dataclass(frozen=True)
class FitReport:
    """What training took.

    Attributes:
        seconds: time spent on training rows, over all epochs.
        epochs: how often the rows were seen; 0 where that means nothing.
        history: logged numbers, one entry per epoch.
    """

    seconds: float
    epochs: int
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    @property
    def seconds_per_epoch(self) -> float:
        """Average over epochs; NaN where there are none."""
        return self.seconds / self.epochs if self.epochs else math.nan


@runtime_checkable
class Method(Protocol):
    """A system that learns from rows and predicts with uncertainty."""

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Learn from tensors (x, y), or from a dataset where there is a backbone.

        Args:
            train: rows to learn from.
            validation: held-out rows, for early stopping, choices and the noise of methods that
                have none of their own.
            seed: of everything random.
            folder: where a run keeps a checkpoint, from which it goes on if it was stopped.
            progress: whether to show a progress bar.
        """
        ...

    def predict(self, x: Float[Tensor, "rows *features"]) -> Prediction:
        """Predict rows: mixtures in units of y, or class probabilities of every draw."""
        ...


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a method is asked for: sizes, task and its options."""

    in_features: int
    out_features: int
    task: Task
    options: Mapping[str, Any]
    training: Mapping[str, Any]

    @property
    def classifies(self) -> bool:
        """Whether the targets are classes."""
        return self.task == "classification"

    def replace(self, **changes: Any) -> "Problem":
        """Copy with other values."""
        return dataclasses.replace(self, **changes)


def tensors(
    rows: Rows,
) -> tuple[Shaped[Tensor, "rows *features"], Shaped[Tensor, "rows *targets"]]:
    """Inputs and targets of rows that are tensors."""
    if isinstance(rows, TensorRows):
        rows = rows.tensors
    if not isinstance(rows, tuple | list):
        raise TypeError(f"expected tensors (x, y), got {type(rows).__name__}")
    return rows[0], rows[1]


def hold_out(train: Rows, validation: Rows | None, seed: int) -> tuple[Rows, Rows]:
    """Training and validation rows, a tenth of the former becoming the latter if none are given."""
    if validation is not None:
        return train, validation
    return split(TensorRows(*tensors(train)), HELD_OUT, seed)
