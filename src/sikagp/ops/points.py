"""Two-point weights of the compiled backend, for kernels of any state size."""

import numpy as np
import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.ops.arrays import as_arrays
from sikagp.ops.compilation import run_compiled
from sikagp.ops.loops.points import points_backward, points_forward
from sikagp.ops.loops.weights import cell_coefficients
from sikagp.ops.parts import Points


def node_positions(
    nodes: Float[Tensor, "lines nodes"] | None, level: int
) -> Float[np.ndarray, "lines nodes"]:
    """Unit coordinates of nodes, one line for all features or one each; even if none are given."""
    if nodes is None:
        return np.arange(2**level + 1)[None] / 2**level
    return nodes.detach().double().contiguous().numpy()


def cell_geometry(
    rate: Float[Tensor, " features"],
    nodes: Float[Tensor, "lines nodes"] | None,
    level: int,
    s: int,
) -> tuple[Float[np.ndarray, "lines nodes"], Float[np.ndarray, "features widths coefficients"]]:
    """Node positions, and the coefficients of the two-point weights of every width of cell."""
    positions, widths = node_positions(nodes, level), 1 if nodes is None else 2**level
    coefficients = np.empty((len(rate), widths, s * s + s))
    arrays = positions, rate.detach().contiguous().numpy(), coefficients
    run_compiled(cell_coefficients, len(rate), 200 * coefficients.size, (0,) * s, *arrays)
    return positions, coefficients


def point_weights(
    unit: Float[Tensor, "rows features"],
    rate: Float[Tensor, " features"],
    nodes: Float[Tensor, "lines nodes"] | None,
    level: int,
    s: int,
    shares: tuple[float, float],
) -> Points:
    """Cells, two-point weights and residuals of the kernel of state size s.

    ``shares`` says how much of the residual to keep between nodes and beyond the grid.
    """
    unit, rate = unit.contiguous(), rate.contiguous()
    near, far = unit.new_empty(*unit.shape, s), unit.new_empty(*unit.shape, s)
    points = Points(torch.empty_like(unit, dtype=torch.long), near, far, torch.empty_like(unit))
    arrays = *_geometry(unit, rate, nodes, level, s), shares, *(t.numpy() for t in points)
    sizes = (0,) * s, (0,) * s**2
    run_compiled(points_forward, len(unit), 180 * s * unit.numel(), *sizes, *arrays)
    return points


def point_weights_backward(
    d_near: Float[Tensor, "rows features s"],
    d_far: Float[Tensor, "rows features s"],
    d_residual: Float[Tensor, "rows features"],
    unit: Float[Tensor, "rows features"],
    rate: Float[Tensor, " features"],
    nodes: Float[Tensor, "lines nodes"] | None,
    level: int,
    shares: tuple[float, float],
) -> tuple[Float[Tensor, "rows features"], Float[Tensor, " features"]]:
    """Gradients of unit coordinates and rates."""
    s, unit, rate = d_near.shape[-1], unit.contiguous(), rate.contiguous()
    d_unit, d_rate = torch.empty_like(unit), torch.empty_like(rate)
    gradients = as_arrays(d_near, d_far, d_residual)
    arrays = *gradients, *_geometry(unit, rate, nodes, level, s), shares
    sizes, targets = ((0,) * s, (0,) * s**2, (0,) * (s**2 + s)), (d_unit.numpy(), d_rate.numpy())
    run_compiled(points_backward, unit.shape[1], 250 * s * unit.numel(), *sizes, *arrays, *targets)
    return d_unit, d_rate


def _geometry(unit: Tensor, rate: Tensor, nodes: Tensor | None, level: int, s: int) -> tuple:
    """Arrays of coordinates, node positions, rates and coefficients."""
    positions, coefficients = cell_geometry(rate, nodes, level, s)
    return unit.detach().numpy(), positions, rate.detach().numpy(), coefficients
