"""Models over pairs of features: prior, symmetries, and the estimators that use them."""

import math

import numpy as np
import pytest
import torch
from helpers import assert_close, randomize

from sikagp.basis import dense_features
from sikagp.estimators import SIKAClassifier, SIKARegressor
from sikagp.models import DeepGP
from sikagp.models.architecture import with_pairs
from sikagp.training import refine

QUICK = {"hidden": "pairs", "max_epochs": 5, "random_state": 0}


def paired(features: int = 3, outputs: int = 2, **options) -> DeepGP:
    model = DeepGP((features, outputs), pairs=True, level=3, **options).double()
    randomize(model.layers[0])
    return model.eval()


def rows(count: int = 60, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    X = random.randn(count, features)
    return X, X[:, 0] * X[:, -1] + 0.1 * random.randn(count)


def test_the_prior_is_a_sum_over_features_sums_and_differences():
    """``sum_d v_d k(x_d, y_d)``, and the same for (x_i +- x_j) / sqrt 2, by hand."""
    model = paired(kernel="matern52", lengthscale=1.5, domain=(-6.0, 6.0))
    layer, x = model.layers[0], torch.randn(6, 3, dtype=torch.float64)
    layer.refine(8)  # so fine that the grid misses nothing
    phi = dense_features(layer.features(with_pairs(x, 3)), 3 * layer.num_nodes)
    found = torch.einsum("adm,bdm,d->ab", phi, phi, layer.variance)
    expected = torch.zeros(6, 6, dtype=torch.float64)
    directions = [*torch.eye(3).double()]
    for sign in (1, -1):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            direction = torch.zeros(3).double()
            direction[i], direction[j] = 1 / math.sqrt(2), sign / math.sqrt(2)
            directions.append(direction)
    for v, ell, direction in zip(layer.variance, layer.lengthscale, directions, strict=True):
        t = x @ direction
        r = math.sqrt(5) * (t[:, None] - t).abs() / ell
        expected += v * (1 + r + r**2 / 3) * torch.exp(-r)
    torch.testing.assert_close(found, expected, atol=1e-8, rtol=0)


def test_pairs_are_an_orthogonal_turn_of_two_features():
    x = torch.randn(7, 2, dtype=torch.float64)
    turned = with_pairs(x, 2)[:, 2:]
    assert_close(turned.square().sum(1), x.square().sum(1))
    assert_close(turned[:, 0] * turned[:, 1], (x[:, 0] ** 2 - x[:, 1] ** 2) / 2)
    assert torch.equal(with_pairs(x[:, :1], 1), x[:, :1])  # one feature has no partner


def test_swapping_two_features_swaps_their_effects_only():
    """Sums do not notice, and differences change their sign."""
    model, x = paired(2), torch.randn(9, 2, dtype=torch.float64)
    mirrored = paired(2)
    mirrored.load_state_dict(model.state_dict())
    swap = torch.tensor([1, 0, 2, 3])
    with torch.no_grad():
        for name, parameter in mirrored.layers[0].named_parameters():
            if not name.startswith(("bias", "raw_bias")):
                parameter.copy_(parameter[swap])
    terms = with_pairs(x, 2) * torch.tensor([1, 1, 1, -1])
    assert_close(model(x.flip(-1)).mean, mirrored.layers[0](terms).mean)
    assert_close(model(x.flip(-1)).variance, mirrored.layers[0](terms).variance)


def test_leading_dimensions_are_rows_like_any_others():
    model, x = paired(), torch.randn(2, 4, 3, dtype=torch.float64)
    assert_close(model(x).mean.flatten(0, 1), model(x.flatten(0, 1)).mean)
    assert_close(
        model.paths(3, generator=torch.Generator().manual_seed(0))(x).flatten(1, 2),
        model.paths(3, generator=torch.Generator().manual_seed(0))(x.flatten(0, 1)),
    )


def test_gradients_reach_the_features_through_their_pairs():
    model = paired()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    x = (0.3 + 0.01 * torch.randn(2, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(x).mean, x)


def test_refining_changes_no_mean():
    model, x = paired(), torch.randn(5, 3, dtype=torch.float64)
    before = model(x).mean
    refine(model, 5)
    assert model.layers[0].level == 5
    assert model.in_features == 3
    assert_close(model(x).mean, before)


@pytest.mark.parametrize("domain", ["range", "quantiles"])
def test_grids_cover_sums_and_differences(domain):
    X, y = rows()
    X[:, 1] = X[:, 0] + 10  # their sum is wide, their difference a single number
    model = SIKARegressor(**QUICK, domain=domain).fit(X, y)
    terms = with_pairs(torch.from_numpy(model._input(X)), 3)
    unit = model._members[0].model.layers[0].domain(terms)
    assert unit.min() > 0
    assert unit.max() < 1
    varying = terms.std(0) > 1e-9
    assert (unit.amax(0) - unit.amin(0))[varying].min() > 0.5


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "student_t"])
def test_several_targets_with_all_kinds_of_noise(likelihood):
    X, y = rows()
    Y = np.column_stack([y, 100 * y])
    model = SIKARegressor(**QUICK, likelihood=likelihood, n_estimators=2).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    low, high = model.predict_interval(X, 0.8)
    assert mean.shape == std.shape == low.shape == Y.shape
    assert (low < high).all()
    assert 50 < std[:, 1].mean() / std[:, 0].mean() < 200  # each in its own units
    assert model.sample_y(X, 3).shape == (60, 2, 3)


def test_weights_are_repetitions():
    X, y = rows(40)
    weight = np.random.RandomState(1).randint(0, 3, 40)
    weighted = SIKARegressor(**QUICK).fit(X, y, sample_weight=weight)
    repeated = SIKARegressor(**QUICK).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_a_stream_goes_on_with_the_same_grids():
    X, y = rows()
    model = SIKARegressor(**QUICK).partial_fit(X[:30], y[:30])
    low = model._members[0].model.layers[0].domain.low.clone()
    before = model.predict(X)
    model.partial_fit(X[30:], y[30:])
    assert model.hidden_ == "pairs"
    assert torch.equal(model._members[0].model.layers[0].domain.low, low)
    assert np.abs(model.predict(X) - before).max() > 0
    assert model.weight_seen_ == 60


def test_constant_and_repeated_features_do_no_harm():
    X, y = rows()
    wide = np.column_stack([X, np.ones(60), X[:, 0]])
    model = SIKARegressor(**QUICK).fit(wide, y)
    mean, std = model.predict(wide, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_effects_of_single_features_do_not_exist():
    model = SIKARegressor(**QUICK).fit(*rows())
    with pytest.raises(ValueError, match="additive model only"):
        model.component(0)
    with pytest.raises(AttributeError, match="additive model only"):
        _ = model.feature_importances_


def test_classifiers_know_pairs_too():
    random = np.random.RandomState(0)
    X = random.uniform(-2, 2, (300, 2))
    label = np.where(X.prod(1) > 0, "same", "other")
    model = SIKAClassifier(hidden="pairs", max_epochs=60, random_state=0).fit(X, label)
    assert model.hidden_ == "pairs"
    assert model.score(X, label) > 0.9  # an additive model cannot tell them apart
