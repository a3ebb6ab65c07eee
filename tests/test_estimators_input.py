"""Bad and awkward input: clear errors, and nothing half-fitted survives them."""

import numpy as np
import pytest

from sikagp.estimators import SIKAClassifier, SIKARegressor

QUICK = {"max_epochs": 10, "random_state": 0}


def rows(count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.RandomState(0).randn(count, 3)
    return X, X[:, 0] + 0.1 * X[:, 1]


@pytest.mark.parametrize("constant", [0.0, 7.0, 0.1, 1e12, -1e-12])
def test_constant_features_change_nothing(constant):
    X, y = rows()
    X[:, 1] = constant
    model = SIKARegressor(**QUICK).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.feature_importances_[1] == pytest.approx(0, abs=1e-12)


def test_constant_target():
    X, _ = rows()
    mean, std = SIKARegressor(**QUICK).fit(X, np.full(40, 5.0)).predict(X, return_std=True)
    assert np.abs(mean - 5).max() < 1
    assert np.isfinite(std).all()


def test_one_row():
    model = SIKARegressor(**QUICK).fit([[1.0, 2.0]], [3.0])
    assert model.predict([[1.0, 2.0]]) == pytest.approx(3, abs=1)
    assert np.isfinite(model.predict_interval([[5.0, 2.0]])).all()


def test_duplicate_rows():
    X, y = rows(10)
    model = SIKARegressor(**QUICK).fit(X.repeat(20, 0), y.repeat(20))
    assert np.isfinite(model.predict(X)).all()
    same = SIKARegressor(**QUICK).fit(np.ones((30, 2)), np.arange(30.0))
    assert same.predict(np.ones((1, 2))) == pytest.approx(14.5, abs=5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_numbers_must_be_finite(value, where):
    X, y = rows()
    if where == "X":
        X[3, 1] = value
    else:
        y[3] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        SIKARegressor(**QUICK).fit(X, y)


@pytest.mark.parametrize("estimator", [SIKARegressor, SIKAClassifier])
def test_too_many_features_are_refused(estimator):
    X = np.zeros((2, 100_000))
    with pytest.raises(ValueError, match="100000 features, at most 20000"):
        estimator(**QUICK).fit(X, [0, 1])


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least two classes"):
        SIKAClassifier(**QUICK).fit(rows()[0], np.zeros(40))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": "deep"}, "hidden must be 'auto'"),
        ({"hidden": (0,)}, "each number of units in hidden must be at least 1, got 0"),
        ({"kl_weight": -1.0}, "kl_weight must not be negative, got -1.0"),
        ({"kl_weight": np.nan}, "kl_weight must be finite"),
        ({"device": "nowhere"}, "nowhere"),
        ({"level": 0}, "level must be at least 1"),
        ({"kernel": "cubic"}, "kernel must be one of"),
        ({"domain": "log"}, "domain must be one of"),
        ({"likelihood": "poisson"}, "likelihood must be one of"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"patience": 3}, "patience needs held-out rows"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_options_are_checked_in_fit(options, message):
    model = SIKARegressor(**QUICK | options)
    with pytest.raises(ValueError, match=message):
        model.fit(*rows())
    assert set(vars(model)) == set(model.get_params())


@pytest.mark.parametrize("weight", [np.zeros(40), -np.ones(40), np.ones(39)])
def test_weights_must_make_sense(weight):
    with pytest.raises(ValueError, match="weight"):
        SIKARegressor(**QUICK).fit(*rows(), sample_weight=weight)


def test_a_failed_fit_leaves_the_old_model():
    X, y = rows()
    model = SIKARegressor(**QUICK).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X[:, :2], np.full(40, np.nan))
    with pytest.raises(ValueError, match="diverged"):
        model.set_params(learning_rate=1e30).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_failed_first_fit_leaves_nothing():
    model = SIKARegressor(learning_rate=1e30, max_epochs=20)
    with pytest.raises(ValueError, match="diverged"):
        model.fit(*rows())
    assert set(vars(model)) == set(model.get_params())


def test_unseen_classes_are_refused():
    X, y = rows()
    label = np.where(y > 0, "b", "a")
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        SIKAClassifier(**QUICK).partial_fit(X, label)
    model = SIKAClassifier(**QUICK).partial_fit(X, label, classes=["a", "b"])
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="not among"):
        model.partial_fit(X, np.where(y > 0, "c", "a"))
    with pytest.raises(ValueError, match="not those of the first call"):
        model.partial_fit(X, label, classes=["a", "b", "c"])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(ValueError, match="not among"):
        SIKAClassifier(**QUICK).partial_fit(X, label, classes=["a", "z"])


def test_other_numbers_of_targets_are_refused():
    X, y = rows()
    model = SIKARegressor(**QUICK).partial_fit(X, y)
    with pytest.raises(ValueError, match="fitted with 1 targets"):
        model.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], y)


@pytest.mark.parametrize(
    "options", [{"hidden": None}, {"level": "fine"}, {"learning_rate": "fast"}, {"kl_weight": "no"}]
)
def test_options_have_the_right_type(options, as_users_run):
    name, value = next(iter(options.items()))
    with pytest.raises(TypeError, match=f"{name} must be .*, got {value!r}$"):
        SIKARegressor(**QUICK | options).fit(*rows())


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device 'cuda' is not there"):
        SIKARegressor(**QUICK, device="cuda").fit(*rows())


@pytest.mark.parametrize("hidden", [[3, 2], np.array([3, 2]), (np.int64(3), 2)])
def test_hidden_units_may_come_as_any_sequence(hidden):
    assert SIKARegressor(**QUICK | {"hidden": hidden}).fit(*rows()).hidden_ == (3, 2)


def test_numbers_that_overflow_are_refused():
    X, y = rows()
    with pytest.raises(ValueError, match=r"must not exceed 1e\+150 in size, column 0 holds"):
        SIKARegressor(**QUICK).fit(X, y * 1e300)
    X[:, 1] *= -1e300
    with pytest.raises(ValueError, match="column 1 holds"):
        SIKAClassifier(**QUICK).fit(X, y > 0)


def test_numbers_of_samples_may_be_numpy_s(as_users_run):
    X, y = rows()
    assert SIKARegressor(**QUICK).fit(X, y).sample_y(X, np.int64(2)).shape == (40, 2)
