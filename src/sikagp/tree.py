"""The prior as a binary tree of Markov bridges (midpoint displacement).

The two end states come first, then level by level the state halfway between two neighbours.
Setting one weight to 1 and all others to 0 draws one basis function of the paper's Theorem 1.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.grid import DyadicGrid, dyadic_order
from sikagp.kernels import MarkovKernel


class BridgeTree(NamedTuple):
    """Boundary factor, and gains and innovation factors of all midpoints.

    ``rows`` is the level L where all bridges of a level are alike (stationary kernel, uniform
    grid), and otherwise ``M - 2``: one bridge for every inner node, in dyadic order.
    """

    boundary: Float[Tensor, "features ends ends"]
    left: Float[Tensor, "features rows s s"]
    right: Float[Tensor, "features rows s s"]
    factor: Float[Tensor, "features rows s s"]

    def factor_of(
        self, weight: Int[Tensor, "*batch features levels"]
    ) -> Float[Tensor, "*#batch features levels s s"]:
        """Innovation factors of inner weights, given one weight per level."""
        features, rows = self.factor.shape[:2]
        if rows == weight.shape[-1]:
            return self.factor
        feature = torch.arange(features, device=weight.device).unsqueeze(-1)
        return self.factor[feature, weight - 2]

    def scaled(self, scale: Float[Tensor, " features"]) -> "BridgeTree":
        """The tree of the process times a number per feature."""
        boundary, factor = scale.view(-1, 1, 1), scale.view(-1, 1, 1, 1)
        return self._replace(boundary=boundary * self.boundary, factor=factor * self.factor)


def level_rows(tree_rows: int, level: int, lev: int) -> slice:
    """Rows of a tree that belong to level ``lev`` of a grid of the given level."""
    if tree_rows == level:
        return slice(lev - 1, lev)
    return slice(2 ** (lev - 1) - 1, 2**lev - 1)


class GridPrior(NamedTuple):
    """The prior of one additive component per feature, in unit coordinates."""

    kernel: MarkovKernel
    grid: DyadicGrid
    rate: Float[Tensor, " features"]
    tree: BridgeTree


def grid_prior(
    kernel: MarkovKernel, grid: DyadicGrid, rate: Float[Tensor, " features"]
) -> GridPrior:
    """Grow the tree of a kernel on a grid, in float64, and cast it to the type of ``rate``."""
    # Apple's GPU has no float64.
    exact = rate.to(torch.float32 if rate.device.type == "mps" else torch.float64)
    if kernel.stationary and grid.uniform:
        half = 0.5 ** torch.arange(1, grid.level + 1, dtype=exact.dtype, device=exact.device)
        bridge = kernel.midpoint(half.expand(len(rate), -1), exact.unsqueeze(-1))
    else:
        middle = dyadic_order(grid.level)[2:].to(rate.device).expand(len(rate), -1)
        half = middle & -middle  # the lowest set bit is the distance to both neighbours
        nodes = middle - half, middle, middle + half
        a, b, c = (grid.position(node, exact.dtype) for node in nodes)
        bridge = kernel.bridge(a, b, c, exact.unsqueeze(-1))
    parts = (kernel.boundary(exact), *bridge)
    tree = BridgeTree(*(part.to(rate.dtype).contiguous() for part in parts))
    return GridPrior(kernel, grid, rate, tree)
