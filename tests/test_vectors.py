"""Vectors in compiled code: arithmetic, partial loads and stores, and softplus."""

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close

from sikagp.ops.loops.softplus import softplus
from sikagp.ops.loops.vectors import load_vector, num_lanes, store_vector, total, zeros

by_type = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@numba.njit
def combine(a, b, result):
    """Fill ``2 a - b / (1 + a a)`` vector by vector; return its sum."""
    sums = zeros(a)
    for n in range(0, a.size, num_lanes(a)):
        x, y = load_vector(a, n, a.size - n), load_vector(b, n, a.size - n)
        value = 2 * x - y / (x * x + 1)
        store_vector(result, n, value, a.size - n)
        sums += value
    return total(sums)


@numba.njit
def apply_softplus(y, value, slope):
    for n in range(0, y.size, num_lanes(y)):
        both = softplus(load_vector(y, n, y.size - n))
        store_vector(value, n, both[0], y.size - n)
        store_vector(slope, n, both[1], y.size - n)


@by_type
@pytest.mark.parametrize("size", [1, 8, 16, 37])
def test_partial_vectors_leave_other_memory_alone(dtype, size):
    a, b = torch.randn(2, size, dtype=dtype)
    memory = torch.full((size + 64,), 7.0, dtype=dtype)
    result = memory[32:-32]
    found = combine(a.numpy(), b.numpy(), result.numpy())
    assert_close(result, 2 * a - b / (1 + a * a))
    assert_close(torch.tensor(found, dtype=dtype), result.sum())
    assert (memory[:32] == 7).all()
    assert (memory[-32:] == 7).all()


def softplus_of(y):
    value, slope = torch.empty_like(y), torch.empty_like(y)
    apply_softplus(y.numpy(), value.numpy(), slope.numpy())
    return value, slope


@by_type
def test_softplus_and_its_slope_to_the_last_bits(dtype):
    lowest = -80.0 if dtype == torch.float32 else -700.0
    y = torch.cat([torch.randn(999) * 3, torch.linspace(lowest, 90.0, 998)]).to(dtype)
    value, slope = softplus_of(y)
    exact = y.double()
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 0.0}
    reference = exact.clamp_min(0) + torch.log1p(torch.exp(-exact.abs()))
    torch.testing.assert_close(value.double(), reference, **tolerance)
    torch.testing.assert_close(slope.double(), torch.sigmoid(exact), **tolerance)


@by_type
def test_softplus_of_extreme_numbers(dtype):
    y = torch.tensor([np.nan, np.inf, -np.inf, -1e30, 1e30, 0.0, -100.0], dtype=dtype)
    value, slope = softplus_of(y)
    torch.testing.assert_close(value, F.softplus(y), equal_nan=True)
    torch.testing.assert_close(slope, torch.sigmoid(y), equal_nan=True)
