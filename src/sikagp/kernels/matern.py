r"""Matérn kernels of smoothness 3/2 and 5/2, whose state holds derivatives of f.

In the coordinate :math:`t = \lambda d`, a distance d times :math:`\lambda = \sqrt{2 \nu}` over the
lengthscale, the state :math:`(f, f', ..)` with derivatives in t follows
:math:`z(t) = A(t) z(0) + N(0, Q(t))`, where (:math:`\nu = s - 1/2`)

.. math:: A(t) = e^{-t} \sum_{k < s} N^k t^k / k!, \qquad
          Q(t)_{ij} = q \int_0^t e^{-2r} p_i(r) p_j(r) \, dr

with a nilpotent N, and p(r) the last column of the polynomial in A. A state between two others, at
distances u and v from them, is

.. math:: G_{right}(u, v) = Q(u) A(v)^T Q(u + v)^{-1}, \qquad G_{left}(u, v) = J G_{right}(v, u) J

(J flips the sign of odd derivatives: the process looks the same backwards). Q(t) falls like powers
of t, so it is kept as :math:`D \tilde Q D` with :math:`D = diag(t^{s - 1/2}, .., t^{1/2})`. The
integrals are incomplete gamma functions, accurate at any t. All is computed in float64.
"""

import math

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.kernels.base import Bridge, Extrapolation, Interpolation, MarkovKernel, Points


