"""Every kernel in every plan, backend and way to draw; saved and loaded."""

import copy

import pytest
import torch
from helpers import PLANS, assert_close, random_layer
from oracles import user_p, user_q
from torch import nn

from sikagp import DeepGP, GaussMarkov, Laplace, SIKALayer
from sikagp.ops.backends import use_backend

NAMES = ("laplace", "matern32", "matern52", "brownian", "bridge")
KERNELS = {name: name for name in NAMES} | {"user": GaussMarkov(user_p, user_q)}
by_kernel = pytest.mark.parametrize("name", KERNELS)


def points(rows=30):
    return torch.rand(rows, 2, dtype=torch.float64) * 1.2 - 0.1


@by_kernel
def test_plans_and_backends_agree(name):
    layer, x = random_layer(kernel=KERNELS[name]), points()
    found = []
    for backend in ("reference", "compiled"):
        for plan in PLANS:
            for training in (True, False):
                layer.plan = plan
                with use_backend(backend), torch.set_grad_enabled(training):
                    q = layer.train(training)(x)
                found.append((q.mean, q.variance))
    for mean, variance in found[1:]:
        assert_close(mean, found[0][0])
        assert_close(variance, found[0][1])


@by_kernel
@pytest.mark.parametrize("method", ["local", "flipout", "path"])
def test_draws_have_the_moments_of_the_marginals(name, method):
    layer, x = random_layer(kernel=KERNELS[name], residual="none"), points(4)
    q, draws = layer(x), layer.sample(x, 4000, method=method)
    assert ((draws.mean(0) - q.mean) / q.stddev).abs().max() < 6 / 4000**0.5
    assert (draws.var(0) / q.variance - 1).abs().max() < 0.2


@pytest.mark.parametrize("kernel", NAMES)
def test_saving_and_loading(kernel, tmp_path):
    model = DeepGP((2, 3, 1), level=3, kernel=kernel).eval()
    model.save_pretrained(tmp_path / "model")
    loaded = DeepGP.from_pretrained(tmp_path / "model")
    for own, other in zip(model.layers, loaded.layers, strict=True):
        assert type(own.kernel) is type(other.kernel)
        x = torch.randn(5, own.in_features)
        with torch.no_grad():
            assert torch.equal(own(x).mean, other(x).mean)
            assert torch.equal(own(x).variance, other(x).variance)


def test_a_kernel_of_ones_own_cannot_be_saved(tmp_path):
    model = DeepGP((2, 1), level=3, kernel=KERNELS["user"])
    with pytest.raises(ValueError, match="kernel GaussMarkov cannot be saved"):
        model.save_pretrained(tmp_path / "model")


def test_positive_parameters_take_a_parameter():
    layer = SIKALayer(2, 1)
    layer.lengthscale = nn.Parameter(torch.tensor([0.3, 0.7]))
    assert_close(layer.lengthscale, torch.tensor([0.3, 0.7]))
    assert "lengthscale" not in dict(layer.named_parameters())


@pytest.mark.parametrize("name", ["laplace", "matern32", "matern52"])
@pytest.mark.parametrize("lengthscale", [1e-2, 0.1, 1.0, 10.0, 1e2])
@pytest.mark.parametrize("level", [1, 3, 5, 8, 10, 12])
def test_float32_predictions_are_accurate(name, lengthscale, level):
    options = {"level": level, "kernel": name, "lengthscale": lengthscale}
    exact = random_layer(1, 2, **options)
    coarse = SIKALayer(1, 2, **options)
    coarse.load_state_dict(exact.state_dict())
    x = torch.cat([torch.rand(100, 1) * 2 - 0.5, torch.tensor([[0.0], [1.0], [-1e6], [1e6]])])
    with torch.no_grad(), use_backend("reference"):
        expected = exact(x.double())
    with torch.no_grad():
        actual = coarse.eval()(x)
    assert_close(actual.mean, expected.mean, dtype=torch.float32)
    assert_close(actual.variance, expected.variance, dtype=torch.float32)


class Halved(Laplace):
    """Half the variance: formulas of its own, which compiled loops do not know."""

    def covariance(self, x, y, rate):
        """Return k(x, y)."""
        return super().covariance(x, y, rate) / 2

    def boundary(self, rate):
        """The same boundary, scaled."""
        return super().boundary(rate) / 2**0.5


@pytest.mark.parametrize("training", [True, False])
def test_a_kernel_derived_from_another_keeps_its_own_formulas(training):
    layer = SIKALayer(2, 3, level=3, kernel=Halved(), dtype=torch.float64).train(training)
    with torch.no_grad():
        layer.weight_mean.normal_()
    x = torch.rand(6, 2, dtype=torch.float64)
    with use_backend("reference"):
        expected = copy.deepcopy(layer)(x)
    assert_close(layer(x).mean, expected.mean)
    assert_close(layer(x).variance, expected.variance)
