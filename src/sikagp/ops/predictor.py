"""Fused prediction of the compiled backend, from a packed table."""

import numpy as np
import torch
from torch import Tensor

from sikagp.ops.arrays import as_arrays
from sikagp.ops.compilation import run_compiled
from sikagp.ops.loops.prediction import predict
from sikagp.ops.loops.tools import LINE
from sikagp.ops.points import cell_geometry


class Predictor:
    """Mean and variance for raw rows, from a packed table, in one loop.

    Args:
        features: low end, width, rate and prior variance of each feature, shape (features, 4).
        open_shares: how much of the residual to add between nodes and beyond the grid, shape (2,).
        states: node states, (features, nodes, s, outputs).
        covariances: of neighbouring states, (features, nodes, 2, s, s, outputs).
        nodes: positions of the nodes in unit coordinates, or None where they are even.
        bias: mean and variance of the bias, shape (2, outputs).
    """

    def __init__(
        self,
        features: Tensor,
        open_shares: Tensor,
        states: Tensor,
        covariances: Tensor,
        nodes: Tensor | None,
        bias: Tensor,
    ) -> None:
        s, outputs, level = *states.shape[2:], (states.shape[1] - 2).bit_length()
        geometry = cell_geometry(features[:, 2], nodes, level, s)
        row, column = torch.tril_indices(s, s)
        own, cross = covariances[:, :, 0, row, column], covariances[:, :, 1].flatten(2, 3)
        parts = [part.detach().numpy() for part in (states, own, cross)]
        size, past_end = sum(part.size for part in parts), LINE // parts[0].itemsize
        # NumPy asks for huge pages, without which random rows of a large table miss the TLB.
        table = np.zeros(size + past_end, parts[0].dtype)
        np.concatenate(parts, axis=2, out=table[:size].reshape(*states.shape[:2], -1, outputs))
        numbers, shares, offset = as_arrays(features, open_shares, bias)
        self._arrays = numbers, shares, *geometry, table, offset
        lengths = s, s**2, len(row), len(row) + s**2
        self._sizes, self._outputs = [(0,) * length for length in lengths], outputs

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Return mean and variance, shape (rows, outputs), and whether all entries are finite."""
        x, bad = rows.detach().contiguous().numpy(), np.zeros(1, np.int64)
        mean, variance = np.empty((2, len(x), self._outputs), x.dtype)
        reads = 4 * self._outputs * len(self._sizes[-1])
        operations = x.size * (250 * len(self._sizes[0]) + reads)
        arrays = x, *self._arrays, bad, mean, variance
        run_compiled(predict, len(x), operations, *self._sizes, *arrays)
        return torch.from_numpy(mean), torch.from_numpy(variance), not bad[0]
