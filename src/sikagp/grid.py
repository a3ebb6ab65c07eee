"""The dyadic grid: its nodes, their order, and which cell and bridges an input falls into.

A grid of level L has ``2**L`` cells and ``M = 2**L + 1`` nodes on the unit interval. Nodes are
numbered from left to right; weights follow the paper's dyadic order

    U = [0, 1 | 1/2 | 1/4, 3/4 | 1/8, 3/8, 5/8, 7/8 | ...],

so the ``2**(l-1)`` weights of level l start at position ``2**(l-1) + 1``. The level-l cell that
holds x is the finest cell shifted right by ``L - l`` bits: one look-up serves all levels, on
uniform and on non-uniform grids alike.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sikagp._typing import Float, Int


def level_slice(level: int) -> slice:
    """Positions of the weights of one level (1, 2, ...) in dyadic order."""
    return slice(2 ** (level - 1) + 1, 2**level + 1)


def dyadic_order(level: int) -> Int[Tensor, " nodes"]:
    """Node number of each weight; ``dyadic_order(2)`` is ``[0, 4, 2, 1, 3]``."""
    ends = torch.tensor([0, 2**level])
    odd = [torch.arange(1, 2**lev, 2) << (level - lev) for lev in range(1, level + 1)]
    return torch.cat([ends, *odd])


class Brackets(NamedTuple):
    """The level-l bridges that span an input: end nodes, midpoint, and the midpoint's weight."""

    left: Float[Tensor, "*batch features levels"]
    middle: Float[Tensor, "*batch features levels"]
    right: Float[Tensor, "*batch features levels"]
    weight: Int[Tensor, "*batch features levels"]


class DyadicGrid:
    """Nodes on the unit interval, evenly spaced unless positions are given.

    ``nodes`` holds increasing positions from 0 to 1, one row per feature or one row for all;
    ``checked`` says that this is known.
    """

    def __init__(
        self,
        level: int,
        nodes: Float[Tensor, "features nodes"] | None = None,
        *,
        checked: bool = False,
    ) -> None:
        self.level = level
        self.num_cells = 2**level
        self.num_nodes = 2**level + 1
        if nodes is not None and not checked:
            self._check_nodes(nodes)
        self.nodes = nodes

    def _check_nodes(self, nodes: Float[Tensor, "..."]) -> None:
        if nodes.ndim != 2 or nodes.shape[-1] != self.num_nodes:
            raise ValueError(
                f"a grid of level {self.level} takes nodes of shape (features, {self.num_nodes}), "
                f"got {tuple(nodes.shape)}"
            )
        ends_at_0_and_1 = bool((nodes[:, 0] == 0).all() and (nodes[:, -1] == 1).all())
        if not ends_at_0_and_1 or not bool((nodes.diff(dim=-1) > 0).all()):
            raise ValueError("nodes must increase strictly from 0 to 1 in every row")

    @property
    def uniform(self) -> bool:
        """Whether all cells have the same width."""
        return self.nodes is None

    def position(
        self, node: Int[Tensor, "*batch features width"], dtype: torch.dtype
    ) -> Float[Tensor, "*batch features width"]:
        """Unit coordinate of node numbers; exact on a uniform grid."""
        if self.nodes is None:
            return node.to(dtype) / self.num_cells
        nodes = self.nodes.to(node.device, dtype)
        nodes = nodes.expand(node.shape[-2], -1)
        row = torch.arange(node.shape[-2], device=node.device).unsqueeze(-1)
        return nodes[row, node]

    def locate(self, x: Float[Tensor, "*batch features"]) -> Int[Tensor, "*batch features"]:
        """Number of the finest cell that holds x in [0, 1]; always in range, even for NaN."""
        if self.nodes is None:
            cell = (x * self.num_cells).long()
        else:
            nodes = self.nodes.to(x).expand(x.shape[-1], -1).contiguous()
            columns = x.detach().reshape(-1, x.shape[-1]).t().contiguous()
            cell = torch.searchsorted(nodes, columns, right=True).t().reshape(x.shape) - 1
        return cell.clamp(0, self.num_cells - 1)

    def brackets(self, x: Float[Tensor, "*batch features"]) -> Brackets:
        """Tensorized sparse indexing: the one active bridge of every level, for x in [0, 1]."""
        lev = torch.arange(1, self.level + 1, device=x.device)
        # The bridge of level l spans the cell of level l - 1.
        parent = self.locate(x).unsqueeze(-1) >> (self.level + 1 - lev)
        half = 1 << (self.level - lev)
        left = parent * (2 * half)
        middle, right = left + half, left + 2 * half
        weight = (1 << (lev - 1)) + 1 + parent
        left, middle, right = (self.position(n, x.dtype) for n in (left, middle, right))
        return Brackets(left, middle, right, weight)
