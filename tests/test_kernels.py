"""Kernels against dense Gaussian conditioning."""

import pytest
import torch
from helpers import assert_close, doubles
from hypothesis import given
from hypothesis import strategies as st
from oracles import CASES, THETA, condition, gram, laplace_covariance

from sikagp import BrownianBridge, BrownianMotion, GaussMarkov, Laplace
from sikagp.kernels import get_kernel

RATE = doubles(THETA)
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def triples(count: int) -> torch.Tensor:
    """Random a < x < c in (0, 1), of shape (3, count)."""
    return torch.rand(count, 3, dtype=torch.float64).sort(-1).values.T


@by_name
def test_covariance(case):
    x, y = torch.rand(2, 20, dtype=torch.float64)
    assert_close(case.kernel.covariance(x[:, None], y, RATE), gram(case.covariance, x, y))


@by_name
def test_boundary_factors_the_covariance_of_the_ends(case):
    ends = doubles([0.0, 1.0])
    factor = case.kernel.boundary(RATE.expand(3))
    expected = gram(case.covariance, ends, ends)
    assert_close(factor @ factor.mT, expected.expand(3, 2, 2))


@by_name
def test_interpolation_is_gaussian_conditioning(case):
    a, x, c = triples(30)
    left, right, residual = case.kernel.interpolate(a, x, c, RATE)
    for i in range(len(x)):
        weights, left_open = condition(case.covariance, x[i : i + 1], torch.stack([a[i], c[i]]))
        assert_close(torch.cat([left[i], right[i]]), weights[0])
        assert_close(residual[i], left_open[0, 0])


@by_name
def test_bridge_is_the_interpolation_with_a_factor_of_its_residual(case):
    a, b, c = triples(30)
    bridge = case.kernel.bridge(a, b, c, RATE)
    left, right, residual = case.kernel.interpolate(a, b, c, RATE)
    assert_close(bridge.left, left.unsqueeze(-1))
    assert_close(bridge.right, right.unsqueeze(-1))
    assert_close((bridge.factor @ bridge.factor.mT)[:, 0, 0], residual)
    assert bool((bridge.factor > 0).all())


@pytest.mark.parametrize("distance", [-2.0, -0.3, 0.0, 0.1, 1.5])
def test_extrapolation_is_conditioning_on_the_grid(distance):
    nodes = torch.linspace(0, 1, 5, dtype=torch.float64)
    x = doubles([distance if distance < 0 else 1 + distance])
    weights, left_open = condition(laplace_covariance(THETA), x, nodes)
    gain, residual = Laplace().extrapolate(doubles(distance), RATE)
    end = 0 if distance < 0 else -1
    assert_close(gain[0], weights[0, end])
    assert_close(weights[0].sum(), weights[0, end])
    assert_close(residual, left_open[0, 0])


def test_two_point_takes_the_nearer_end_beyond_the_grid():
    x = doubles([-0.5, 0.25, 1.5])
    a, c = doubles([0.0, 0.0, 0.5]), doubles([0.5, 0.5, 1.0])
    point = Laplace().two_point(a, x, c, RATE)
    decay, middle = torch.exp(-0.5 * RATE), 0.5 / torch.cosh(0.25 * RATE)
    assert_close(point.left[:, 0], torch.stack([decay, middle, 0 * decay]))
    assert_close(point.right[:, 0], torch.stack([0 * decay, middle, decay]))
    assert_close(point.outside, torch.stack([1 - decay**2, 0 * decay, 1 - decay**2]))
    assert_close(point.inside, torch.stack([0 * decay, torch.tanh(0.25 * RATE), 0 * decay]))


def test_gauss_markov_keeps_its_value_beyond_the_grid():
    x = doubles([-3.0, 4.0])
    a, c = doubles([0.0, 0.5]), doubles([0.5, 1.0])
    point = BrownianMotion().two_point(a, x, c, RATE)
    assert_close(point.left[:, 0], doubles([1.0, 0.0]))
    assert_close(point.right[:, 0], doubles([0.0, 1.0]))
    assert not bool(point.inside.any() or point.outside.any())


@given(
    exponent=st.floats(-8, 8),
    share=st.floats(0, 1, allow_subnormal=False),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_laplace_weights_are_finite_at_any_rate(exponent, share, dtype):
    x = torch.tensor(share, dtype=dtype, requires_grad=True)
    rate = torch.tensor(10.0**exponent, dtype=dtype, requires_grad=True)
    zero, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)
    left, right, residual = Laplace().interpolate(zero, x, one, rate)
    decay = torch.exp(-rate)
    explained = left**2 + right**2 + 2 * left * right * decay
    assert_close(explained[0] + residual, one)
    assert bool(residual >= 0)
    for part in (left, right, residual):
        gradients = torch.autograd.grad(part.sum(), (x, rate), retain_graph=True)
        assert all(bool(gradient.isfinite()) for gradient in gradients)


def test_laplace_is_linear_interpolation_when_nothing_decays():
    x = torch.linspace(0, 1, 9)
    left, right, _ = Laplace().interpolate(torch.zeros(9), x, torch.ones(9), torch.tensor(1e-6))
    assert_close(left[:, 0], 1 - x)
    assert_close(right[:, 0], x)


def test_user_p_and_q_reproduce_the_laplace_kernel():
    twin = GaussMarkov(lambda x: torch.exp(THETA * x), lambda x: torch.exp(-THETA * x))
    a, b, c = triples(20)
    bridge, twin_bridge = (kernel.bridge(a, b, c, RATE) for kernel in (Laplace(), twin))
    for part, expected in zip(twin_bridge, bridge, strict=True):
        assert_close(part, expected)


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        (lambda x: x.sum(), torch.ones_like, r"keep the shape .*\(1025,\), got \(\) and \(1025,\)"),
        (lambda x: x - 0.5, torch.ones_like, r"negative, got p\(0\) = -0\.5"),
        (torch.ones_like, lambda x: 0.5 - x, r"q must be positive.* q\(1\) = -0\.5"),
        (lambda x: 1 - x / 2, torch.ones_like, "p / q must increase"),
        (lambda x: x * (x - 0.5), torch.ones_like, "p / q must increase"),
    ],
)
def test_functions_that_make_no_kernel_are_refused(p, q, message):
    with pytest.raises(ValueError, match=message):
        GaussMarkov(p, q)


def test_kernels_by_name():
    assert isinstance(get_kernel("laplace"), Laplace)
    assert isinstance(get_kernel("brownian"), BrownianMotion)
    assert isinstance(get_kernel("bridge"), BrownianBridge)
    kernel = Laplace()
    assert get_kernel(kernel) is kernel
    with pytest.raises(ValueError, match=r"'laplace'.* or a MarkovKernel, got 'rbf'"):
        get_kernel("rbf")
