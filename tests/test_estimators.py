"""The estimators keep scikit-learn's contract, and what they say is in the user's units."""

import joblib
import numpy as np
import pandas as pd
import pytest
from gpytorch.likelihoods import SoftmaxLikelihood
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sikagp.estimators import SIKAClassifier, SIKARegressor
from sikagp.likelihoods import LogisticLikelihood

QUICK = {"max_epochs": 10, "random_state": 0}


@pytest.fixture(scope="module")
def wave() -> tuple[np.ndarray, np.ndarray]:
    """Two features, of which the first matters."""
    random = np.random.RandomState(0)
    X = random.uniform(-2, 2, (150, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * random.randn(150)


@pytest.fixture(scope="module")
def fitted(wave) -> SIKARegressor:
    return SIKARegressor(max_epochs=120, learning_rate=0.05, random_state=0).fit(*wave)


@pytest.fixture(scope="module")
def fitted_classifier(wave) -> SIKAClassifier:
    return SIKAClassifier(max_epochs=60, learning_rate=0.05, hidden=(), random_state=0).fit(
        wave[0], side(wave)
    )


def side(wave) -> np.ndarray:
    return np.where(wave[1] > 0, "up", "down")


@parametrize_with_checks(
    [
        SIKARegressor(max_epochs=40, learning_rate=0.05),
        SIKAClassifier(max_epochs=40, learning_rate=0.1, hidden=()),
    ]
)
def test_contract(estimator, check):
    check(estimator)


def test_fits_and_covers(fitted, wave):
    assert fitted.score(*wave) > 0.9
    low, high = fitted.predict_interval(wave[0])
    assert 0.88 < ((low < wave[1]) & (wave[1] < high)).mean() <= 1


def test_intervals_are_those_of_a_gaussian_for_an_additive_model(fitted, wave):
    mean, std = fitted.predict(wave[0], return_std=True)
    low, high = fitted.predict_interval(wave[0], level=0.95)
    np.testing.assert_allclose(low, mean - 1.959964 * std, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(high, mean + 1.959964 * std, rtol=1e-5, atol=1e-6)


def test_bands_widen_beyond_the_data(fitted):
    _, std = fitted.predict([[0.0, 0.0], [8.0, 0.0]], return_std=True)
    assert std[1] > 2 * std[0]


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_the_same_seed_gives_the_same_model(wave, hidden):
    models = [SIKARegressor(hidden=hidden, **QUICK).fit(*wave) for _ in range(2)]
    np.testing.assert_array_equal(models[0].predict(wave[0]), models[1].predict(wave[0]))
    other = SIKARegressor(hidden=hidden, max_epochs=10, random_state=1).fit(*wave)
    assert np.abs(models[0].predict(wave[0]) - other.predict(wave[0])).max() > 1e-6


def test_the_order_of_rows_does_not_matter(wave):
    X, y = wave
    there = SIKARegressor(**QUICK).fit(X, y).predict(X)
    back = SIKARegressor(**QUICK).fit(X[::-1], y[::-1]).predict(X)
    np.testing.assert_array_equal(there, back)


def test_units_of_target_and_inputs(wave):
    X, y = wave
    base = SIKARegressor(**QUICK).fit(X, y)
    moved = SIKARegressor(**QUICK).fit(X, 1024 * y)
    for one, other in zip(
        base.predict(X, return_std=True), moved.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(1024 * one, other, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_huge_and_tiny_scales(wave, scale):
    X, y = wave
    base = SIKARegressor(max_epochs=40, learning_rate=0.05, random_state=0).fit(X, y)
    model = SIKARegressor(max_epochs=40, learning_rate=0.05, random_state=0)
    model.fit(scale * X, scale * y)
    low, high = model.predict_interval(scale * X)
    assert np.isfinite(low).all()
    assert (low < high).all()
    assert model.score(scale * X, scale * y) == pytest.approx(base.score(X, y), abs=0.05)


def test_several_targets(wave):
    X, y = wave
    Y = np.column_stack([y, 100 + 10 * X[:, 1]])
    model = SIKARegressor(max_epochs=120, learning_rate=0.05, random_state=0).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (150, 2)
    assert model.score(X, Y) > 0.9
    assert model.sample_y(X, 3).shape == (150, 2, 3)
    assert model.component(1, output=1).mean.std() > 5


def test_draws_agree_with_predictions(fitted, wave):
    mean, std = fitted.predict(wave[0], return_std=True)
    draws = fitted.sample_y(wave[0], 2000, random_state=1)
    assert draws.shape == (150, 2000)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * std.max() / np.sqrt(2000))
    np.testing.assert_allclose(draws.std(1), std, rtol=0.15)
    np.testing.assert_array_equal(draws, fitted.sample_y(wave[0], 2000, random_state=1))


@pytest.mark.parametrize("likelihood", ["heteroscedastic", "student_t"])
def test_other_noise(wave, likelihood):
    model = SIKARegressor(likelihood=likelihood, max_epochs=100, learning_rate=0.05)
    model.set_params(random_state=0).fit(*wave)
    assert model.score(*wave) > 0.7
    mean, std = model.predict(wave[0], return_std=True)
    low, high = model.predict_interval(wave[0], level=0.9)
    assert ((low < mean) & (mean < high) & (std > 0)).all()
    wide = model.predict_interval(wave[0], level=0.99)
    assert ((wide[0] < low) & (high < wide[1])).all()
    assert 0.8 < ((low < wave[1]) & (wave[1] < high)).mean() <= 1
    np.testing.assert_allclose(model.sample_y(wave[0], 500).mean(1), mean, atol=0.3)


def test_several_members(wave):
    model = SIKARegressor(n_estimators=3, hidden=(4,), **QUICK).fit(*wave)
    assert len(model.results_) == 3
    mean, std = model.predict(wave[0], return_std=True)
    np.testing.assert_allclose(model.sample_y(wave[0], 600).mean(1), mean, atol=5 * std.max() / 20)


def test_weights_count_in_fit_and_score(wave):
    X, y = wave
    weight = np.random.RandomState(1).randint(0, 3, len(X))
    weighted = SIKARegressor(hidden=(4,), **QUICK).fit(X, y, sample_weight=weight)
    repeated = SIKARegressor(hidden=(4,), **QUICK).fit(X.repeat(weight, 0), y.repeat(weight))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert weighted.score(X, y, sample_weight=weight) != weighted.score(X, y)


def test_string_labels_and_probabilities(fitted_classifier, wave):
    assert list(fitted_classifier.classes_) == ["down", "up"]
    assert fitted_classifier.score(wave[0], side(wave)) > 0.85
    probability = fitted_classifier.predict_proba(wave[0])
    np.testing.assert_allclose(probability.sum(1), 1)
    assert set(fitted_classifier.predict(wave[0])) == {"down", "up"}


def test_two_classes_have_a_logistic_link_and_more_a_softmax(wave):
    thirds = np.digitize(wave[1], np.quantile(wave[1], [1 / 3, 2 / 3]))
    for labels, kind in ((side(wave), LogisticLikelihood), (thirds, SoftmaxLikelihood)):
        model = SIKAClassifier(max_epochs=1, hidden=()).fit(wave[0], labels)
        assert isinstance(model._members[0].likelihood, kind)


def test_links_agree(wave):
    models = [
        SIKAClassifier(
            likelihood=name, max_epochs=60, learning_rate=0.05, hidden=(), random_state=0
        ).fit(wave[0], side(wave))
        for name in ("logistic", "bernoulli", "softmax")
    ]
    logistic, probit, softmax = (model.predict_proba(wave[0]) for model in models)
    assert np.abs(probit - softmax).mean() < 0.1
    assert np.abs(logistic - softmax).mean() < 0.1


def test_frames_keep_their_names(wave):
    frame = pd.DataFrame(wave[0], columns=["width", "height"])
    model = SIKARegressor(**QUICK).fit(frame, wave[1])
    assert list(model.feature_names_in_) == ["width", "height"]
    assert model.component("width").grid[0] == frame["width"].min()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["height", "width"]])
    with pytest.raises(ValueError, match="no feature is called 'depth'"):
        model.component("depth")


def test_pipelines_searches_and_processes(wave):
    pipeline = make_pipeline(StandardScaler(), SIKARegressor(**QUICK))
    search = GridSearchCV(pipeline, {"sikaregressor__level": np.array([2, 3])}, cv=2)
    assert search.fit(*wave).best_params_["sikaregressor__level"] in (2, 3)


def test_worker_processes_give_the_same_scores(wave):
    alone, shared = (
        cross_val_score(SIKARegressor(**QUICK), *wave, cv=2, n_jobs=jobs) for jobs in (1, 2)
    )
    np.testing.assert_allclose(alone, shared, rtol=1e-6)
    search = GridSearchCV(SIKARegressor(**QUICK), {"level": [2, 3]}, cv=2, n_jobs=2)
    assert search.fit(*wave).best_estimator_.level in (2, 3)


def test_clone_and_pickle(fitted, wave, tmp_path):
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(wave[0])
    joblib.dump(fitted, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.predict(wave[0]), fitted.predict(wave[0]))


def test_sparse_input_is_refused(wave):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        SIKARegressor().fit(sparse.csr_matrix(wave[0]), wave[1])


def test_early_stopping(wave):
    model = SIKARegressor(validation_fraction=0.2, patience=2, max_epochs=100, random_state=0)
    assert model.fit(*wave).results_[0].best_epoch is not None
