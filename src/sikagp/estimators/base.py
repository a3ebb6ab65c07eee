"""What regressor and classifier share: validation, training, streaming and evaluation."""

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from sikagp.estimators import recipes
from sikagp.estimators.preparation import (
    Rows,
    Split,
    Standardiser,
    check_features,
    hold_out,
    merge_rows,
)
from sikagp.likelihoods import build_likelihood, num_outputs
from sikagp.models.predictor import Predictor
from sikagp.training import FitResult, fit
from sikagp.validation import check_count

# Rows that are predicted at once; a deep model needs memory for all its samples of each.
CHUNK = 2048
PARTIAL_PASSES = 10


class Trial(NamedTuple):
    """Members of one architecture, and what their training reported."""

    members: list[Predictor]
    results: list[FitResult]


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
        kernel: Any = "auto",
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
            self._fit_best(rows)
            self._finish(rows)
        return self

    def _fit_best(self, rows: Rows) -> None:
        """Train the architectures in question and keep the best.

        Those that fall behind early are not trained to the end.
        """
        choices = self._choices(rows)
        split = self._hold_out(rows, choices)
        plan = self._plan(split.learned, self.max_epochs)
        if len(choices) > 1:
            brief = [self._try(hidden, split, recipes.brief(plan)) for hidden in choices]
            choices = recipes.close(choices, [self._score(trial, split) for trial in brief])
        trials = [self._concluded(self._try(hidden, split, plan), split) for hidden in choices]
        if len(trials) > 1:
            trials.sort(key=lambda trial: self._score(trial, split), reverse=True)
        self._members, self.results_ = trials[0]

    def _try(self, hidden: recipes.Hidden, split: Split, plan: recipes.Schedule) -> Trial:
        self._members = self._build(split.rows, hidden)
        decay = self._weight_decay(float(split.learned.weight.sum()))
        results = self._train(split.learned, plan, kl_weight=self._kl_weight(), weight_decay=decay)
        self._calibrate(split)
        return Trial(self._members, results)

    @property
    def hidden_(self) -> recipes.Hidden:
        """Units of the hidden layers or ``"pairs"``, as given or as chosen."""
        check_is_fitted(self)
        model: Any = self._members[0].model
        if model.pairs:
            return recipes.PAIRS
        return tuple(layer.out_features for layer in model.layers[:-1])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    @abstractmethod
    def _architectures(self) -> tuple[list[recipes.Hidden], list[recipes.Hidden]]:
        """Architectures that ``hidden="auto"`` tries for few rows, and for a medium number."""

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

    def _hold_out(self, rows: Rows, choices: list[recipes.Hidden]) -> Split:
        """Set rows aside, if any of the architectures needs some."""
        return hold_out(rows, 0)

    def _calibrate(self, split: Split) -> None:
        """Adjust freshly trained members to the rows held out."""

    def _concluded(self, trial: Trial, split: Split) -> Trial:
        """Members that were trained to the end, with what is left to do with them."""
        return trial

    def _score(self, trial: Trial, split: Split) -> float:
        """Log density of the rows held out; the same for all unless overridden."""
        return 0.0

    def _finish(self, rows: Rows) -> None:
        """Note what follows from the trained model and its rows."""

    def _go_on(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Make a few passes over further rows, from the current parameters on."""
        with self._all_or_nothing():
            first = not hasattr(self, "_members")
            rows = self._rows(X, y, sample_weight, reset=first)
            if first:
                self._start(rows)
                self._members = self._build(rows, self._choices(rows)[0])
            else:
                self._members = copy.deepcopy(self._members)
            seen = float(rows.weight.sum()) + (0.0 if first else self.weight_seen_)
            plan = self._plan(rows, PARTIAL_PASSES)
            # The KL divergence is counted once for all rows seen so far, not for these alone.
            share = float(rows.weight.sum()) / seen
            self._train(
                rows,
                plan,
                kl_weight=self._kl_weight() * share,
                weight_decay=self._weight_decay(seen),
                schedule="constant",
            )
            self.weight_seen_ = seen
            self._finish(rows)

    def _rows(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Rows:
        x, target = self._validated(X, y, reset=reset)
        check_features(x.shape[1], pairs=recipes.over_pairs(self.hidden))
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, x, ensure_non_negative=True)
        return merge_rows(x, target, sample_weight)

    def _plan(self, rows: Rows, epochs: Any) -> recipes.Schedule:
        options = epochs, self.batch_size, self.learning_rate
        return recipes.plan_schedule(len(rows.x), *options, classification=is_classifier(self))

    def _start(self, rows: Rows) -> None:
        """Standardise by these rows and draw the seeds of all members."""
        random = check_random_state(self.random_state)
        count = check_count("n_estimators", self.n_estimators)
        self._seeds = random.randint(2**31 - 1, size=count).tolist()
        self._input = Standardiser.fit(rows.x, rows.weight)
        self.weight_seen_ = float(rows.weight.sum())

    def _kl_weight(self) -> float:
        return recipes.prior_weight(self.kl_weight, classification=is_classifier(self))

    def _weight_decay(self, rows: float) -> float:
        return recipes.weight_decay(rows, classification=is_classifier(self))

    def _choices(self, rows: Rows) -> list[recipes.Hidden]:
        """Architectures in question."""
        return recipes.hidden_sizes(self.hidden, len(rows.x), *self._architectures())

    def _build(self, rows: Rows, hidden: recipes.Hidden) -> list[Predictor]:
        """Fresh models with grids for these rows."""
        x = torch.from_numpy(self._input(rows.x)).float()
        level = recipes.grid_level(self.level, len(x), classification=is_classifier(self))
        name, targets = self._likelihood_name(), self._num_targets()
        members = []
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
                    num_samples=check_count("num_samples", self.num_samples),
                    classification=is_classifier(self),
                )
            members.append(Predictor(model, build_likelihood(name, targets)))
        return members

    def _train(self, rows: Rows, plan: recipes.Schedule, **options: Any) -> list[FitResult]:
        """Train every member on the same rows, in single precision."""
        x = torch.from_numpy(self._input(rows.x)).float()
        once = (x, self._targets(rows.y), torch.from_numpy(rows.weight).float())
        data = [part.repeat(plan.passes, *[1] * (part.ndim - 1)) for part in once]
        trainer = {
            "enable_progress_bar": bool(self.verbose),
            "accelerator": recipes.accelerator(self.device),
        }
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
        return self._evaluate(x)

    def _evaluate(self, x: np.ndarray) -> Iterator[list[Any]]:
        for chunk in torch.from_numpy(self._input(x)).split(CHUNK):
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
