"""Every method through the one interface: it learns, repeats itself, and knows its limits."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sikagp import GaussianMixture
from sikagp.experiments.methods import METHODS, Method, build_method, timing
from sikagp.experiments.methods.noise import as_column, residual_noise, with_noise

ROWS, TRAIN, HELD = 260, 200, 230
REGRESSION_ONLY, CLASSIFICATION_ONLY = {"kiss-gp", "exact-gp"}, {"svdkl"}
SMALL = {
    "deep-sika": {"hidden": [4], "level": 2, "num_samples": [2, 6]},
    "sika": {"level": 2, "lengthscale": 3.0},
    "paper-sika": {"hidden": [4], "num_samples": [2, 6]},
    "dense-dgp": {"hidden": [4], "level": 2, "num_samples": [2, 6], "kernel": "rbf"},
    "dense-dak": {"level": 2, "learn_lengthscale": False},
    "bnn": {"hidden": [8], "num_samples": [2, 6]},
    "svgp": {"num_points": 12},
    "kiss-gp": {"num_points": 12},
    "svdkl": {"num_points": 12},
    "gpytorch-dgp": {"hidden": [2], "num_points": 12, "num_samples": [2, 6]},
    "network": {"hidden": [16]},
    "mc-dropout": {"hidden": [16], "num_samples": 10},
    "ensemble": {"hidden": [16], "members": 2},
    "boosting": {"max_iter": 20},
}
TRAINING = {"epochs": 12, "batch_size": 50, "learning_rate": 0.03}


def rows(task: str) -> tuple[Tensor, Tensor]:
    """Two features, of which the sum decides nearly everything."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 2, generator=generator)
    y = x.sum(1) / math.sqrt(2)
    if task == "classification":
        return x, (y > -0.5).long() + (y > 0.5).long()
    return x, y + 0.1 * torch.randn(ROWS, generator=generator)


def make(name: str, task: str, **options: object) -> Method:
    return build_method(
        name,
        in_features=2,
        out_features=1 if task == "regression" else 3,
        task=task,
        options={**SMALL.get(name, {}), **options},
        training={**TRAINING, "learning_rate": 0.1} if name == "sika" else TRAINING,
    )


def fit(method: Method, task: str, *, seed: int = 0, held_out: bool = True, **options: object):
    x, y = rows(task)
    validation = (x[TRAIN:HELD], y[TRAIN:HELD]) if held_out else None
    return method.fit((x[:TRAIN], y[:TRAIN]), validation, seed=seed, **options)


@pytest.mark.parametrize("name", [n for n in METHODS if n not in CLASSIFICATION_ONLY])
def test_regression_beats_the_mean(name):
    method = make(name, "regression")
    report = fit(method, "regression")
    x, y = rows("regression")
    prediction = method.predict(x[HELD:])
    assert isinstance(prediction, GaussianMixture)
    assert prediction.mean.shape == (ROWS - HELD, 1)
    error = (prediction.mean.squeeze(-1) - y[HELD:]).square().mean().sqrt()
    assert error < 0.8 * y[HELD:].std()
    assert prediction.components.variance.min() > 0
    assert report.seconds > 0
    assert len(report.history) == report.epochs


@pytest.mark.parametrize(
    ("name", "options"),
    [*((n, {}) for n in METHODS if n not in REGRESSION_ONLY), ("dense-dak", {"num_draws": 4})],
)
def test_classification_beats_the_most_frequent_class(name, options):
    method = make(name, "classification", **_few_samples(name), **options)
    fit(method, "classification")
    x, y = rows("classification")
    draws = method.predict(x[HELD:])
    assert draws.shape[1:] == (ROWS - HELD, 3)
    torch.testing.assert_close(draws.sum(-1), torch.ones(draws.shape[:2]))
    assert draws.min() > 0
    accuracy = (draws.mean(0).argmax(-1) == y[HELD:]).float().mean()
    assert accuracy > y[HELD:].bincount().max() / len(y[HELD:]) + 0.1


def _few_samples(name: str) -> dict[str, int]:
    fixed = {"network", "mc-dropout", "ensemble", "knn", "boosting"}
    return {} if name in fixed else {"train_samples": 4, "test_samples": 8}


