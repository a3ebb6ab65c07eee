"""Regression with scikit-learn's interface."""

import copy
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import StudentTLikelihood
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from sikagp.estimators.base import Trial
from sikagp.estimators.calibration import num_held_out, refit_noise
from sikagp.estimators.evidence import Observed
from sikagp.estimators.persistence import SavedEstimator
from sikagp.estimators.pooling import Pooled
from sikagp.estimators.preparation import Rows, Split, Standardiser, hold_out
from sikagp.estimators.recipes import CLOSE, LARGE, PAIRS, Hidden
from sikagp.estimators.selection import relearn_pairs
from sikagp.models.predictor import Predictor
from sikagp.validation import check_choice, check_count, check_fraction

WIDE = (64,)
# A model over pairs has as many grids as the square of this.
MOST_PAIRED = 16
LIKELIHOODS = ("auto", "gaussian", "heteroscedastic", "student_t")


class SIKARegressor(RegressorMixin, SavedEstimator):
    """Gaussian process regression with intervals, for one or several targets.

    Inputs and targets are standardised inside; everything that goes in or comes out is in the
    user's units. Few rows get an additive model, whose effects can be looked at one by one; more
    rows get a deep Gaussian process, or one that is additive over pairs of features.

    Args:
        hidden: units of the hidden layers, ``()`` for an additive model, ``"pairs"`` for one that
            is also additive over sums and differences of any two features, of which those that
            matter are learned by the evidence; ``"auto"`` chooses by the number of rows, and of a
            medium number by rows held out.
        level: dyadic level of the grids, ``2**level + 1`` nodes each; ``"auto"`` is 4, or 3 for
            classifiers and many rows.
        kernel: kernel of all layers; ``"auto"`` is Laplace, or Matérn-5/2 in regressors of fewer
            than 5,000 rows that have hidden layers or pairs.
        domain: where the nodes of the first grid lie: spread over the ``"range"`` of each feature,
            or at its ``"quantiles"``, which suits features with long tails.
        likelihood: ``"gaussian"`` (the meaning of ``"auto"``), ``"heteroscedastic"`` noise that
            depends on the input, or ``"student_t"`` for outliers.
        n_estimators: models to train from different starts; predictions are their mixture.
        max_epochs: passes over the rows; ``"auto"`` aims at a fixed number of steps.
        batch_size: rows per step.
        learning_rate: peak of the one-cycle schedule; ``"auto"`` chooses by the number of rows.
        kl_weight: weight of the prior; 1 is the evidence lower bound. ``"auto"`` is 1, or 0.3
            for classifiers.
        num_samples: draws of hidden layers per step.
        validation_fraction: fraction of the rows held out to choose the best epoch.
        patience: rounds without progress on held-out rows before training stops.
        device: ``"cpu"``, ``"cuda"`` or whatever Lightning calls an accelerator.
        verbose: whether to show a progress bar.
        random_state: seed or generator; the same seed gives the same model.

    Attributes:
        hidden_: units of the hidden layers or ``"pairs"``, as given or as chosen.
        results_: what training reported, one :class:`sikagp.training.FitResult` per member.
        feature_importances_: share of each feature in the variance of an additive model.

    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = SIKARegressor(max_epochs=20, random_state=0).fit(X, 5 * X.ravel())
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    _flat: bool

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SIKARegressor":
        """Go on training with further rows, a few passes over them; arguments as in ``fit``.

        The first rows decide standardisation, grids and architecture.
        """
        self._go_on(X, y, sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean, shape (rows,) or (rows, targets).

        With ``return_std`` as in scikit-learn also the standard deviation of y, noise included.
        """
        pooled = self._pooled(X)
        mean = self._in_units(np.concatenate([part.mean for part in pooled]))
        if not return_std:
            return mean
        spread = np.concatenate([part.stddev for part in pooled])
        return mean, self._in_units(spread, shift=False)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the central interval that holds y with probability ``level``.

        Each has shape (rows,) or (rows, targets).
        """
        tail = (1 - check_fraction("level", level)) / 2
        pooled = self._pooled(X)
        low, high = (
            np.concatenate([part.quantile(probability) for part in pooled])
            for probability in (tail, 1 - tail)
        )
        return self._in_units(low), self._in_units(high)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> np.ndarray:
        """Draw functions and add noise, shape (rows, n_samples) or (rows, targets, n_samples).

        All rows of one sample belong to the same function. Such functions carry no variance
        beyond the grid, so use :meth:`predict` for rows far from the training data.
        """
        check_is_fitted(self)
        x = torch.from_numpy(self._input(validate_data(self, X, reset=False, dtype=np.float64)))
        random = check_random_state(random_state)
        which = random.randint(len(self._members), size=check_count("n_samples", n_samples))
        seed = int(random.randint(2**31 - 1))
        draws = np.empty((n_samples, len(x), self._num_targets()))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            for index in np.unique(which):
                chosen = np.flatnonzero(which == index)
                draws[chosen] = _draw(self._members[index], x, len(chosen)).numpy()
        scaled = draws * self._output.scale + self._output.mean
        return scaled[..., 0].T if self._flat else scaled.transpose(1, 2, 0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _architectures(self) -> tuple[list[Hidden], list[Hidden]]:
        narrow: Hidden = (min(self.n_features_in_, WIDE[0]),)
        medium: list[Hidden] = [narrow] if narrow == WIDE else [narrow, WIDE]
        paired = 2 <= self.n_features_in_ <= MOST_PAIRED
        return [()], [*medium, PAIRS] if paired else medium

    def _likelihood_name(self) -> str:
        name = check_choice("likelihood", self.likelihood, LIKELIHOODS)
        return "gaussian" if name == "auto" else name

    def _num_targets(self) -> int:
        return len(self._output.mean)

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        x, target = validate_data(
            self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True
        )
        target = target.astype(np.float64, copy=False)
        if not reset and (target.ndim == 1, target[0].size) != (self._flat, self._num_targets()):
            raise ValueError(
                f"y has shape {target.shape}, but the model was fitted with "
                f"{self._num_targets()} targets"
            )
        self._flat = target.ndim == 1
        return x, target.reshape(len(target), -1)

    def _start(self, rows: Rows) -> None:
        self._output = Standardiser.fit(rows.y, rows.weight)
        super()._start(rows)

    def _targets(self, y: np.ndarray) -> Tensor:
        return torch.from_numpy(self._output(y)).float()

    def _hold_out(self, rows: Rows, choices: list[Hidden]) -> Split:
        calibrated = self._likelihood_name() == "gaussian" and choices[0] != ()
        needed = calibrated or len(choices) > 1
        return hold_out(rows, num_held_out(len(rows.x)) if needed else 0)

    def _calibrate(self, split: Split) -> None:
        if not self.hidden_:
            return
        rows = split.held_out
        x, weight = torch.from_numpy(self._input(rows.x)), torch.from_numpy(rows.weight)
        for member in self._members:
            refit_noise(member, x, self._targets(rows.y).double(), weight)

    def _concluded(self, trial: Trial, split: Split) -> Trial:
        rows = split.learned
        if self._kl_weight() != 1 or len(rows.x) >= LARGE:
            return trial
        x, weight = torch.from_numpy(self._input(rows.x)), torch.from_numpy(rows.weight)
        data = Observed(x, self._targets(rows.y).double(), weight)
        again = trial._replace(members=copy.deepcopy(trial.members))
        changed = [relearn_pairs(member, data) for member in again.members]
        if not any(changed):
            return trial
        if not len(split.held_out.x):
            return again
        # A model that was trained briefly may not know yet which pairs matter.
        after, before = self._score(again, split), self._score(trial, split)
        return again if after >= before - CLOSE else trial

    def _score(self, trial: Trial, split: Split) -> float:
        rows = split.held_out
        x = torch.from_numpy(self._input(rows.x))
        with torch.no_grad():
            pooled = Pooled([member(x) for member in trial.members])
        return float(rows.weight @ pooled.log_prob(self._output(rows.y)).sum(-1))

    def _pooled(self, X: Any) -> list[Pooled]:
        return [Pooled(members) for members in self._predictions(X)]

    def _in_units(self, values: np.ndarray, *, shift: bool = True) -> np.ndarray:
        """Standardised targets (rows, targets) in the user's units and shape."""
        scaled = values * self._output.scale + (self._output.mean if shift else 0.0)
        return scaled[:, 0] if self._flat else scaled


def _draw(member: Predictor, x: Tensor, count: int) -> Tensor:
    """Functions plus noise, shape (count, rows, targets)."""
    f = member.model.paths(count)(x)  # type: ignore[operator]
    likelihood = member.likelihood
    if isinstance(likelihood, StudentTLikelihood):
        return torch.distributions.StudentT(
            likelihood.deg_free.flatten(), f, likelihood.noise.flatten().sqrt()
        ).sample()
    if hasattr(likelihood, "noise"):
        return f + likelihood.noise.flatten().sqrt() * torch.randn_like(f)
    return likelihood(f).sample()
