"""What regressor and classifier share: validation, training, streaming and evaluation."""

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from sikagp.estimators import recipes
from sikagp.estimators.preparation import Rows, Standardiser, check_features, merge_rows
from sikagp.layers import SIKALayer
from sikagp.likelihoods import build_likelihood, num_outputs
from sikagp.models.predictor import Predictor
from sikagp.training import FitResult, fit

# Rows that are predicted at once; a deep model needs memory for all its samples of each.
CHUNK = 2048
PARTIAL_PASSES = 10


class SIKAEstimator(BaseEstimator, ABC):
    """Trains one or several :class:`DeepGP` on standardised rows; see the two subclasses."""

    n_features_in_: int
    weight_seen_: float
    results_: list[FitResult]
    _members: list[Predictor]
    _seeds: list[int]
    _input: Standardiser

    def __init__(
        self,
        *,
        # Stored as given, whatever it is, as scikit-learn asks; checked in fit.
        hidden: Any = "auto",
        level: Any = "auto",
        kernel: Any = "laplace",
        domain: Any = "range",
        likelihood: Any = "auto",
        n_estimators: Any = 1,
        max_epochs: Any = "auto",
        batch_size: Any = "auto",
        learning_rate: Any = "auto",
        kl_weight: Any = "auto",
        num_samples: Any = 1,
        validation_fraction: Any = 0.0,
        patience: Any = None,
        device: Any = "cpu",
        verbose: Any = 0,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.level = level
        self.kernel = kernel
        self.domain = domain
        self.likelihood = likelihood
        self.n_estimators = n_estimators
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.kl_weight = kl_weight
        self.num_samples = num_samples
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train from scratch.

        Args:
            X: inputs, shape (rows, features).
            y: targets, shape (rows,) or, for a regressor, (rows, targets).
            sample_weight: how much each row counts, shape (rows,); two is the same as twice.
        """
        with self._all_or_nothing():
            rows = self._rows(X, y, sample_weight, reset=True)
            self._start(rows)
            learned, held_out = self._hold_out(rows)
            plan = self._plan(learned, self.max_epochs)
            self.results_ = self._train(learned, plan, kl_weight=self._kl_weight())
            self._calibrate(held_out)
            self._finish(rows)
        return self

    @property
    def _deep(self) -> bool:
        return len(self._layers(self._members[0])) > 1

    @staticmethod
    def _layers(member: Predictor) -> list[SIKALayer]:
        return list(member.model.layers)  # type: ignore[arg-type]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    @abstractmethod
    def _architectures(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Hidden layers that ``hidden="auto"`` means for few rows, and for a medium number."""

    @abstractmethod
    def _likelihood_name(self) -> str:
        """Which likelihood to build."""

    @abstractmethod
    def _num_targets(self) -> int:
        """How many columns of targets, or how many classes."""

    @abstractmethod
    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Check rows and encode targets as numbers or class indices."""

    @abstractmethod
    def _targets(self, y: np.ndarray) -> Tensor:
        """Targets as the likelihood takes them, shape (rows, targets) or (rows,)."""

    def _hold_out(self, rows: Rows) -> tuple[Rows, Rows]:
        """Rows to learn from, and rows to calibrate with."""
        return rows, rows

    def _calibrate(self, rows: Rows) -> None:
        """Adjust freshly trained members to rows."""

    def _finish(self, rows: Rows) -> None:
        """Note what follows from the trained model and its rows."""

    def _go_on(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Make a few passes over further rows, from the current parameters on."""
        with self._all_or_nothing():
            first = not hasattr(self, "_members")
            rows = self._rows(X, y, sample_weight, reset=first)
            if first:
                self._start(rows)
            else:
                self._members = copy.deepcopy(self._members)
            seen = float(rows.weight.sum()) + (0.0 if first else self.weight_seen_)
            plan = self._plan(rows, PARTIAL_PASSES)
            # The KL divergence is counted once for all rows seen so far, not for these alone.
            share = float(rows.weight.sum()) / seen
            self._train(rows, plan, kl_weight=self._kl_weight() * share, schedule="constant")
            self.weight_seen_ = seen
            self._finish(rows)

    def _rows(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Rows:
        x, target = self._validated(X, y, reset=reset)
        check_features(x.shape[1])
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, x, ensure_non_negative=True)
        return merge_rows(x, target, sample_weight)

    def _plan(self, rows: Rows, epochs: Any) -> recipes.Schedule:
        options = epochs, self.batch_size, self.learning_rate
        return recipes.plan_schedule(len(rows.x), *options, classification=is_classifier(self))

    def _kl_weight(self) -> float:
        return recipes.prior_weight(self.kl_weight, classification=is_classifier(self))

    def _start(self, rows: Rows) -> None:
        """Standardise by these rows and build fresh models."""
        random = check_random_state(self.random_state)
        self._input = Standardiser.fit(rows.x, rows.weight)
        self.weight_seen_ = float(rows.weight.sum())
        x = torch.from_numpy(self._input(rows.x)).float()
        hidden = recipes.hidden_sizes(self.hidden, len(x), *self._architectures())
        level = recipes.grid_level(self.level, len(x), classification=is_classifier(self))
        name, targets = self._likelihood_name(), self._num_targets()
        self._seeds = random.randint(
            2**31 - 1, size=recipes.whole("n_estimators", self.n_estimators)
        ).tolist()
        self._members = []
        for seed in self._seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = recipes.build_model(
                    x,
                    hidden,
                    num_outputs(name, targets),
                    level=level,
                    kernel=self.kernel,
                    domain=self.domain,
                    num_samples=recipes.whole("num_samples", self.num_samples),
                    classification=is_classifier(self),
                )
            self._members.append(Predictor(model, build_likelihood(name, targets)))

    def _train(self, rows: Rows, plan: recipes.Schedule, **options: Any) -> list[FitResult]:
        """Train every member on the same rows, in single precision."""
        x = torch.from_numpy(self._input(rows.x)).float()
        once = (x, self._targets(rows.y), torch.from_numpy(rows.weight).float())
        data = [part.repeat(plan.passes, *[1] * (part.ndim - 1)) for part in once]
        accelerator = {"cuda": "gpu"}.get(self.device, self.device)
        trainer = {"enable_progress_bar": self.verbose > 0, "accelerator": accelerator}
        results = []
        for seed, member in zip(self._seeds, self._members, strict=True):
            config = recipes.training_config(
                plan,
                seed,
                validation=self.validation_fraction,
                patience=self.patience,
                **options,
            )
            member.float().requires_grad_(True)
            result = fit(member.model, member.likelihood, data, config, trainer_options=trainer)
            # Rounding must not make a prediction depend on the other rows of its batch.
            member.cpu().double().eval().requires_grad_(False)
            results.append(result)
        return results

    def _predictions(self, X: Any) -> Iterator[list[Any]]:
        """Distributions of y in standardised units, one per member, chunk by chunk."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        unit = torch.from_numpy(self._input(x))
        for chunk in unit.split(CHUNK):
            with torch.no_grad():
                yield [member(chunk) for member in self._members]

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Put every attribute back if something fails, so that nothing half-fitted survives."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
