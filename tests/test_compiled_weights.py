"""Series and polynomials of the compiled two-point weights, to the last bits, against mpmath."""

import functools

import mpmath
import numpy as np
import pytest

from sikagp.ops.loops import weights
from sikagp.ops.loops.softplus import FLOAT32_LANES
from sikagp.ops.loops.vectors import VECTOR_BYTES
from sikagp.ops.loops.weights import (
    AT_U,
    BLOCK,
    DECAY_U,
    NUM_ROWS,
    SHORT,
    SIZES,
    TINY,
    U,
    fill_hankel,
    gain_beyond,
    invert_hankel,
    residual_beyond,
)

by_size = pytest.mark.parametrize("s", SIZES)
# The longest distance of a block decides how it is computed.
LONGEST = (TINY / 3, TINY, 0.5, SHORT, 1.0001, 3.0, 40.0)


@functools.cache
def derivative(s: int, order: int, t: float) -> mpmath.mpf:
    """Derivative of R by its power series, with many digits."""
    with mpmath.workdps(60):
        powers = ((2 * s - 1 + 2 * n - order, mpmath.binomial(n + s - 1, n)) for n in range(150))
        terms = (c * mpmath.mpf(t) ** p / mpmath.factorial(p) for p, c in powers if p >= 0)
        return mpmath.fsum(terms)


def basis(s: int, k: int, t: float) -> float:
    """a_k(t) = exp(-t) (D - 1)^k R(t)."""
    with mpmath.workdps(60):
        signs = ((-1) ** (k - j) * mpmath.binomial(k, j) for j in range(k + 1))
        terms = [sign * derivative(s, j, t) for j, sign in enumerate(signs)]
        return float(mpmath.exp(-mpmath.mpf(t)) * mpmath.fsum(terms))


@by_size
@pytest.mark.parametrize("t", [0.1, 0.7, 5.0])
def test_the_series_solves_its_equation(s, t):
    """(D^2 - 1)^s R = 0, and R starts like t^(2s-1) / (2s-1)!: what is compared with is right."""
    with mpmath.workdps(60):
        terms = [
            (-1) ** (s - m) * mpmath.binomial(s, m) * derivative(s, 2 * m, t) for m in range(s + 1)
        ]
        assert abs(mpmath.fsum(terms)) < 1e-40
    assert [float(derivative(s, order, 0.0)) for order in range(2 * s)] == [0.0] * (2 * s - 1) + [1]


def computed(s: int, distances: np.ndarray, longest: float) -> np.ndarray:
    """Decays, then a_k, of a block of distances, as (1 + s, distances)."""
    work, count = np.zeros(NUM_ROWS * BLOCK), len(distances)
    work[U * BLOCK : U * BLOCK + count] = distances
    weights._fill_decay(work, U, count, longest, DECAY_U)
    weights._fill_basis(work, U, DECAY_U, count, longest, (0,) * s, AT_U)
    rows = work.reshape(NUM_ROWS, BLOCK)
    return rows[[DECAY_U, *range(AT_U, AT_U + s)], :count]


@by_size
@pytest.mark.parametrize("longest", LONGEST)
def test_decays_and_basis_are_exact_to_rounding(s, longest):
    distances = np.array([longest, longest / 2, longest / 7])
    decay, *found = computed(s, distances, longest)
    np.testing.assert_allclose(decay, np.exp(-distances), rtol=2e-15)
    for k, row in enumerate(found):
        expected = [basis(s, k, t) for t in distances]
        np.testing.assert_allclose(row, expected, rtol=3e-14, err_msg=f"a_{k}")


@by_size
@pytest.mark.parametrize("longest", LONGEST)
def test_hankel_matrices_hold_further_derivatives_and_are_inverted(s, longest):
    hankel = np.empty((1, 2 * s))
    fill_hankel(longest, (0,) * s, hankel, 0)
    expected = [basis(s, k, longest) for k in range(2 * s)]
    np.testing.assert_allclose(hankel[0], expected, rtol=1e-12, atol=1e-60)
    inverse = np.empty((1, 1, s * s))
    invert_hankel(s, hankel[0], 0, 0, inverse)
    matrix = np.array([[hankel[0, j + k] for k in range(s)] for j in range(s)])
    if longest >= 0.5:  # otherwise nearly singular, which the weights make up for
        product = matrix @ inverse.reshape(s, s)
        np.testing.assert_allclose(product, np.eye(s), atol=1e-9)


@by_size
@pytest.mark.parametrize("t", [0.0, 1e-3, 0.4, 2.0, 30.0])
def test_what_lies_beyond_the_grid(s, t):
    """Gains are the first row of exp(A t) in scaled derivatives, the residual is Poisson's tail."""
    with mpmath.workdps(40):
        exact = mpmath.mpf(t)
        for i in range(s):
            terms = (mpmath.binomial(k, i) * exact**k / mpmath.factorial(k) for k in range(i, s))
            gain = float(mpmath.exp(-exact) * mpmath.fsum(terms))
            assert gain_beyond(t, s, i) == pytest.approx(gain, rel=1e-14)
        terms = ((2 * exact) ** j / mpmath.factorial(j) for j in range(2 * s - 1))
        left = float(1 - mpmath.exp(-2 * exact) * mpmath.fsum(terms))
    assert residual_beyond(t, s) == pytest.approx(left, rel=1e-9, abs=4e-16)


@by_size
def test_far_beyond_the_grid_only_the_prior_is_left(s):
    for t in (1e3, 1e300, np.inf):
        assert [gain_beyond(t, s, i) for i in range(s)] == [0.0] * s
        assert residual_beyond(t, s) == 1.0


def test_vectors_are_cache_lines():
    assert VECTOR_BYTES == 4 * FLOAT32_LANES
