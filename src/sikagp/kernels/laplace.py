"""The Laplace (exponential, Matérn-1/2) kernel of the paper."""

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.kernels.base import Bridge, Extrapolation, Interpolation, Points, ScalarMarkovKernel


class Laplace(ScalarMarkovKernel):
    """Laplace kernel ``exp(-theta |x - y|)``.

    Here ``cross(a, c) = 2 sinh(theta (c - a))``; every ratio of sinh is computed as exponentials
    of non-positive numbers, with ``e(t) = 1 - exp(-2 t)``:

        sinh(v) / sinh(u + v) = exp(-u) e(v) / e(u + v)
    """

    stationary = True
    predictable = True

    def covariance(self, x: Points, y: Points, rate: Points) -> Float[Tensor, "*shape"]:
        """Return exp(-theta |x - y|)."""
        return torch.exp(-rate * (x - y).abs())

    def boundary(self, rate: Float[Tensor, " features"]) -> Float[Tensor, "features ends ends"]:
        """Symmetric and antisymmetric pair: f(0), f(1) = c1 w1 +- c2 w2 (psi_01, psi_02)."""
        c1 = ((1 + torch.exp(-rate)) / 2).sqrt()
        c2 = (-torch.expm1(-rate) / 2).sqrt()
        return torch.stack([c1, c2, c1, -c2], dim=-1).unflatten(-1, (2, 2))

    def midpoint(self, half: Points, rate: Points) -> Bridge:
        """Gains ``1 / (2 cosh(theta h))`` and factor ``sqrt(tanh(theta h))``."""
        t = rate * half
        decay = torch.exp(-t)
        gain = (decay / (1 + decay * decay))[..., None, None]
        return Bridge(gain, gain, torch.tanh(t).sqrt()[..., None, None])

    def interpolate(self, a: Points, x: Points, c: Points, rate: Points) -> Interpolation:
        """Weights ``sinh(theta (c-x)) / sinh(theta (c-a))`` and its mirror image."""
        u, v = rate * (x - a), rate * (c - x)
        e_u, e_v = torch.expm1(-2 * u).neg(), torch.expm1(-2 * v).neg()
        # e(u + v) = e(u) + e(v) - e(u) e(v), a sum of non-negative terms
        left_share = e_v / (e_u + e_v * (1 - e_u))
        right_share = e_u / (e_u + e_v * (1 - e_u))
        left, right = torch.exp(-u) * left_share, torch.exp(-v) * right_share
        return Interpolation(left.unsqueeze(-1), right.unsqueeze(-1), e_u * left_share)

    def extrapolate(self, offset: Points, rate: Points) -> Extrapolation:
        """Relax to the prior: gain ``exp(-theta t)``, residual ``1 - exp(-2 theta t)``."""
        t = rate * offset.abs()
        return Extrapolation(torch.exp(-t).unsqueeze(-1), torch.expm1(-2 * t).neg())