class Matern(MarkovKernel):
    """Shared arithmetic of the Matérn kernels; see the module's docstring."""

    stationary = True
    smoothness: float
    nilpotent: tuple[tuple[float, ...], ...]
    diffusion: float

    def __init__(self) -> None:
        s = self.state_size
        matrix = torch.tensor(self.nilpotent, dtype=torch.float64)
        powers = [torch.linalg.matrix_power(matrix, k) / math.factorial(k) for k in range(s)]
        self._powers = torch.stack(powers)
        column = self._powers[:, :, -1]  # coefficients of p_i(r), by power of r
        self._products = torch.zeros(2 * s - 1, s, s, dtype=torch.float64)
        for k in range(s):
            for m in range(s):
                self._products[k + m] += self.diffusion * torch.outer(column[k], column[m])

    def covariance(self, x: Points, y: Points, rate: Points) -> Float[Tensor, "*shape"]:
        """Return k(x, y), the first entry of A(t) P."""
        t = self._distance((x - y).abs(), rate)
        stationary = self._noise(torch.full_like(t, math.inf))
        return (self._transition(t)[..., 0, :] * stationary[..., :, 0]).sum(-1).to(x.dtype)

    def boundary(self, rate: Float[Tensor, " features"]) -> Float[Tensor, "features ends ends"]:
        """Lower triangular factor: the left end first, the right end given it."""
        t = self._distance(torch.ones_like(rate), rate)
        first = torch.linalg.cholesky(self._noise(torch.full_like(t, math.inf)))
        scale = self._scale(t)
        rest = torch.linalg.cholesky(self._noise(t) / _outer(scale)) * scale.unsqueeze(-1)
        top = torch.cat([first, torch.zeros_like(first)], dim=-1)
        bottom = torch.cat([self._transition(t) @ first, rest], dim=-1)
        return torch.cat([top, bottom], dim=-2).to(rate.dtype)

    def bridge(self, a: Points, b: Points, c: Points, rate: Points) -> Bridge:
        """Gains, and a factor from the sum of the precisions that either side lends."""
        u, v = self._distance(b - a, rate), self._distance(c - b, rate)
        scale = self._scale(u + v)
        after = self._transition(v)
        precision = self._inverse_noise(u) + after.mT @ self._inverse_noise(v) @ after
        scaled = _inverse(precision * _outer(scale))
        factor = torch.linalg.cholesky(scaled) * scale.unsqueeze(-1)
        signs = _outer(self._signs(u))
        parts = signs * self._right_gain(v, u), self._right_gain(u, v), factor
        return Bridge(*(part.to(b.dtype) for part in parts))

    def interpolate(self, a: Points, x: Points, c: Points, rate: Points) -> Interpolation:
        """Weights of f(x) on the end states, and the variance they leave."""
        u, v = self._distance(x - a, rate), self._distance(c - x, rate)
        noise = self._noise(u)[..., 0, :]
        right = self._first_row(noise, u, v)
        left = self._signs(u) * self._first_row(self._noise(v)[..., 0, :], v, u)
        carried = (self._transition(v) * noise.unsqueeze(-2)).sum(-1)
        residual = (noise[..., 0] - (right * carried).sum(-1)).clamp_min(0)
        return Interpolation(*(part.to(x.dtype) for part in (left, right, residual)))

    def extrapolate(self, offset: Points, rate: Points) -> Extrapolation:
        """Carry the end state outwards; derivatives change sign on the left."""
        t = self._distance(offset.abs(), rate)
        gain = self._transition(t)[..., 0, :]
        gain = torch.where((offset < 0).unsqueeze(-1), gain * self._signs(t), gain)
        return Extrapolation(gain.to(offset.dtype), self._noise(t)[..., 0, 0].to(offset.dtype))

    def interpolate_slope(self, a: Points, x: Points, c: Points, rate: Points) -> Interpolation:
        """Weights of f'(x), by the second row of the gains, and the variance they leave."""
        u, v = self._distance(x - a, rate), self._distance(c - x, rate)
        right = self._right_gain(u, v)[..., 1, :]
        left = -self._signs(u) * self._right_gain(v, u)[..., 1, :]
        noise = self._noise(u)[..., 1, :]
        carried = (self._transition(v) * noise.unsqueeze(-2)).sum(-1)
        residual = (noise[..., 1] - (right * carried).sum(-1)).clamp_min(0)
        speed = self._distance(torch.ones_like(x), rate)
        parts = left * speed.unsqueeze(-1), right * speed.unsqueeze(-1), residual * speed.square()
        return Interpolation(*(part.to(x.dtype) for part in parts))

    def extrapolate_slope(self, offset: Points, rate: Points) -> Extrapolation:
        """Second row of the state carried outwards; on the left, even derivatives change sign."""
        t = self._distance(offset.abs(), rate)
        speed = self._distance(torch.ones_like(offset), rate)
        gain = self._transition(t)[..., 1, :]
        gain = torch.where((offset < 0).unsqueeze(-1), -gain * self._signs(t), gain)
        residual = self._noise(t)[..., 1, 1] * speed.square()
        gain = gain * speed.unsqueeze(-1)
        return Extrapolation(gain.to(offset.dtype), residual.to(offset.dtype))

    def _distance(self, distance: Points, rate: Points) -> Float[Tensor, "*shape"]:
        return math.sqrt(2 * self.smoothness) * (rate * distance).double()

    def _signs(self, like: Float[Tensor, "..."]) -> Float[Tensor, " s"]:
        return (-1.0) ** torch.arange(self.state_size, dtype=like.dtype, device=like.device)

    def _scale(self, t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape s"]:
        s = self.state_size
        power = torch.arange(s - 0.5, 0, -1, dtype=t.dtype, device=t.device)
        return t.unsqueeze(-1) ** power

    def _transition(self, t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape s s"]:
        power = torch.arange(self.state_size, dtype=t.dtype, device=t.device)
        terms = torch.exp(-t).unsqueeze(-1) * t.unsqueeze(-1) ** power
        return torch.tensordot(terms, self._powers.to(t.device), dims=1)

    def _noise(self, t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape s s"]:
        """Q(t), by the integrals of r^k exp(-2 r) from 0 to t."""
        integrals = [-0.5 * torch.expm1(-2 * t)]
        for k in range(1, 2 * self.state_size - 1):
            share = torch.special.gammainc(torch.full_like(t, k + 1.0), 2 * t)
            integrals.append(math.factorial(k) / 2 ** (k + 1) * share)
        return torch.tensordot(torch.stack(integrals, dim=-1), self._products.to(t.device), dims=1)

    def _inverse_noise(self, t: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape s s"]:
        outer = _outer(self._scale(t))
        return _inverse(self._noise(t) / outer) / outer

    def _right_gain(self, u: Points, v: Points) -> Float[Tensor, "*shape s s"]:
        return self._noise(u) @ self._transition(v).mT @ self._inverse_noise(u + v)

    def _first_row(
        self,
        noise: Float[Tensor, "*shape s"],
        u: Float[Tensor, "*shape"],
        v: Float[Tensor, "*shape"],
    ) -> Float[Tensor, "*shape s"]:
        """First row of the gain towards the end at distance v."""
        row = (self._transition(v) * noise.unsqueeze(-2)).sum(-1)
        return (row.unsqueeze(-1) * self._inverse_noise(u + v)).sum(-2)


class Matern32(Matern):
    """Matérn kernel of smoothness 3/2, ``(1 + t) exp(-t)``: once differentiable draws."""

    state_size = 2
    predictable = True
    smoothness = 1.5
    nilpotent = ((1.0, 1.0), (-1.0, -1.0))
    diffusion = 4.0


class Matern52(Matern):
    """Matérn kernel of smoothness 5/2, ``(1 + t + t^2 / 3) exp(-t)``: twice differentiable."""

    state_size = 3
    predictable = True
    smoothness = 2.5
    nilpotent = ((1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (-1.0, -3.0, -2.0))
    diffusion = 16 / 3


def _outer(vector: Float[Tensor, "*shape s"]) -> Float[Tensor, "*shape s s"]:
    return vector.unsqueeze(-1) * vector.unsqueeze(-2)


def _inverse(matrix: Float[Tensor, "*shape s s"]) -> Float[Tensor, "*shape s s"]:
    """Inverse of 2 x 2 or 3 x 3 matrices by cofactors, element by element over the batch."""
    if matrix.shape[-1] == 2:
        (a, b), (c, d) = (row.unbind(-1) for row in matrix.unbind(-2))
        cofactors = torch.stack([d, -b, -c, a], dim=-1).unflatten(-1, (2, 2))
        return cofactors / (a * d - b * c)[..., None, None]
    first, second, third = matrix.unbind(-2)
    columns = [
        torch.linalg.cross(second, third),
        torch.linalg.cross(third, first),
        torch.linalg.cross(first, second),
    ]
    determinant = (first * columns[0]).sum(-1)
    return torch.stack(columns, dim=-1) / determinant[..., None, None]
