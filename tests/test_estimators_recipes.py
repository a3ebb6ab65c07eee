"""Defaults of the estimators: what they choose, and where one choice gives way to the next."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import assert_close
from hypothesis import given
from hypothesis import strategies as st

from sikagp import DeepGP, NodeDomain
from sikagp.estimators import recipes
from sikagp.estimators.recipes import (
    LARGE,
    SMALL,
    brief,
    build_model,
    close,
    grid_level,
    hidden_sizes,
    plan_schedule,
    prior_weight,
    training_config,
)
from sikagp.kernels import Laplace, Matern52

AUTO = ("auto", "auto", "auto")
MANY_ROWS = [SMALL - 1, SMALL, LARGE - 1, LARGE]


def model(rows: int = 50, hidden=(), *, features: int = 3, **options):
    x = torch.randn(rows, features)
    defaults = {"kernel": "auto", "domain": "range", "classification": False}
    built = build_model(x, hidden, 2, level=3, num_samples=4, **{**defaults, **options})
    return built, x


@given(
    rows=st.integers(1, 20_000),
    epochs=st.integers(1, 500) | st.just("auto"),
    batch=st.integers(1, 4096) | st.just("auto"),
    classification=st.booleans(),
)
def test_a_schedule_makes_as_many_passes_as_it_was_asked_for(rows, epochs, batch, classification):
    plan = plan_schedule(rows, epochs, batch, "auto", classification=classification)
    assert 1 <= plan.batch_size <= rows
    steps_per_pass = math.ceil(rows / plan.batch_size)
    total = plan.epochs * plan.passes
    if epochs == "auto":
        assert total >= 30
    else:
        assert plan.passes <= epochs <= total < epochs + plan.passes  # rounded up to whole epochs
        # an epoch is as long as it should be, unless the whole run is shorter
        assert steps_per_pass * plan.passes >= min(25, steps_per_pass * epochs)
    # and not longer than it need be
    assert plan.passes == 1 or steps_per_pass * (plan.passes - 1) < 25


@pytest.mark.parametrize(
    ("rows", "batch", "rate"),
    [(100, 100, 0.02), (LARGE - 1, 256, 0.02), (LARGE, 512, 0.01)],
)
def test_batches_and_rates_go_by_the_number_of_rows(rows, batch, rate):
    plan = plan_schedule(rows, *AUTO, classification=False)
    assert (plan.batch_size, plan.learning_rate) == (batch, rate)
    told = plan_schedule(rows, 7, 10, 0.3, classification=False)
    assert (told.batch_size, told.learning_rate) == (10, 0.3)


@pytest.mark.parametrize(
    ("rows", "classification", "steps"),
    [(SMALL - 1, False, 300), (SMALL - 1, True, 300), (SMALL, False, 1200), (SMALL, True, 600)],
)
def test_few_rows_get_a_number_of_steps(rows, classification, steps):
    plan = plan_schedule(rows, *AUTO, classification=classification)
    made = plan.epochs * plan.passes * math.ceil(rows / plan.batch_size)
    assert steps <= made < 1.2 * steps


def test_a_brief_training_has_a_quarter_of_the_epochs():
    plan = plan_schedule(1000, 101, 100, 0.1, classification=False)
    assert brief(plan) == dataclasses.replace(plan, epochs=math.ceil(plan.epochs / 4))
    assert brief(dataclasses.replace(plan, epochs=1)).epochs == 1


def test_ten_nats_are_close():
    narrow, wide, pairs = choices = [(3,), (64,), "pairs"]
    assert close(choices, [0.0, -10.0, -10.1]) == [narrow, wide]
    assert close(choices, [-50.0, 0.0, -9.0]) == [wide, pairs]
    assert close(choices, [-1e6, -1e6, -1e6]) == choices


@pytest.mark.parametrize(
    ("rows", "expected"), list(zip(MANY_ROWS, ["few", "medium", "medium", "many"], strict=True))
)
def test_architectures_go_by_the_number_of_rows(rows, expected):
    few, medium = [()], [(3,), "pairs"]
    chosen = hidden_sizes("auto", rows, few, medium)
    assert chosen == {"few": few, "medium": medium, "many": [(64, 64)]}[expected]
    for told, meant in (((5, 2), (5, 2)), (7, (7,)), ("pairs", "pairs"), ([], ())):
        assert hidden_sizes(told, rows, few, medium) == [meant]


@pytest.mark.parametrize(("rows", "level"), [(LARGE - 1, 4), (LARGE, 3)])
def test_grids_get_coarser_where_rows_are_many(rows, level):
    assert grid_level("auto", rows, classification=False) == level
    assert grid_level("auto", rows, classification=True) == 3
    assert grid_level(6, rows, classification=True) == 6


def test_the_prior_counts_less_for_classes():
    assert prior_weight("auto", classification=False) == 1
    assert prior_weight("auto", classification=True) == 0.3
    assert prior_weight(np.float32(0.5), classification=True) == 0.5


def test_repeated_rows_are_made_up_for_by_the_weight_of_the_prior():
    plan = plan_schedule(100, 60, 10, 0.1, classification=False)
    assert plan.passes > 1
    config = training_config(plan, 7, kl_weight=0.5, patience=None)
    assert config.kl_weight == 0.5 * plan.passes
    assert (config.epochs, config.batch_size, config.seed) == (plan.epochs, 10, 7)


@pytest.mark.parametrize(
    ("rows", "hidden", "classification", "kernel", "lengthscale"),
    [
        (50, (), False, Laplace, 10.0),
        (50, "pairs", False, Matern52, 10.0),
        (50, (4,), False, Matern52, 3.0),
        (LARGE, (4,), False, Laplace, None),
        (LARGE, (), False, Laplace, 10.0),
        (50, (4,), True, Laplace, None),
        (50, (), True, Laplace, 10.0),
    ],
)
def test_kernels_and_lengthscales(rows, hidden, classification, kernel, lengthscale):
    built, _ = model(rows, hidden, classification=classification)
    first = built.layers[0]
    if lengthscale is None:
        default = DeepGP((3, 2), domain=first.domain).layers[0].lengthscale
        assert_close(first.lengthscale, default)
    else:
        assert_close(first.lengthscale, torch.full_like(first.lengthscale, lengthscale))
    assert {type(layer.kernel) for layer in built.layers} == {kernel}
    assert {layer.level for layer in built.layers} == {3}
    assert (built.trend is not None) is classification
    assert built.num_samples == (4, recipes.EVALUATION_SAMPLES)


def test_kernels_without_a_lengthscale_get_none():
    assert model(kernel="brownian")[0].layers[0].lengthscale is None


@pytest.mark.parametrize("hidden", [(), "pairs", (3,), (5,), (3, 3)])
@pytest.mark.parametrize("domain", ["range", "quantiles"])
def test_the_first_grid_covers_the_rows(hidden, domain):
    built, x = model(hidden=hidden, domain=domain)
    first = built.layers[0]
    terms = recipes.with_pairs(x, 3) if hidden == "pairs" else x
    unit = first.domain(terms)
    assert unit.min() > 0
    assert unit.max() < 1
    assert isinstance(first.domain, NodeDomain) is (domain == "quantiles")
    assert built.in_features == 3
    assert built.out_features == 2


def test_as_many_hidden_units_as_features_start_as_these():
    for sizes in ((3,), (3, 3)):
        built, _ = model(hidden=sizes)
        assert built.mean_function == "fixed"
        for mean in built.means:
            assert torch.equal(mean.weight, torch.eye(3))


def test_more_hidden_units_start_with_the_features_and_random_directions():
    built, _ = model(hidden=(5,))
    assert built.mean_function == "learned"
    weight = built.means[0].weight.detach()
    assert torch.equal(weight[:, :3], torch.eye(3))
    assert_close(weight[:, 3:].norm(dim=0), torch.ones(2))
    assert (weight[:, 3:] != 0).all()


def test_classifiers_learn_the_linear_mean_whatever_its_size():
    built, _ = model(hidden=(3,), classification=True)
    assert built.mean_function == "learned"
    assert torch.equal(built.means[0].weight.detach(), torch.eye(3))


@pytest.mark.parametrize(("device", "name"), [("cpu", "cpu"), (torch.device("cpu"), "cpu")])
def test_devices_have_lightning_s_names(device, name, monkeypatch):
    assert recipes.accelerator(device) == name
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert recipes.accelerator("cuda") == "gpu"
    assert recipes.accelerator("gpu") == "gpu"
