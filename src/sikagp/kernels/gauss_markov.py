"""Scalar Gauss-Markov kernels of the paper's Appendix B."""

from collections.abc import Callable

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.kernels.base import Extrapolation, Interpolation, Points, ScalarMarkovKernel


class GaussMarkov(ScalarMarkovKernel):
    """Any scalar Gauss-Markov kernel ``K(x, y) = p(min(x, y)) q(max(x, y))`` on [0, 1].

    ``p`` and ``q`` act element by element, ``q(0) > 0``, and ``p / q`` increases. The process is
    given on the unit interval only, has no lengthscale (``rate`` is ignored), and beyond the
    interval it keeps its value at the nearer end.

    >>> exponential = GaussMarkov(lambda x: x.exp(), lambda x: (-x).exp())
    """

    stationary = False

    def __init__(self, p: Callable[[Tensor], Tensor], q: Callable[[Tensor], Tensor]) -> None:
        self.p, self.q = p, q
        self._check()

    def _check(self) -> None:
        x = torch.linspace(0, 1, 1025, dtype=torch.float64)
        p, q = self.p(x), self.q(x)
        if p.shape != x.shape or q.shape != x.shape:
            raise ValueError(
                f"p and q must keep the shape of their argument {tuple(x.shape)}, "
                f"got {tuple(p.shape)} and {tuple(q.shape)}"
            )
        # With p / q increasing, p is positive on (0, 1) as well.
        if not bool((q[:-1] > 0).all() and p[0] >= 0 and q[-1] >= 0):
            raise ValueError(
                "q must be positive on [0, 1), and neither p nor q may be negative, got "
                f"p(0) = {p[0]:g}, q(1) = {q[-1]:g} and q down to {q[:-1].min():g} before"
            )
        if not bool((self._cross(x[:-1], x[1:]) > 0).all()):
            raise ValueError("p / q must increase on [0, 1]; otherwise p(min) q(max) is no kernel")

    def _cross(self, a: Points, c: Points) -> Float[Tensor, "*shape"]:
        a, c = a.double(), c.double()
        return self.p(c) * self.q(a) - self.p(a) * self.q(c)

    def covariance(self, x: Points, y: Points, rate: Points) -> Float[Tensor, "*shape"]:
        """Return p(min(x, y)) q(max(x, y))."""
        return self.p(torch.minimum(x, y)) * self.q(torch.maximum(x, y))

    def boundary(self, rate: Float[Tensor, " features"]) -> Float[Tensor, "features ends ends"]:
        """Lower triangular factor; f(0) may have variance zero, as for Brownian motion."""
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64, device=rate.device)
        (p0, _), (q0, q1) = self.p(ends), self.q(ends)
        first = (p0 * q0).sqrt()
        rest = (q1 / q0 * self._cross(ends[0], ends[1])).sqrt()
        factor = torch.stack([first, torch.zeros_like(first), q1 / q0 * first, rest])
        return factor.unflatten(-1, (2, 2)).to(rate.dtype).expand(*rate.shape, 2, 2)

    def interpolate(self, a: Points, x: Points, c: Points, rate: Points) -> Interpolation:
        """Weights by the cross ratios of the class docstring, computed in float64."""
        after, before = self._cross(x, c), self._cross(a, x)
        whole = self._cross(a, c)
        parts = after / whole, before / whole, after * before / whole
        left, right, residual = (part.to(x.dtype) for part in parts)
        return Interpolation(left.unsqueeze(-1), right.unsqueeze(-1), residual)

    def extrapolate(self, offset: Points, rate: Points) -> Extrapolation:
        """Keep the value at the end of the interval."""
        return Extrapolation(torch.ones_like(offset).unsqueeze(-1), torch.zeros_like(offset))


# Named functions, so that a layer with one of these kernels can be pickled.
def _identity(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return x


def _one(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return torch.ones_like(x)


def _one_minus(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return 1 - x


class BrownianMotion(GaussMarkov):
    """Brownian motion from 0: ``K(x, y) = min(x, y)``."""

    def __init__(self) -> None:
        super().__init__(_identity, _one)


class BrownianBridge(GaussMarkov):
    """Brownian motion tied to 0 at both ends: ``K(x, y) = min(x, y) (1 - max(x, y))``."""

    def __init__(self) -> None:
        super().__init__(_identity, _one_minus)
