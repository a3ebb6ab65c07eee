"""Two-point weights of the compiled backend, for kernels of any state size."""

import numpy as np
import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.ops.compilation import run_compiled
from sikagp.ops.loops.points import points_backward, points_forward
from sikagp.ops.loops.weights import cell_coefficients


def cell_geometry(
    rate: Tensor, nodes: Tensor | None, level: int, s: int
) -> tuple[np.ndarray, np.ndarray]:
    """Node positions, and the coefficients of the two-point weights of every width of cell."""
    cells = 2**level
    if nodes is None:
        positions, widths = np.arange(cells + 1)[None] / cells, 1
    else:
        positions, widths = nodes.detach().double().contiguous().numpy(), cells
    coefficients = np.empty((len(rate), widths, s * s + s))
    arrays = positions, rate.detach().contiguous().numpy(), coefficients
    run_compiled(cell_coefficients, len(rate), 200 * coefficients.size, (0,) * s, *arrays)
    return positions, coefficients


def point_weights(
    unit: Float[Tensor, "rows features"],
    rate: Float[Tensor, " features"],
    cell: Int[Tensor, "rows features"],
    nodes: Float[Tensor, "lines nodes"] | None,
    level: int,
    s: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two-point weights, (rows, features, s), and residuals of the kernel of state size s."""
    unit, rate, cell = unit.contiguous(), rate.contiguous(), cell.contiguous()
    left, right = unit.new_empty(*unit.shape, s), unit.new_empty(*unit.shape, s)
    inside, outside = torch.empty_like(unit), torch.empty_like(unit)
    positions, coefficients = cell_geometry(rate, nodes, level, s)
    arrays = [t.detach().numpy() for t in (unit, cell, rate, left, right, inside, outside)]
    arrays[2:2], arrays[4:4] = [positions], [coefficients]
    sizes = (0,) * s, (0,) * s**2
    run_compiled(points_forward, len(unit), 30 * s * unit.numel(), *sizes, *arrays)
    return left, right, inside, outside


def point_weights_backward(
    d_left: Float[Tensor, "rows features s"],
    d_right: Float[Tensor, "rows features s"],
    d_inside: Float[Tensor, "rows features"],
    d_outside: Float[Tensor, "rows features"],
    unit: Float[Tensor, "rows features"],
    rate: Float[Tensor, " features"],
    cell: Int[Tensor, "rows features"],
    nodes: Float[Tensor, "lines nodes"] | None,
    level: int,
) -> tuple[Float[Tensor, "rows features"], Float[Tensor, " features"]]:
    """Gradients of unit coordinates and rates."""
    s = d_left.shape[-1]
    inputs = [t.contiguous() for t in (d_left, d_right, d_inside, d_outside, unit, cell, rate)]
    d_unit, d_rate = torch.empty_like(inputs[4]), torch.empty_like(inputs[6])
    positions, coefficients = cell_geometry(rate, nodes, level, s)
    arrays = [t.detach().numpy() for t in (*inputs, d_unit, d_rate)]
    arrays[6:6], arrays[8:8] = [positions], [coefficients]
    sizes = (0,) * s, (0,) * s**2, (0,) * (s**2 + s)
    run_compiled(points_backward, unit.shape[1], 60 * s * unit.numel(), *sizes, *arrays)
    return d_unit, d_rate
