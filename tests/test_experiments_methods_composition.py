"""Stacks and heads on features: what is composed with what."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sikagp import DeepGP
from sikagp.experiments.methods.bayesian import BayesianLinear
from sikagp.experiments.methods.composition import FlipoutDeepGP, OnFeatures, Stack
from sikagp.experiments.methods.networks import Network


def linear(*sizes: int) -> list[BayesianLinear]:
    return [BayesianLinear(a, b, activation="identity") for a, b in pairwise(sizes)]


def almost_certain(model: nn.Module) -> nn.Module:
    for layer in model.layers:
        layer.weight_scale = layer.bias_scale = 1e-9
    return model


def test_hidden_layers_of_a_stack_have_a_learned_mean_unless_told_otherwise():
    assert len(Stack(linear(2, 3, 1)).means) == 1
    assert any(p.requires_grad for p in Stack(linear(2, 3, 1)).means.parameters())
    assert len(Stack(linear(2, 3, 1), mean_function="none").means) == 0
    assert tuple(Stack(linear(2, 1)).num_samples) == (10, 20)


@pytest.mark.parametrize("mean_function", ["none", "fixed", "learned"])
@torch.no_grad()
def test_a_stack_without_doubt_composes_its_layers(mean_function):
    first, second = linear(2, 3, 1)
    stack = almost_certain(Stack([first, second], mean_function=mean_function)).eval()
    x = torch.randn(6, 2)
    hidden = first(x).mean
    if mean_function != "none":
        hidden = hidden + stack.means[0](x)
    assert_close(stack(x).mean, second(hidden).mean, rtol=1e-4, atol=1e-5)
    assert_close(stack.kl_divergence(), first.kl_divergence() + second.kl_divergence())


@pytest.mark.parametrize("mean_function", ["none", "fixed"])
@torch.no_grad()
def test_flipout_without_doubt_is_the_deep_gp(mean_function):
    options = {"level": 2, "residual": "none", "mean_function": mean_function}
    model = almost_certain(FlipoutDeepGP((2, 3, 4, 1), **options))
    reference = DeepGP((2, 3, 4, 1), **options)
    reference.load_state_dict(model.state_dict())
    x = torch.randn(6, 2)
    found = model(x, 2).components
    assert_close(found.mean[0], reference.eval()(x).mean, rtol=1e-3, atol=1e-3)
    assert_close(found.mean[0], found.mean[1], rtol=1e-3, atol=1e-3)
    assert found.variance.abs().max() == 0


@torch.no_grad()
def test_draws_are_as_many_as_each_mode_has():
    model = FlipoutDeepGP((2, 3, 1), level=2, num_samples=(3, 5))
    x = torch.randn(4, 2)
    assert len(model(x)) == 3
    assert len(model(x, 7)) == 7
    assert len(model.eval()(x)) == 5


@torch.no_grad()
def test_a_generator_fixes_flipout():
    model = FlipoutDeepGP((2, 3, 1), level=2, num_samples=(3, 5))
    x = torch.randn(4, 2)
    draws = [
        model(x, generator=torch.Generator().manual_seed(seed)).components.mean
        for seed in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@torch.no_grad()
def test_features_are_embedded_and_standardised_before_the_head():
    backbone, head = nn.Linear(4, 6), Network((3, 2))
    model = OnFeatures(backbone, 6, head, embedding=3, normalisation="batch", spectral_norm=False)
    x = torch.randn(50, 4)
    embedded = model.embedding(backbone(x))
    standard = (embedded - embedded.mean(0)) / embedded.std(0, correction=0)
    assert_close(model(x).mean, head(standard).mean, rtol=1e-3, atol=1e-3)
    plain = OnFeatures(
        backbone, 6, Network((6, 2)), embedding=None, normalisation="none", spectral_norm=False
    )
    assert_close(plain(x).mean, plain.layer(backbone(x)).mean)
