"""Heads: what every name builds from its options, and where grids and inducing points lie."""

from types import SimpleNamespace

import gpytorch
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sikagp import Domain, SIKALayer
from sikagp.experiments.methods import trained as methods
from sikagp.experiments.methods.base import Problem
from sikagp.experiments.methods.bayesian import BayesianLinear
from sikagp.experiments.methods.heads import HEADS, Inputs
from sikagp.experiments.methods.trained import Trained
from sikagp.models import DeepGP

ROWS = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
INPUTS = Inputs(3, Domain(-2.0, 4.0), ROWS)


def of_kind(model: nn.Module, kind: type) -> list:
    return [module for module in model.modules() if isinstance(module, kind)]


def bounds(layer) -> tuple[float, float]:
    return layer.domain.low.item(), layer.domain.high.item()


def test_inducing_points_start_at_distinct_rows():
    points = INPUTS.points(12)
    chosen = torch.cdist(points, ROWS, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    assert_close(points, ROWS[chosen])
    assert len(set(chosen.tolist())) == 12
    assert not torch.equal(points, ROWS[:12])


def test_more_points_than_rows_lie_around_them():
    points = INPUTS.points(1030)
    assert sorted(points[:30].tolist()) == sorted(ROWS.tolist())
    distance = torch.cdist(points[30:], ROWS).amin(1)
    assert distance.min() > 0
    assert distance.mean() < 0.3


def test_points_are_standard_normal_where_no_rows_are_known():
    points = Inputs(3, Domain(-2.0, 4.0), None).points(4000)
    assert_close(points.mean(0), torch.zeros(3), atol=0.06, rtol=0)
    assert_close(points.std(0), torch.ones(3), atol=0.06, rtol=0)


@pytest.mark.parametrize("name", ["deep-sika", "paper-sika", "dense-dgp", "bnn"])
def test_deep_models_have_two_layers_of_64_unless_told_otherwise(name):
    sizes = [(layer.in_features, layer.out_features) for layer in HEADS[name](INPUTS, 2).layers]
    assert sizes == [(3, 64), (64, 64), (64, 2)]
    model = HEADS[name](INPUTS, 2, hidden=[5], num_samples=[3, 7])
    assert [(layer.in_features, layer.out_features) for layer in model.layers] == [(3, 5), (5, 2)]
    assert tuple(model.num_samples) == (3, 7)


@pytest.mark.parametrize("name", ["deep-sika", "paper-sika", "dense-dgp"])
def test_only_the_first_grid_lies_where_the_inputs_do(name):
    first, second = HEADS[name](INPUTS, 1, hidden=[4]).layers
    assert bounds(first) == (-2, 4)
    assert bounds(second) == (-3, 3)


def test_hidden_grids_of_dense_layers_can_be_placed():
    layers = HEADS["dense-dgp"](INPUTS, 1, hidden=[4, 4], hidden_domain=[-1.0, 5.0]).layers
    assert [bounds(layer) for layer in layers] == [(-2, 4), (-1, 5), (-1, 5)]


def test_the_papers_variant_is_as_the_paper_says():
    model = HEADS["paper-sika"](INPUTS, 1, hidden=[4], lengthscale=0.7)
    assert len(model.means) == 0
    for layer in model.layers:
        assert (layer.level, layer.residual) == (7, "none")
        assert not layer.log_lengthscale.requires_grad
        assert_close(layer.lengthscale, torch.full_like(layer.lengthscale, 0.7))


@pytest.mark.parametrize("name", ["deep-sika", "sika"])
@pytest.mark.parametrize("learned", [True, False])
def test_lengthscales_are_learned_unless_told_otherwise(name, learned):
    options = {} if learned else {"learn_lengthscale": False}
    layers = of_kind(HEADS[name](INPUTS, 1, level=2, **options), SIKALayer)
    assert layers
    assert {layer.log_lengthscale.requires_grad for layer in layers} == {learned}


def test_kernels_without_a_lengthscale_have_none_to_fix():
    layer = HEADS["sika"](INPUTS, 1, level=2, kernel="brownian", learn_lengthscale=False)
    assert layer.log_lengthscale is None


def test_inputs_of_a_bayesian_network_are_not_rectified():
    layers = of_kind(HEADS["bnn"](INPUTS, 1, hidden=[4, 4], activation="silu"), BayesianLinear)
    kinds = [type(layer.activation).__name__ for layer in layers]
    assert kinds == ["Identity", "SiLU", "SiLU"]


@pytest.mark.parametrize("name", ["kiss-gp", "svdkl"])
@torch.no_grad()
def test_grid_models_see_unit_coordinates(name):
    head = HEADS[name](INPUTS, 1, num_points=8).eval()
    x = torch.tensor([[-2.0, 1.0, 4.0], [-9.0, 1.0, 9.0]])
    unit = torch.tensor([[0.0, 0.5, 1.0]])
    expected = head.model(unit).mean.reshape(1, -1)
    assert_close(head(x).mean, expected.expand(2, -1))


def test_inducing_points_of_svgp_and_of_the_deep_gp_are_rows():
    strategy = HEADS["svgp"](INPUTS, 1, num_points=5).model.variational_strategy
    assert torch.cdist(strategy.inducing_points, ROWS).amin(1).max() < 1e-3
    deep = HEADS["gpytorch-dgp"](INPUTS, 1, hidden=[2], num_points=5)
    first, second = (layer.variational_strategy.inducing_points for layer in deep.layers)
    assert first.shape == (2, 5, 3)
    assert torch.cdist(first[0], ROWS).amin(1).max() < 1e-3
    assert second.shape == (1, 5, 2)


def trained(name: str, task: str = "regression", outputs: int = 1, **options) -> Trained:
    method = Trained(name, Problem(3, outputs, task, options, {}))
    method.build((ROWS, torch.zeros(len(ROWS)).long()))
    return method


def test_grids_on_tables_exceed_the_rows_by_a_margin():
    low, high = ROWS.amin(0), ROWS.amax(0)
    for options, margin in (({}, 0.1), ({"margin": 0.5}, 0.5)):
        domain = trained("sika", level=2, **options).model.domain
        assert_close(domain.low, low - margin * (high - low))
        assert_close(domain.high, high + margin * (high - low))


def test_grids_on_normalised_features_reach_some_deviations():
    for options, reach in (({}, 3.0), ({"reach": 2.0}, 2.0)):
        model = trained("sika", level=2, embedding=4, **options).model
        assert bounds(model.layer) == (-reach, reach)
        assert model.layer.in_features == 4
        assert model.normalisation == "batch"


def test_a_noise_that_varies_has_an_output_of_its_own():
    assert trained("sika", level=2).model.out_features == 1
    assert trained("sika", level=2, likelihood="heteroscedastic").model.out_features == 2
    assert trained("sika", "classification", 4, level=2).model.out_features == 4


def test_only_the_mixing_likelihood_mixes():
    mixing = trained("svdkl", "classification", 4, num_points=5, embedding=2).likelihood
    assert tuple(mixing.mixing_weights.shape) == (4, 2)
    plain = trained("sika", "classification", 4, level=2).likelihood
    assert plain.mixing_weights is None


def test_spectral_norms_are_constrained_if_asked_for():
    for wanted in (False, True):
        options = {"backbone": lambda: nn.Linear(3, 3), "spectral_norm": wanted}
        backbone = trained("sika", level=2, **options).model.backbone
        assert nn.utils.parametrize.is_parametrized(backbone) == wanted


@pytest.mark.parametrize(("name", "lacks"), [("network", True), ("mc-dropout", True), ("bnn", 0)])
def test_networks_alone_take_their_noise_from_held_out_rows(name, lacks):
    def method(task, **options):
        return Trained(name, Problem(3, 1, task, options, {}))

    assert method("regression")._lacks_noise == bool(lacks)
    assert not method("regression", likelihood="heteroscedastic")._lacks_noise
    assert not method("classification")._lacks_noise


@torch.no_grad()
def test_many_rows_are_predicted_as_few_are():
    method = trained("deep-sika", hidden=[2], level=2, num_samples=[2, 3])
    method.model.eval()
    x = torch.randn(1100, 3)
    whole, last = method.predict(x), method.predict(x[1000:])
    assert whole.components.mean.shape == (3, 1100, 1)
    assert_close(whole.components.mean[:, 1000:], last.components.mean)
    assert isinstance(method.model, DeepGP)


def test_draws_of_classes_are_as_many_as_asked_for():
    method = trained("sika", "classification", 4, level=2, train_samples=2, test_samples=6)
    method.model.eval()
    assert method.predict(torch.randn(1100, 3)).shape == (6, 1100, 4)


@pytest.mark.parametrize(("options", "draws"), [({}, 20), ({"train_samples": 3}, 3)])
def test_training_draws_as_often_as_asked_for(monkeypatch, options, draws):
    seen = []

    def fit(*_, **__):
        seen.append(gpytorch.settings.num_likelihood_samples.value())
        return SimpleNamespace(history=[])

    monkeypatch.setattr(methods, "fit", fit)
    method = Trained("sika", Problem(3, 2, "classification", {"level": 2, **options}, {}))
    method.fit((ROWS, torch.zeros(len(ROWS)).long()), None, seed=0)
    assert seen == [draws]


def test_models_start_by_their_seed(monkeypatch):
    monkeypatch.setattr(methods, "fit", lambda *_, **__: SimpleNamespace(history=[]))
    starts = []
    for seed in (0, 0, 1):
        method = Trained("bnn", Problem(3, 1, "regression", {"hidden": [2]}, {}))
        method.fit((ROWS, torch.zeros(len(ROWS))), None, seed=seed)
        starts.append(method.model.layers[0].weight_mean.detach())
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
