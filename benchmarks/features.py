"""The baselines' features: Theorem 1 of the paper in as few operations as torch allows.

    psi_lm(x) = exp(-r) (1 - exp(-2 (a - r))) / sqrt(1 - exp(-4 a))

with a = theta h and r = theta |x - m|, for the one active m of every level, on the uniform grid of
a Laplace layer. Inputs are clamped to the grid. The library's own features cover any kernel, grid
and input, and take longer.
"""

import torch
from torch import Tensor

from sikagp import SIKALayer
from sikagp.basis import SparseFeatures


class LaplaceFeatures:
    """Active and dense basis functions, times the prior deviation of their feature.

    Everything that does not depend on x is prepared, and lengthscales are not differentiated.
    """

    @torch.no_grad()
    def __init__(self, layer: SIKALayer) -> None:
        self.num_weights = layer.weight_mean.shape[1]
        low, width = layer.domain.low, layer.domain.width
        self.low = None if bool((low == 0).all() and (width == 1).all()) else low
        self.width = width
        prior, device = layer.prior(), layer.weight_mean.device
        self.theta, scale = prior.rate.unsqueeze(-1), layer.variance.sqrt().unsqueeze(-1)
        self.cells = 2.0 ** torch.arange(layer.level, device=device)
        self.offset = (self.cells + 1).long()
        self.angle = self.theta / (2 * self.cells)
        self.factor = scale * torch.expm1(-4 * self.angle).neg().rsqrt()
        self.ends = scale.unsqueeze(-1) * prior.tree.boundary
        self.first = torch.arange(2, device=device)

    def unit(self, x: Tensor) -> Tensor:
        """Map raw inputs to unit coordinates on the grid."""
        unit = x if self.low is None else (x - self.low) / self.width
        return unit.clamp(0, 1).unsqueeze(-1)

    def active(self, x: Tensor) -> SparseFeatures:
        """Values and weight numbers of the L + 2 active functions, (*rows, features, L + 2)."""
        x = self.unit(x)
        cell = torch.minimum(torch.floor(x.detach() * self.cells), self.cells - 1)
        r = torch.abs(x - (cell + 0.5) / self.cells) * self.theta
        bumps = torch.exp(-r) * torch.expm1(2 * (r - self.angle)) * -self.factor
        index = torch.cat([self.first.expand(*x.shape[:-1], 2), cell.long() + self.offset], -1)
        return SparseFeatures(torch.cat([self._end_functions(x), bumps], -1), index)

    def _end_functions(self, x: Tensor) -> Tensor:
        """psi_01 and psi_02: the boundary states, carried to x."""
        u, v = self.theta * x, self.theta * (1 - x)
        whole = torch.expm1(-2 * self.theta).neg()
        left = torch.exp(-u) * torch.expm1(-2 * v).neg() / whole
        right = torch.exp(-v) * torch.expm1(-2 * u).neg() / whole
        return left * self.ends[:, 0] + right * self.ends[:, 1]

    def dense(self, x: Tensor) -> Tensor:
        """All basis functions, shape (*rows, features * weights)."""
        values, index = self.active(x)
        phi = values.new_zeros(*values.shape[:-1], self.num_weights)
        return phi.scatter_(-1, index, values).flatten(-2)
