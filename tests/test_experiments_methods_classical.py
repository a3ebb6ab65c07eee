"""Methods of scikit-learn: what is chosen, smoothed and returned; the exact GP by dense algebra."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch.testing import assert_close

from sikagp.experiments.methods import build_method
from sikagp.experiments.methods.base import Problem
from sikagp.experiments.methods.classical import ScikitLearn, boosting, nearest_neighbours
from sikagp.experiments.methods.exact import ExactGP

REGRESSION = Problem(2, 1, "regression", {}, {})
THREE_CLASSES = Problem(2, 3, "classification", {}, {})


def rows(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, 2, generator=generator)
    return x, x[:, 0].sin() + 0.3 * torch.randn(count, generator=generator)


def labelled(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = rows(count)
    return x, (y > -0.3).long() + (y > 0.3).long()


class Constant:
    """An estimator that predicts the same for all rows."""

    def __init__(self, value: float = 0.0, probabilities: tuple[float, ...] = ()) -> None:
        self.value, self.probabilities = value, np.array(probabilities)
        self.classes_ = np.arange(len(probabilities))

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.shape = x.shape, y.shape

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.value)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.tile(self.probabilities, (len(x), 1))


def test_the_estimator_with_the_most_likely_held_out_rows_is_kept():
    values = (5.0, 1.1, -3.0)
    method = ScikitLearn(lambda seed: map(Constant, values), REGRESSION, lambda found: 0.0)
    x, y = torch.randn(20, 2), torch.zeros(20)
    held = torch.randn(8, 2), torch.ones(8)
    report = method.fit((x, y), held, seed=0)
    assert method.estimator.value == 1.1
    assert method.estimator.shape == ((20, 2), (20,))
    assert (report.epochs, report.history) == (0, [])
    prediction = method.predict(x[:3])
    assert_close(prediction.mean, torch.full((3, 1), 1.1))
    assert_close(prediction.variance, torch.full((3, 1), 0.1**2), rtol=1e-4, atol=0)


def test_classifiers_are_chosen_by_their_likelihood_not_their_accuracy():
    sure, careful = (0.9, 0.05, 0.05), (0.4, 0.3, 0.3)
    estimators = [Constant(probabilities=p) for p in (sure, careful)]
    method = ScikitLearn(lambda seed: iter(estimators), THREE_CLASSES, lambda found: 0.0)
    held = torch.randn(10, 2), torch.tensor([0] * 4 + [1] * 3 + [2] * 3)
    method.fit((torch.randn(20, 2), torch.zeros(20).long()), held, seed=0)
    assert method.estimator is estimators[1]
    assert_close(method.predict(torch.randn(2, 2)), torch.tensor(careful).expand(1, 2, 3))


def test_frequencies_are_smoothed_by_one_more_neighbour():
    x, y = labelled()
    method = nearest_neighbours(THREE_CLASSES, neighbours=[4])
    method.fit((x, y), (x, y), seed=0)
    new = torch.randn(9, 2)
    plain = KNeighborsClassifier(4, weights="distance").fit(x.numpy(), y.numpy())
    expected = (4 * torch.from_numpy(plain.predict_proba(new.numpy())) + 1 / 3) / 5
    assert_close(method.predict(new)[0].double(), expected, rtol=1e-5, atol=1e-6)


def test_nearer_neighbours_count_more_unless_told_otherwise():
    x, y = rows()
    new = torch.randn(9, 2)
    for options, weights in (({}, "distance"), ({"weights": "uniform"}, "uniform")):
        method = nearest_neighbours(REGRESSION, neighbours=[5], **options)
        method.fit((x, y), None, seed=0)
        learned = method.estimator._fit_X
        assert len(learned) == 54  # a tenth is held out
        targets = torch.from_numpy(method.estimator._y).float()
        plain = KNeighborsRegressor(5, weights=weights).fit(learned, targets)
        expected = torch.from_numpy(plain.predict(new.numpy())).float()
        assert_close(method.predict(new).mean[:, 0], expected)


def test_boosting_tries_two_rates_and_stops_early():
    tried = list(boosting(REGRESSION).candidates(7))
    assert [estimator.learning_rate for estimator in tried] == [0.05, 0.1]
    for estimator in tried:
        assert (estimator.early_stopping, estimator.random_state) == (True, 7)
        assert estimator.max_iter == 500
    (only,) = boosting(REGRESSION, learning_rate=0.3, max_depth=2, max_iter=9).candidates(0)
    assert (only.learning_rate, only.max_depth, only.max_iter) == (0.3, 2, 9)


def test_several_targets_are_refused():
    with pytest.raises(ValueError, match="expected one target, got 2"):
        nearest_neighbours(Problem(2, 2, "regression", {}, {}))


def negative_log_density(x, y, lengthscale, scale, noise) -> torch.Tensor:
    """Of the marginal likelihood, per row, from the dense covariance of an RBF kernel."""
    gram = scale * torch.exp(-0.5 * torch.cdist(x, x).square() / lengthscale**2)
    gram = gram + noise * torch.eye(len(x), dtype=x.dtype)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), gram)
    return -normal.log_prob(y) / len(y)


def test_the_exact_gp_minimises_the_negative_log_marginal_likelihood():
    training = {"epochs": 3, "learning_rate": 0.01}
    method = ExactGP(Problem(2, 1, "regression", {}, training), kernel="rbf")
    x, y = rows()
    report = method.fit((x, y), None, seed=0)
    losses = [entry["loss"] for entry in report.history]
    # GPyTorch starts noise and scale at softplus(0), lengthscales at sqrt(2) here.
    start = negative_log_density(
        x.double(), y.double(), math.sqrt(2), math.log(2), math.log(2) + 1e-4
    )
    assert losses[0] == pytest.approx(start.item(), rel=1e-4)
    assert losses == sorted(losses, reverse=True)
    assert report.epochs == 3
    step = method.model.covar_module.base_kernel.raw_lengthscale.detach()
    start = math.log(math.expm1(math.sqrt(2)))
    assert_close((step - start).abs(), torch.full_like(step, 0.03), rtol=0.2, atol=0)


def test_as_many_rows_as_allowed_and_no_more():
    method = ExactGP(Problem(2, 1, "regression", {}, {"epochs": 1}), max_rows=60)
    method.fit(rows(60), None, seed=0)
    with pytest.raises(ValueError, match="max_rows = 60 rows, got 61; use svgp"):
        method.fit(rows(61), None, seed=0)


def test_the_exact_gp_has_defaults():
    sizes = {"in_features": 2, "out_features": 1, "task": "regression", "training": {}}
    method = build_method("exact-gp", **sizes, options={})
    assert (method.epochs, method.learning_rate) == (100, 0.05)
    assert (method.kernel, method.max_rows) == ("matern52", 6000)
    with pytest.raises(ValueError, match="one target"):
        build_method("exact-gp", **{**sizes, "out_features": 2}, options={})