@pytest.mark.parametrize("name", ["deep-sika", "network", "knn", "boosting"])
def test_a_seed_fixes_everything_and_held_out_rows_are_optional(name):
    x, _ = rows("regression")
    means = []
    for seed in (3, 3, 4):
        method = make(name, "regression")
        fit(method, "regression", seed=seed, held_out=False)
        means.append(method.predict(x[HELD:]).mean)
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=0)
    assert not torch.equal(means[0], means[2])


def test_a_finished_run_is_not_trained_again(tmp_path):
    first, second = make("sika", "regression"), make("sika", "regression")
    report = fit(first, "regression", folder=tmp_path)
    again = fit(second, "regression", folder=tmp_path)
    assert again.history == report.history
    x, _ = rows("regression")
    torch.testing.assert_close(second.predict(x).mean, first.predict(x).mean)


@pytest.mark.parametrize(
    ("period", "progress", "lines"), [(0, False, 12), (0, True, 0), (60, False, 0)]
)
def test_long_runs_without_a_bar_say_how_far_they_are(monkeypatch, caplog, period, progress, lines):
    monkeypatch.setattr(timing, "PERIOD", period)
    caplog.set_level("INFO", "sikagp.experiments")
    report = fit(make("network", "regression"), "regression", progress=progress)
    losses = [entry["loss"] for entry in report.history]
    expected = [f"epoch {n} of 12: loss {loss:.4f}" for n, loss in enumerate(losses, 1)]
    assert caplog.messages == expected[:lines]


def test_an_ensemble_is_the_mixture_of_its_members():
    ensemble = make("ensemble", "regression")
    fit(ensemble, "regression")
    x, _ = rows("regression")
    parts = [member.predict(x) for member in ensemble.members]
    assert not torch.equal(parts[0].mean, parts[1].mean)
    whole = ensemble.predict(x)
    assert len(whole) == 2
    torch.testing.assert_close(whole.mean, (parts[0].mean + parts[1].mean) / 2)
    density = (parts[0].log_prob(x[:, :1]).exp() + parts[1].log_prob(x[:, :1]).exp()) / 2
    torch.testing.assert_close(whole.log_prob(x[:, :1]).exp(), density)


def test_a_network_s_noise_is_its_error_on_held_out_rows():
    method = make("network", "regression")
    fit(method, "regression")
    x, y = rows("regression")
    prediction = method.predict(x[TRAIN:HELD])
    expected = (prediction.mean.squeeze(-1) - y[TRAIN:HELD]).square().mean()
    torch.testing.assert_close(prediction.variance, expected.expand(HELD - TRAIN, 1))


def test_noise_of_several_samples_is_the_most_likely_one():
    y = torch.randn(300, 1)
    mean = y + torch.tensor([0.1, 0.5, -0.4]).view(3, 1, 1) * torch.randn(3, 300, 1)
    found = residual_noise(mean, y)
    grid = torch.logspace(-3, 1, 400)
    scores = torch.stack([with_noise(mean, noise.view(1)).log_prob(y).mean() for noise in grid])
    torch.testing.assert_close(found, grid[scores.argmax()].view(1), rtol=0.03, atol=0)
    torch.testing.assert_close(residual_noise(mean[:1], y)[0], (mean[0] - y).square().mean())


def test_exact_gp_predicts_by_the_dense_formula():
    method = make("exact-gp", "regression", kernel="rbf")
    fit(method, "regression")
    x, y = (part.double() for part in rows("regression"))
    model = method.model
    scale, length = (
        model.covar_module.outputscale.double(),
        model.covar_module.base_kernel.lengthscale,
    )
    noise, constant = method.likelihood.noise.double(), model.mean_module.constant.double()

    def covariance(a: Tensor, b: Tensor) -> Tensor:
        a, b = a / length.double(), b / length.double()
        return scale * torch.exp(-0.5 * torch.cdist(a, b).square())

    known, new = x[:TRAIN], x[HELD:]
    gram = covariance(known, known) + noise * torch.eye(TRAIN, dtype=torch.float64)
    cross = covariance(new, known)
    mean = constant + cross @ torch.linalg.solve(gram, y[:TRAIN] - constant)
    variance = scale + noise - (cross * torch.linalg.solve(gram, cross.T).T).sum(-1)
    prediction = method.predict(rows("regression")[0][HELD:])
    torch.testing.assert_close(prediction.mean.squeeze(-1).double(), mean, atol=2e-3, rtol=0)
    torch.testing.assert_close(
        prediction.variance.squeeze(-1).double(), variance, atol=2e-3, rtol=0.02
    )


