"""What estimators know beyond predictions: effects, streams, files; and quality on real data."""

import json
import os
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel, StationaryKernelMixin
from sklearn.model_selection import train_test_split
from torch.distributions import Categorical, MixtureSameFamily, StudentT

from sikagp import training
from sikagp.estimators import SIKAClassifier, SIKARegressor, base, recipes
from sikagp.estimators.pooling import Pooled
from sikagp.kernels import get_kernel
from sikagp.mixtures import GaussianMixture
from sikagp.models.predictor import Predictor
from sikagp.variational import GaussianMarginals

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("SIKAGP_DATA", ROOT.parent / "shared" / "data"))
KIN40K = DATA / "uci" / "kin40k"


def additive(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Effects of the first two of three features; the third is noise."""
    random = np.random.RandomState(0)
    X = random.uniform(-1, 1, (count, 3))
    return X, 10 * X[:, 0] + 20 * X[:, 1] ** 2 + 0.3 * random.randn(count)


@pytest.fixture(scope="module")
def model() -> SIKARegressor:
    return SIKARegressor(hidden=(), max_epochs=300, random_state=0).fit(*additive())


class AdditiveLaplace(StationaryKernelMixin, Kernel):
    """``sum_d v_d exp(-|x_d - y_d| / l_d)`` plus a constant, with nothing to optimise."""

    def __init__(self, variance, lengthscale, constant):
        self.variance, self.lengthscale, self.constant = variance, lengthscale, constant

    def __call__(self, X, Y=None, eval_gradient=False):
        distance = np.abs(X[:, None] - (X if Y is None else Y)[None]) / self.lengthscale
        return self.constant + (self.variance * np.exp(-distance)).sum(-1)

    def diag(self, X):
        return np.full(len(X), self.constant + self.variance.sum())


def test_the_mean_is_that_of_an_exact_gp(model):
    X, y = additive()
    layer, likelihood = model._members[0].model.layers[0], model._members[0].likelihood
    kernel = AdditiveLaplace(layer.variance.numpy(), layer.lengthscale.numpy(), 1.0)
    exact = GaussianProcessRegressor(kernel, alpha=likelihood.noise.item(), optimizer=None)
    exact.fit((X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std())
    grid = np.random.RandomState(1).uniform(-0.9, 0.9, (100, 3))
    mean = exact.predict((grid - X.mean(0)) / X.std(0)) * y.std() + y.mean()
    assert np.sqrt(np.mean((model.predict(grid) - mean) ** 2)) < 0.1 * y.std()


def test_effects_add_up_and_are_centred(model):
    X, _ = additive()
    parts = [model.component(d, X[:, d]) for d in range(3)]
    total = sum(part.mean for part in parts)
    np.testing.assert_allclose(np.ptp(model.predict(X) - total), 0, atol=1e-9)
    for part in parts:
        assert part.mean.mean() == pytest.approx(0, abs=1e-9)
        assert (part.variance > 0).all()


def test_effects_are_found(model):
    grid = np.linspace(-0.9, 0.9, 30)
    linear, square, nothing = (model.component(d, grid) for d in range(3))
    np.testing.assert_allclose(linear.mean, 10 * grid, atol=1.5)
    np.testing.assert_allclose(square.mean - square.mean.min(), 20 * grid**2, atol=3)
    assert np.abs(nothing.mean).max() < 1
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_.argmin() == 2
    assert model.feature_importances_[2] < 0.02


def test_importances_are_shares_of_the_variance_of_the_effects(model):
    X, _ = additive()
    variance = np.array([model.component(d, X[:, d]).mean.var() for d in range(3)])
    np.testing.assert_allclose(model.feature_importances_, variance / variance.sum(), rtol=1e-6)


def test_effects_relax_to_the_prior_beyond_the_data(model):
    near, far = model.component(0, [0.0]).variance, model.component(0, [50.0]).variance
    assert far > 5 * near


def test_components_are_drawn(model):
    axes = model.plot_components()
    assert [ax.get_xlabel() for ax in axes] == ["x0", "x1", "x2"]
    assert len(model.plot_components([1])) == 1
    matplotlib.pyplot.close("all")


def test_deep_models_have_no_components():
    deep = SIKARegressor(hidden=(3,), max_epochs=2).fit(*additive(30))
    with pytest.raises(ValueError, match="hidden=\\(\\)"):
        deep.component(0)
    with pytest.raises(AttributeError, match="permutation_importance"):
        _ = deep.feature_importances_


@pytest.mark.parametrize(("d", "output"), [(3, 0), (-4, 0), (0, 1)])
def test_components_out_of_range(model, d, output):
    with pytest.raises(ValueError, match="must be below"):
        model.component(d, output=output)


def test_streams_improve_the_model():
    X, y = additive(600)
    model = SIKARegressor(hidden=(), random_state=0)
    scores = []
    for start in range(0, 600, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
        scores.append(model.score(X, y))
    assert scores[-1] > max(0.8, scores[0])
    assert model.weight_seen_ == 600


def test_a_stream_counts_the_prior_once_for_all_rows(monkeypatch):
    shares = []

    def recorded(model, likelihood, data, config, **options):
        shares.append(config.kl_weight / len(data[0]))
        return training.fit(model, likelihood, data, config, **options)

    monkeypatch.setattr(base, "fit", recorded)
    X, y = additive(60)
    model = SIKARegressor(hidden=(), kl_weight=1.0, random_state=0)
    for rows in (slice(30), slice(30, 40), slice(40, 60)):
        model.partial_fit(X[rows], y[rows])
    assert shares == pytest.approx([1 / 30, 1 / 40, 1 / 60])


def test_linear_coefficients_of_a_classifier_have_one_prior_for_all_rows(monkeypatch):
    decays = []

    def recorded(model, likelihood, data, config, **options):
        decays.append(config.weight_decay)
        return training.fit(model, likelihood, data, config, **options)

    monkeypatch.setattr(base, "fit", recorded)
    X, y = additive(60)
    model = SIKAClassifier(max_epochs=1, random_state=0)
    for rows in (slice(30), slice(30, 40), slice(40, 60)):
        model.partial_fit(X[rows], y[rows] > 0, classes=[False, True])
    model.fit(X, y > 0, sample_weight=np.full(60, 2.0))
    expected = [recipes.TREND_PRECISION / rows for rows in (30, 40, 60, 120)]
    assert decays == pytest.approx(expected)
    SIKARegressor(max_epochs=1, random_state=0).fit(X, y)
    assert decays[-1] == 0


def test_fit_forgets_a_stream():
    X, y = additive(60)
    options = {"hidden": (), "max_epochs": 10, "random_state": 0}
    fresh = SIKARegressor(**options).fit(X, y)
    used = SIKARegressor(**options).partial_fit(X[:30], y[:30]).fit(X, y)
    np.testing.assert_array_equal(fresh.predict(X), used.predict(X))
    labels = np.where(y > 5, "b", "a")
    classes = SIKAClassifier(**options).partial_fit(X, labels, classes=["a", "b", "c"])
    assert classes.predict_proba(X).shape == (60, 3)
    assert classes.fit(X, labels).predict_proba(X).shape == (60, 2)


def test_save_and_load(model, tmp_path):
    X, y = additive()
    again = SIKARegressor.load(model.save(tmp_path / "regressor"))
    for one, other in zip(model.predict_interval(X), again.predict_interval(X), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(model.component(1).mean, again.component(1).mean)
    assert again.get_params()["max_epochs"] == 300
    assert again.partial_fit(X, y).score(X, y) > 0.9

    labels = np.where(y > 5, "high", "low")
    classifier = SIKAClassifier(hidden=(4,), n_estimators=2, max_epochs=5).fit(X, labels)
    loaded = SIKAClassifier.load(classifier.save(tmp_path / "classifier"))
    np.testing.assert_array_equal(loaded.predict(X), classifier.predict(X))
    assert not list(tmp_path.rglob("*.pkl"))


@pytest.mark.parametrize("hidden", [(), (3,)])
def test_nodes_follow_the_quantiles_of_features_with_long_tails(hidden, tmp_path):
    X, y = additive(60)
    X[:, 0] = np.exp(3 * X[:, 0])
    model = SIKARegressor(
        hidden=hidden, domain="quantiles", level=3, max_epochs=3, random_state=0
    ).fit(X, y)
    positions = model._members[0].model.layers[0].domain.positions[0].numpy()
    inner = positions[1:-1] * model._input.scale[0] + model._input.mean[0]
    share = (X[:, 0, None] < inner).mean(0)
    assert np.abs(share - np.arange(1, 8) / 8).max() < 0.25  # evenly spread nodes: 0.7
    again = SIKARegressor.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
def test_smooth_kernels_are_saved_too(kernel, tmp_path):
    X, y = additive(40)
    model = SIKARegressor(hidden=(), kernel=kernel, level=np.int64(2), max_epochs=3).fit(X, y)
    again = SIKARegressor.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()


def test_objects_cannot_be_saved(tmp_path):
    model = SIKARegressor(hidden=(), kernel=get_kernel("laplace"), max_epochs=1).fit(*additive(20))
    with pytest.raises(TypeError, match=r"kernel=.* cannot be saved"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_foreign_files_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match="no saved estimator"):
        SIKARegressor.load(tmp_path)
    folder = model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="holds a SIKARegressor"):
        SIKAClassifier.load(folder)
    content = json.loads((folder / "estimator.json").read_text())
    (folder / "estimator.json").write_text(json.dumps(content | {"format_version": 9}))
    with pytest.raises(ValueError, match="format version 9"):
        SIKARegressor.load(folder)
    (folder / "estimator.json").write_text(json.dumps(content | {"members": 0}))
    with pytest.raises(ValueError, match="checksum"):
        SIKARegressor.load(folder)
    (folder / "estimator.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        SIKARegressor.load(folder)


def test_pooled_quantiles_are_those_of_the_mixture():
    mean, variance = torch.randn(5, 4, 2).double(), torch.rand(5, 4, 2).double()
    mixture = GaussianMixture(GaussianMarginals(mean, variance))
    pooled = Pooled([mixture, mixture])
    np.testing.assert_allclose(pooled.mean, mixture.mean)
    np.testing.assert_allclose(pooled.stddev, mixture.stddev)
    for probability in (0.001, 0.3, 0.975):
        np.testing.assert_allclose(pooled.quantile(probability), mixture.quantile(probability))
    y = torch.randn(4, 1).double()
    alone = GaussianMixture(GaussianMarginals(mean[..., :1], variance[..., :1]))
    np.testing.assert_allclose(Pooled([alone]).log_prob(y.numpy())[:, 0], alone.log_prob(y))


def test_pooled_students_are_those_of_torch_and_scipy():
    degrees, center, scale, weight = 3 + torch.rand(4, 4, 2, 5, dtype=torch.float64)
    mixture = MixtureSameFamily(Categorical(weight), StudentT(degrees, center, scale))
    pooled = Pooled([mixture, mixture])
    np.testing.assert_allclose(pooled.mean, mixture.mean)
    np.testing.assert_allclose(pooled.stddev, mixture.stddev)
    below = stats.t.cdf(pooled.quantile(0.3)[..., None], degrees, center, scale)
    np.testing.assert_allclose((below * weight.numpy()).sum(-1) / weight.numpy().sum(-1), 0.3)
    y = torch.randn(4, 2).double()
    np.testing.assert_allclose(pooled.log_prob(y.numpy()), mixture.log_prob(y))


@pytest.mark.parametrize(("load", "least"), [(load_wine, 0.95), (load_breast_cancer, 0.93)])
def test_real_classes(load, least):
    X, X_test, y, y_test = train_test_split(*load(return_X_y=True), random_state=0, test_size=0.3)
    assert SIKAClassifier(random_state=0).fit(X, y).score(X_test, y_test) > least


def test_kin40k_in_a_short_run():
    if not KIN40K.exists():
        pytest.skip("kin40k is not here; set SIKAGP_DATA to a folder with uci/kin40k")
    rows = np.loadtxt(KIN40K / "data.csv.gz", delimiter=",", max_rows=6000)
    X, y = rows[:, :-1], rows[:, -1]
    model = SIKARegressor(max_epochs=8, random_state=0).fit(X[:5000], y[:5000])
    assert np.sqrt(np.mean((model.predict(X[5000:]) - y[5000:]) ** 2)) < 0.5
    low, high = model.predict_interval(X[5000:])
    assert ((low < y[5000:]) & (y[5000:] < high)).mean() > 0.92
    # After so few epochs the noise is still too large; but the intervals must have learned.
    assert (high - low).mean() < 0.6 * 2 * 1.96 * y.std()


def test_pairs_of_features_are_an_architecture_of_its_own(tmp_path):
    random = np.random.RandomState(0)
    X = random.uniform(-2, 2, (300, 2))
    y = X[:, 0] * X[:, 1] + 0.1 * random.randn(300)
    model = SIKARegressor(hidden="pairs", max_epochs=100, random_state=0).fit(X, y)
    assert model.hidden_ == "pairs"
    assert model.score(X, y) > 0.9
    with pytest.raises(ValueError, match="hidden=\\(\\)"):
        model.component(0, np.linspace(-2, 2, 3))
    model.save(tmp_path / "model")
    again = SIKARegressor.load(tmp_path / "model")
    assert again.hidden_ == "pairs"
    assert np.array_equal(again.predict(X), model.predict(X))


def test_too_many_pairs_are_refused():
    with pytest.raises(ValueError, match="150 features with 22500 terms, at most 20000"):
        SIKARegressor(hidden="pairs").fit(np.zeros((3, 150)), np.arange(3.0))


@pytest.mark.parametrize("classes", [2, 3])
def test_effects_of_a_classifier_add_up_with_its_trend(classes):
    X, y = additive(60)
    label = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    model = SIKAClassifier(hidden=(), n_estimators=2, max_epochs=20, random_state=0).fit(X, label)
    unit = torch.from_numpy(model._input(X))
    latent = torch.stack([member.model(unit).mean for member in model._members]).mean(0)
    for output in range(latent.shape[-1]):
        total = sum(model.component(d, X[:, d], output=output).mean for d in range(3))
        gap = latent[:, output].numpy() - total
        np.testing.assert_allclose(gap, gap[0], atol=1e-9)
        assert total.mean() == pytest.approx(0, abs=1e-9)


def test_a_save_that_fails_leaves_the_estimator_that_was_there(tmp_path, monkeypatch):
    X, y = additive(30)
    quick = {"hidden": (), "max_epochs": 2, "n_estimators": 2}
    old = SIKARegressor(**quick, random_state=0).fit(X, y)
    new = SIKARegressor(**quick, random_state=1).fit(100 * X, y)
    old.save(tmp_path)
    save, done = Predictor.save_pretrained, []

    def crash(member, folder):
        if done:
            raise KeyboardInterrupt
        done.append(save(member, folder))

    monkeypatch.setattr(Predictor, "save_pretrained", crash)
    with pytest.raises(KeyboardInterrupt):
        new.save(tmp_path)
    np.testing.assert_array_equal(SIKARegressor.load(tmp_path).predict(X), old.predict(X))
    monkeypatch.setattr(Predictor, "save_pretrained", save)
    new.save(tmp_path)
    np.testing.assert_array_equal(SIKARegressor.load(tmp_path).predict(X), new.predict(X))


def test_saving_fewer_members_leaves_none_behind(tmp_path):
    X, y = additive(30)
    (tmp_path / "members.txt").write_text("mine")
    (tmp_path / "members").mkdir()
    (tmp_path / "members" / "config.json").write_text("mine")
    for members in (range(3), range(3, 4)):
        model = SIKARegressor(hidden=(), max_epochs=1, n_estimators=len(members)).fit(X, y)
        model.save(tmp_path)
        names = {f"member{i}" for i in members} | {"estimator.json", "members.txt", "members"}
        assert {path.name for path in tmp_path.iterdir()} == names
