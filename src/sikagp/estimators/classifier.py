"""Classification with scikit-learn's interface."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor
from torch.distributions import Bernoulli

from sikagp.calibration import temper
from sikagp.estimators.calibration import held_out_temperature, num_held_out
from sikagp.estimators.persistence import SavedEstimator
from sikagp.estimators.preparation import Rows, Split, hold_out
from sikagp.estimators.recipes import Hidden
from sikagp.validation import check_choice

LIKELIHOODS = ("auto", "logistic", "bernoulli", "softmax")
ONE_OUTPUT = ("logistic", "bernoulli")


class SIKAClassifier(ClassifierMixin, SavedEstimator):
    """Gaussian process classification with averaged probabilities, for two or more classes.

    Two classes are told apart by a logistic link, more by a softmax. Arguments are those of
    :class:`SIKARegressor`, except

    Args:
        likelihood: ``"logistic"`` or ``"bernoulli"`` (a probit; two classes only),
            ``"softmax"``, or ``"auto"``.

    Attributes:
        classes_: labels in sorted order.
        temperature_: power ``1 / T`` of averaged probabilities, set by rows held out of 500 or
            more; else 1.

    >>> X = np.linspace(-1, 1, 40)[:, None]
    >>> model = SIKAClassifier(max_epochs=50, random_state=0).fit(X, X.ravel() > 0)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SIKAClassifier":
        """Train from scratch on labels y of shape (rows,); see :class:`SIKAEstimator`."""
        with self._all_or_nothing():
            self.__dict__.pop("_given_classes", None)
            return super().fit(X, y, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "SIKAClassifier":
        """Go on training with further rows; the first call names all ``classes``."""
        with self._all_or_nothing():
            if not hasattr(self, "_members"):
                if classes is None:
                    raise ValueError("classes must be passed on the first call to partial_fit")
                self._given_classes = np.unique(classes)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes are {np.unique(classes).tolist()}, not those of the first call: "
                    f"{self.classes_.tolist()}"
                )
            self._go_on(X, y, sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Most probable label of each row, shape (rows,)."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities averaged over the posterior, shape (rows, classes)."""
        return temper(_average(self._predictions(X)), self.temperature_).exp().numpy()

    def _architectures(self) -> tuple[list[Hidden], list[Hidden]]:
        return [(16,)], [(64,)]

    def _likelihood_name(self) -> str:
        name = check_choice("likelihood", self.likelihood, LIKELIHOODS)
        count = len(self.classes_)
        if name in ONE_OUTPUT and count > 2:
            raise ValueError(f"a {name} likelihood has two classes, y has {count}")
        return name if name != "auto" else "logistic" if count == 2 else "softmax"

    def _num_targets(self) -> int:
        return 1 if self._likelihood_name() in ONE_OUTPUT else len(self.classes_)

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        x, label = validate_data(self, X, y, reset=reset, dtype=np.float64)
        label = column_or_1d(label, warn=True)
        check_classification_targets(label)
        if reset:
            self.classes_ = getattr(self, "_given_classes", np.unique(label))
        if len(self.classes_) < 2:
            raise ValueError(
                "a classifier needs at least two classes, y has only one class: "
                f"{self.classes_.tolist()}"
            )
        unseen = np.setdiff1d(label, self.classes_)
        if len(unseen):
            raise ValueError(
                f"y has classes {unseen.tolist()} which are not among {self.classes_.tolist()}"
            )
        return x, np.searchsorted(self.classes_, label)

    def _start(self, rows: Rows) -> None:
        self.temperature_ = 1.0
        super()._start(rows)

    def _hold_out(self, rows: Rows, choices: list[Hidden]) -> Split:
        return hold_out(rows, num_held_out(len(rows.x)))

    def _calibrate(self, split: Split) -> None:
        if split.learned is split.rows:
            return
        rows = split.held_out
        label, weight = torch.from_numpy(rows.y), torch.from_numpy(rows.weight)
        probs = _average(self._evaluate(rows.x))
        self.temperature_ = held_out_temperature(probs, label, weight)

    def _targets(self, y: np.ndarray) -> Tensor:
        label = torch.from_numpy(y)
        return label if self._likelihood_name() == "softmax" else label.float().unsqueeze(-1)


def _average(chunks: Iterator[list[Any]]) -> Tensor:
    """Class probabilities averaged over members, shape (rows, classes)."""
    return torch.cat(
        [torch.stack([_probabilities(member) for member in members]).mean(0) for members in chunks]
    )


def _probabilities(prediction: Any) -> Tensor:
    """Class probabilities of one member, shape (rows, classes)."""
    if isinstance(prediction, Bernoulli):
        return torch.cat([1 - prediction.probs, prediction.probs], dim=-1)
    return prediction.probs
