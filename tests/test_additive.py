"""Refinement of the grid, and the parameters behind a layer."""

import pytest
import torch
from helpers import assert_close

from sikagp import SIKALayer


def trained_layer(level=3, **options):
    layer = SIKALayer(3, 2, level=level, lengthscale=0.3, dtype=torch.float64, **options)
    with torch.no_grad():
        layer.weight_mean.normal_()
        layer.raw_weight_scale.normal_()
    return layer


def points():
    return torch.rand(40, 3, dtype=torch.float64) * 1.6 - 0.3  # inside and outside


@pytest.mark.parametrize("kernel", ["laplace", "brownian"])
@pytest.mark.parametrize("level", [3, 4, 7])
def test_refine_changes_neither_mean_nor_kl(kernel, level):
    layer, x = SIKALayer(3, 2, level=3, kernel=kernel, dtype=torch.float64), points()
    torch.nn.init.normal_(layer.weight_mean)
    mean, divergence = layer(x).mean, layer.kl_divergence()
    layer.refine(level)
    assert layer.num_nodes == 2**level + 1
    assert layer.weight_mean.shape == layer.raw_weight_scale.shape == (3, 2**level + 1, 2)
    assert_close(layer(x).mean, mean)
    assert_close(layer.kl_divergence(), divergence)


def test_with_the_full_residual_refine_leaves_the_variance_too():
    layer, x = trained_layer(residual="full"), points()
    variance = layer(x).variance
    layer.refine(6)
    assert_close(layer(x).variance, variance)


def test_without_the_residual_refine_adds_the_variance_of_the_new_levels():
    layer, x = trained_layer(residual="none"), points()
    inside = ((x > 0) & (x < 1)).all(-1)
    variance = layer(x).variance
    layer.refine(6)
    assert (layer(x).variance[inside] > variance[inside]).all()


def test_refined_layers_train_and_predict():
    layer, x = trained_layer(), points()
    with torch.no_grad():
        before = layer.eval()(x).mean  # fills the cache
        layer.refine(5)
        assert_close(layer(x).mean, before)
    layer.train()(x).mean.sum().backward()
    assert layer.weight_mean.grad.shape == (3, 33, 2)
    assert layer.weight_mean.grad[:, 9:].abs().sum() > 0


def test_refine_keeps_frozen_parameters_frozen():
    layer = trained_layer()
    layer.weight_mean.requires_grad_(False)
    layer.refine(4)
    assert not layer.weight_mean.requires_grad
    assert layer.raw_weight_scale.requires_grad


def test_a_grid_does_not_get_coarser():
    with pytest.raises(ValueError, match="level can only grow: it is 3, got 2"):
        trained_layer().refine(2)