def test_neighbours_are_chosen_on_held_out_rows():
    x, y = rows("regression")
    scores = {}
    for count in (1, 8):
        method = make("knn", "regression", neighbours=[count])
        fit(method, "regression")
        held = method.predict(x[TRAIN:HELD])
        scores[count] = float(held.log_prob(as_column(y[TRAIN:HELD])).mean())
    chooser = make("knn", "regression", neighbours=[1, 8])
    fit(chooser, "regression")
    assert chooser.estimator.n_neighbors == max(scores, key=scores.get)


def test_boosting_knows_classes_that_training_did_not_show():
    x, y = rows("classification")
    method = make("boosting", "classification")
    seen = y[:TRAIN] != 1
    method.fit((x[:TRAIN][seen], y[:TRAIN][seen]), (x[TRAIN:HELD], y[TRAIN:HELD]), seed=0)
    draws = method.predict(x[HELD:])
    assert draws.shape == (1, ROWS - HELD, 3)
    np.testing.assert_allclose(draws[..., 1], 1e-6 / 3, rtol=1e-4)


@pytest.mark.parametrize(("name", "takes_it"), [("network", True), ("knn", False)])
def test_the_device_goes_to_what_trains_by_gradient(name, takes_it):
    sizes = {"in_features": 2, "out_features": 1, "task": "regression"}
    method = build_method(name, **sizes, options={}, training={}, device="cuda")
    assert hasattr(method, "setting") == takes_it
    assert not takes_it or method.setting.device == "cuda"


@pytest.mark.parametrize("trainable", ["all", "none"])
def test_a_backbone_is_trained_with_its_head_or_frozen(trainable):
    start = nn.Sequential(nn.Linear(2, 6), nn.Tanh())
    method = build_method(
        "sika",
        in_features=6,
        out_features=3,
        task="classification",
        options={
            "backbone": lambda: copy.deepcopy(start),
            "embedding": 4,
            "level": 2,
            "train_samples": 2,
            "test_samples": 5,
        },
        training={**TRAINING, "epochs": 2, "trainable": {0: trainable}},
    )
    fit(method, "classification", held_out=False)
    moved = not torch.equal(method.model.backbone[0].weight, start[0].weight)
    assert moved == (trainable == "all")
    assert method.predict(rows("classification")[0]).shape == (5, ROWS, 3)


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("kiss-gp", "classification", "one output"),
        ("svdkl", "regression", "kiss-gp"),
        ("exact-gp", "classification", "regression"),
        ("gradient-descent", "regression", "must be one of"),
    ],
)
def test_what_a_method_cannot_do_is_refused(name, task, message):
    with pytest.raises(ValueError, match=message):
        fit(make(name, task), task)


def test_exact_gp_refuses_too_many_rows():
    with pytest.raises(ValueError, match="max_rows = 100"):
        fit(make("exact-gp", "regression", max_rows=100), "regression")


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="depth"):
        fit(make("svgp", "regression", depth=3), "regression")
    with pytest.raises(ValueError, match="student_t"):
        make("sika", "regression", likelihood="student_t")


@pytest.mark.parametrize("name", ["deep-sika", "dense-dak", "bnn"])
def test_bayesian_weights_can_start_at_their_prior(name):
    method = make(name, "regression", initial_scale=1.0)
    method.build(rows("regression"))
    layers = [module for module in method.model.modules() if hasattr(module, "weight_scale")]
    assert layers
    for layer in layers:
        torch.testing.assert_close(layer.weight_scale, torch.ones_like(layer.weight_scale))
