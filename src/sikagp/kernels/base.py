"""Markov kernels: how the state at a point follows from the states at its two neighbours.

A Markov kernel of state size s keeps s numbers per point (f, and derivatives when s > 1). Given
the states at a and c, the state at b between them is

    z_b = G_left z_a + G_right z_c + S w,        w ~ N(0, I_s),

independent of everything outside [a, c]. Positions are unit coordinates; ``rate`` is the width of
the domain over the lengthscale (theta in the paper), and positions are subtracted before they are
multiplied by it, so that nothing is lost to rounding.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sikagp._typing import Float

# Numbers of any shape; those of one call are broadcast against each other.
Points = Float[Tensor, "*#shape"]


class Bridge(NamedTuple):
    """Gains and innovation factor of a state between two others."""

    left: Float[Tensor, "*shape s s"]
    right: Float[Tensor, "*shape s s"]
    factor: Float[Tensor, "*shape s s"]


class Interpolation(NamedTuple):
    """f(x) given the end states: ``left . z_a + right . z_c``, with variance ``residual``."""

    left: Float[Tensor, "*shape s"]
    right: Float[Tensor, "*shape s"]
    residual: Float[Tensor, "*shape"]


class Extrapolation(NamedTuple):
    """f(x) given the nearer end state of the grid: ``gain . z_end``, with variance ``residual``."""

    gain: Float[Tensor, "*shape s"]
    residual: Float[Tensor, "*shape"]


class TwoPoint(NamedTuple):
    """f at any real x given the states at a and c, the ends of the cell nearest to x.

    The variance that a and c leave open is ``inside`` between nodes and ``outside`` beyond the
    grid; each is zero where the other applies.
    """

    left: Float[Tensor, "*shape s"]
    right: Float[Tensor, "*shape s"]
    inside: Float[Tensor, "*shape"]
    outside: Float[Tensor, "*shape"]


class MarkovKernel(ABC):
    """A covariance function with a Markov state."""

    state_size: int
    stationary: bool
    predictable: bool = False  # whether compiled loops know its formulas

    def __init_subclass__(cls, **options: Any) -> None:
        """A subclass may change the formulas, so it must say itself that loops know them."""
        super().__init_subclass__(**options)
        cls.predictable = bool(cls.__dict__.get("predictable"))

    @abstractmethod
    def covariance(self, x: Points, y: Points, rate: Points) -> Float[Tensor, "*shape"]:
        """Return k(x, y), element by element with broadcasting."""

    @abstractmethod
    def boundary(self, rate: Float[Tensor, " features"]) -> Float[Tensor, "features ends ends"]:
        """Return a factor F of the joint covariance F F^T of the states at 0 and at 1."""

    @abstractmethod
    def bridge(self, a: Points, b: Points, c: Points, rate: Points) -> Bridge:
        """Gains and innovation of the state at b given those at a and c."""

    def midpoint(self, half: Points, rate: Points) -> Bridge:
        """Gains and innovation halfway between two points, for a stationary kernel."""
        return self.bridge(torch.zeros_like(half), half, 2 * half, rate)

    @abstractmethod
    def interpolate(self, a: Points, x: Points, c: Points, rate: Points) -> Interpolation:
        """Weights of f(x) on the states at a and c: the first rows of the bridge at x."""

    @abstractmethod
    def extrapolate(self, offset: Points, rate: Points) -> Extrapolation:
        """Weights of f beyond the grid; ``offset`` is x minus the nearer end, 0 inside."""

    def interpolate_slope(self, a: Points, x: Points, c: Points, rate: Points) -> Interpolation:
        """Weights of f'(x) on the states at a and c: the second rows of the bridge at x."""
        raise self._no_slope()

    def extrapolate_slope(self, offset: Points, rate: Points) -> Extrapolation:
        """Weights of f' beyond the grid."""
        raise self._no_slope()

    def _no_slope(self) -> ValueError:
        return ValueError(
            f"draws of {type(self).__name__} have no derivative, so it has no variance; choose a "
            "Matérn kernel, or differentiate the mean with torch.autograd"
        )

    def two_point(
        self, a: Points, x: Points, c: Points, rate: Points, *, slope: bool = False
    ) -> TwoPoint:
        """Interpolate inside the grid, extrapolate from the nearer end beyond it.

        The weights give f(x), or with ``slope`` its derivative.
        """
        inner = x.clamp(0, 1)
        offset = x - inner
        within = (self.interpolate_slope if slope else self.interpolate)(a, inner, c, rate)
        beyond = (self.extrapolate_slope if slope else self.extrapolate)(offset, rate)
        offset = offset.unsqueeze(-1)
        outside = offset != 0
        left = torch.where(outside, beyond.gain * (offset < 0), within.left)
        right = torch.where(outside, beyond.gain * (offset > 0), within.right)
        return TwoPoint(left, right, within.residual, beyond.residual)


class ScalarMarkovKernel(MarkovKernel):
    """Kernels of state size 1, written through one function of two points, ``cross``.

    With ``K(x, y) = p(min) q(max)`` and ``cross(a, c) = p(c) q(a) - p(a) q(c)`` (Appendix B):

        left     = cross(x, c) / cross(a, c)
        right    = cross(a, x) / cross(a, c)
        residual = cross(a, x) cross(x, c) / cross(a, c)
    """

    state_size = 1

    def bridge(self, a: Points, b: Points, c: Points, rate: Points) -> Bridge:
        """Gains and innovation of f(b) given f(a) and f(c), as 1 x 1 matrices."""
        left, right, residual = self.interpolate(a, b, c, rate)
        return Bridge(left.unsqueeze(-1), right.unsqueeze(-1), residual.sqrt()[..., None, None])
