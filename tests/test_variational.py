"""Gaussian marginals, the KL divergence, and positive parameters."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close, doubles, random_layer
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from sikagp import GaussianMarginals, ops
from sikagp.ops.backends import use_backend
from sikagp.ops.divergence import standard_normal_kl
from sikagp.variational import inverse_softplus

by_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@by_dtype
def test_kl_is_that_of_torch_summed(dtype):
    mean, scale = torch.randn(4, 5, dtype=dtype), torch.rand(4, 5, dtype=dtype) + 0.01
    expected = kl_divergence(Normal(mean, scale), Normal(0.0, 1.0)).sum()
    assert_close(standard_normal_kl(mean, scale), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_kl_of_a_layer_covers_weights_and_bias(bias):
    layer = random_layer(bias=bias)
    pairs = [(layer.weight_mean, layer.weight_scale)]
    if bias:
        pairs.append((layer.bias_mean, layer.bias_scale))
    expected = sum(kl_divergence(Normal(*pair), Normal(0.0, 1.0)).sum() for pair in pairs)
    assert_close(layer.kl_divergence(), expected)
    assert layer.kl_divergence().shape == ()


def test_kl_vanishes_at_the_prior_only():
    layer = random_layer()
    layer.weight_scale, layer.bias_scale = 1.0, 1.0
    with torch.no_grad():
        layer.weight_mean.zero_(), layer.bias_mean.zero_()
        assert_close(layer.kl_divergence(), doubles(0.0))
        layer.weight_mean[0, 0, 0] = 2.0
        assert_close(layer.kl_divergence(), doubles(2.0))


def test_gradcheck_of_kl():
    layer = random_layer(1, 2, level=1)
    names, values = zip(*layer.named_parameters(), strict=True)

    def kl(*parameters):
        swapped = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(KL(layer), {f"layer.{k}": v for k, v in swapped.items()})

    assert torch.autograd.gradcheck(kl, values)


class KL(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self):
        return self.layer.kl_divergence()


@given(exponent=st.floats(-30, 30), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_softplus_inverts_for_positive_numbers_of_any_size(exponent, dtype):
    value = torch.tensor(10.0**exponent, dtype=torch.float64)
    assert_close(F.softplus(inverse_softplus(value)) / value, torch.ones_like(value))
    rounded = F.softplus(inverse_softplus(value).to(dtype))
    assert_close(rounded / value.to(dtype), torch.ones((), dtype=dtype), dtype=torch.float32)


@by_dtype
@pytest.mark.parametrize("value", [1e-12, 1e-3, 1.0, 50.0])
@pytest.mark.parametrize("name", ["weight_scale", "bias_scale", "lengthscale", "variance"])
def test_positive_parameters_read_what_was_set(name, value, dtype):
    layer = random_layer(dtype=dtype)
    setattr(layer, name, value)
    stored = getattr(layer, name)
    assert stored.dtype == dtype
    assert_close(stored / value, torch.ones_like(stored))
    per_entry = torch.rand(stored.shape, dtype=dtype) + 0.1
    setattr(layer, name, per_entry)
    assert_close(getattr(layer, name), per_entry)


def test_setting_keeps_the_parameter_and_its_optimiser():
    layer = random_layer()
    before = layer.log_lengthscale
    layer.lengthscale = 0.5
    assert layer.log_lengthscale is before
    assert before.requires_grad
    assert_close(before.detach(), doubles([0.5, 0.5]).log())


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["weight_scale", "lengthscale", "variance"])
def test_positive_parameters_refuse_other_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be positive and finite, got {value:g}"):
        setattr(random_layer(), name, value)


def test_absent_parameters_read_none_and_cannot_be_set():
    layer = random_layer(kernel="brownian", bias=False)
    assert layer.lengthscale is None
    assert layer.bias_scale is None
    with pytest.raises(ValueError, match="has no lengthscale"):
        layer.lengthscale = 2.0


def test_marginals_know_their_stddev_and_repr():
    q = GaussianMarginals(torch.zeros(2, 3), torch.full((2, 3), 4.0))
    assert_close(q.stddev, torch.full((2, 3), 2.0))
    assert repr(q) == "GaussianMarginals(shape=(2, 3), dtype=torch.float32)"


def test_stddev_of_zero_variance_has_a_finite_gradient():
    variance = torch.zeros(2, 1, requires_grad=True)
    stddev = GaussianMarginals(torch.zeros(2, 1), variance).stddev
    (gradient,) = torch.autograd.grad(stddev.sum(), variance)
    assert bool(gradient.isfinite().all())
    assert bool((stddev < 1e-15).all())


@pytest.mark.parametrize("sample_shape", [(), (5,), (2, 3)])
def test_samples_are_mean_plus_stddev_times_noise(sample_shape):
    q = GaussianMarginals(torch.randn(4, 2), torch.rand(4, 2))
    draws = q.rsample(sample_shape, generator=torch.Generator().manual_seed(1))
    noise = torch.randn((*sample_shape, 4, 2), generator=torch.Generator().manual_seed(1))
    assert_close(draws, q.mean + q.variance.sqrt() * noise)


def test_samples_carry_gradients():
    mean = torch.zeros(3, 1, requires_grad=True)
    variance = torch.ones(3, 1, requires_grad=True)
    q = GaussianMarginals(mean, variance)
    draws = q.rsample((7,), generator=torch.Generator().manual_seed(1))
    d_mean, d_variance = torch.autograd.grad(draws.sum(), (mean, variance))
    assert_close(d_mean, torch.full((3, 1), 7.0))
    assert_close(d_variance, 0.5 * draws.detach().sum(0))


@pytest.mark.parametrize("size", [1, 31, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_divergence_and_its_gradients(size, dtype):
    mean = torch.randn(size, dtype=dtype, requires_grad=True)
    raw = torch.linspace(-60, 20, size, dtype=dtype).requires_grad_()
    found = ops.divergence(mean, raw)
    exact_mean, exact_raw = (t.detach().double().requires_grad_() for t in (mean, raw))
    expected = standard_normal_kl(exact_mean, torch.nn.functional.softplus(exact_raw))
    assert_close(found, expected.to(dtype))
    gradients = torch.autograd.grad(2 * found, (mean, raw))
    exact = torch.autograd.grad(2 * expected, (exact_mean, exact_raw))
    for a, e in zip(gradients, exact, strict=True):
        assert_close(a, e.to(dtype))


@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_gradients_of_the_divergence_are_those_of_torch(backend):
    mean = torch.randn(40, dtype=torch.float64, requires_grad=True)
    raw = torch.linspace(-5, 3, 40, dtype=torch.float64).requires_grad_()
    with use_backend(backend):
        found = torch.autograd.grad(ops.divergence(mean, raw), (mean, raw))
    whole = kl_divergence(Normal(mean, F.softplus(raw)), Normal(0.0, 1.0)).sum()
    for a, e in zip(found, torch.autograd.grad(whole, (mean, raw)), strict=True):
        assert_close(a, e)


def test_opcheck_of_the_divergence():
    mean = torch.randn(5, dtype=torch.float64, requires_grad=True)
    raw = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.sikagp.normal_divergence.default, (mean, raw))


def test_a_lost_mean_is_not_hidden():
    mean, raw = torch.zeros(20), torch.zeros(20)
    mean[3] = torch.nan
    assert ops.divergence(mean, raw).isnan()
    assert ops.divergence(raw, mean).isnan()
