"""The compiled backend: Numba loops on the CPU, in float32 and float64.

Importing this module imports Numba. Code is compiled when an operator first meets a floating type,
and kept on disk for later processes.
"""

import logging
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.ops.loops import Loop, covariance_loops, interpolation_loops, state_loops
from sikagp.ops.prediction_loops import SINH_SERIES, prediction_loop
from sikagp.ops.threads import share
from sikagp.tree import BridgeTree

_log = logging.getLogger("sikagp")
_SECONDS_BEFORE_NOTICE = 2.0
_compiled: set[tuple[Loop, Any]] = set()


def _run(loop: Loop, count: int, operations: int, *tensors: Tensor) -> None:
    _run_arrays(loop, count, operations, [tensor.detach().numpy() for tensor in tensors])


def _run_arrays(loop: Loop, count: int, operations: int, arrays: list[Any]) -> None:
    key = loop, arrays[-1].dtype
    if key not in _compiled:
        _compile(loop, arrays)
        _compiled.add(key)
    share(loop, count, operations, *arrays)


def _compile(loop: Loop, arrays: list[Any]) -> None:
    """Compile a loop by running it over nothing, with a notice if that takes long."""
    message = "compiling %s for this machine (once; later processes load it from disk) ..."
    name = getattr(loop, "__qualname__", str(loop)).split(".")[0]
    timer = threading.Timer(_SECONDS_BEFORE_NOTICE, _log.warning, (message, name))
    timer.daemon = True
    timer.start()
    try:
        loop(0, 0, *arrays)
    finally:
        timer.cancel()


def _rows(tree: BridgeTree) -> tuple[Tensor, ...]:
    """Contiguous tree tensors with each bridge's matrix as one row."""
    return tree[0].contiguous(), *(part.flatten(2).contiguous() for part in tree[1:])


def node_states(
    weight: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes s outputs"]:
    """Turn weights in dyadic order into states at nodes from left to right."""
    weight = weight.contiguous()
    states = torch.empty_like(weight)
    loop, s = state_loops(weight.shape[2]).forward, weight.shape[2]
    _run(loop, len(weight), 3 * s * weight.numel(), weight, *_rows(tree), states)
    return states


def node_states_backward(
    d_states: Float[Tensor, "features nodes s outputs"],
    states: Float[Tensor, "features nodes s outputs"],
    weight: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Gradients of weights and of the tree."""
    weight, s = weight.contiguous(), weight.shape[2]
    d_weight, d_tree = torch.empty_like(weight), [torch.zeros_like(t) for t in _rows(tree)]
    _run(
        state_loops(s).backward, len(weight), 6 * s * weight.numel(),
        d_states.contiguous(), states, weight, *_rows(tree), d_weight, *d_tree,
    )  # fmt: skip
    return d_weight, BridgeTree(*(g.view_as(t) for g, t in zip(d_tree, tree, strict=True)))


def cell_covariances(
    scale: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes 2 s s outputs"]:
    """Covariance of each node's state with itself and with the next node's."""
    scale = scale.contiguous()
    features, nodes, s, outputs = scale.shape
    table = scale.new_empty(features, nodes, 2, s, s, outputs)
    loop = covariance_loops(s).forward
    _run(loop, features, 4 * s * table.numel(), scale, *_rows(tree), table)
    return table


def cell_covariances_backward(
    d_table: Float[Tensor, "features nodes 2 s s outputs"],
    table: Float[Tensor, "features nodes 2 s s outputs"],
    scale: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Gradients of scales and of the tree."""
    scale, s = scale.contiguous(), scale.shape[2]
    d_scale, d_tree = torch.empty_like(scale), [torch.zeros_like(t) for t in _rows(tree)]
    _run(
        covariance_loops(s).backward, len(scale), 12 * s * table.numel(),
        d_table.contiguous(), table, scale, *_rows(tree), d_scale, *d_tree,
    )  # fmt: skip
    return d_scale, BridgeTree(*(g.view_as(t) for g, t in zip(d_tree, tree, strict=True)))


def interpolate(
    cell: Int[Tensor, "rows features"],
    left: Float[Tensor, "rows features s"],
    right: Float[Tensor, "rows features s"],
    states: Float[Tensor, "features nodes s outputs"],
    covariances: Float[Tensor, "features nodes 2 s s outputs"],
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f, summed over features, from the two ends of each input's cell."""
    rows, s, outputs = len(cell), states.shape[2], states.shape[3]
    mean, variance = states.new_empty(rows, outputs), states.new_empty(rows, outputs)
    inputs = [t.contiguous() for t in (cell, left, right, states, covariances)]
    operations = left.numel() * (2 + 6 * s) * outputs
    _run(interpolation_loops(s).forward, rows, operations, *inputs, mean, variance)
    return mean, variance


def interpolate_backward(
    d_mean: Float[Tensor, "rows outputs"],
    d_variance: Float[Tensor, "rows outputs"],
    cell: Int[Tensor, "rows features"],
    left: Float[Tensor, "rows features s"],
    right: Float[Tensor, "rows features s"],
    states: Float[Tensor, "features nodes s outputs"],
    covariances: Float[Tensor, "features nodes 2 s s outputs"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the two-point weights, the states and the covariances."""
    features, s, outputs = cell.shape[1], states.shape[2], states.shape[3]
    inputs = [t.contiguous() for t in (d_mean, d_variance, cell, left, right, states, covariances)]
    gradients = [torch.empty_like(t) for t in inputs[3:]]
    operations = left.numel() * (8 + 12 * s) * outputs + 3 * states.numel()
    _run(interpolation_loops(s).backward, features, operations, *inputs, *gradients)
    return gradients[0], gradients[1], gradients[2], gradients[3]


class Predictor:
    """Mean and variance for raw rows, from a packed table, in one loop.

    Args:
        kernel: the key of the kernel's compiled ``POINT_WEIGHTS``.
        domain: low end and width of each feature's interval, shape (2, features).
        prior: rate and variance of each feature, shape (2, features).
        open_shares: how much of the residual between nodes and beyond the grid to add, shape (2,).
        table: states, covariances and neighbour covariances, (features, nodes, s + 2 s^2, outputs).
        bias: mean and variance of the bias, shape (2, outputs).
    """

    def __init__(
        self,
        kernel: str,
        domain: Tensor,
        prior: Tensor,
        open_shares: Tensor,
        table: Tensor,
        bias: Tensor,
    ) -> None:
        series = torch.tensor(SINH_SERIES, dtype=table.dtype)
        features, shares = torch.cat([domain, prior]), torch.cat([open_shares, series])
        constants = features, shares, table, bias
        self._arrays = [t.detach().contiguous().numpy() for t in constants]
        self._loop = prediction_loop(kernel)
        self._outputs = table.shape[-1]

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Return mean and variance, shape (rows, outputs), and whether all entries are finite."""
        x, bad = rows.detach().contiguous().numpy(), np.zeros(1, np.int64)
        mean, variance = np.empty((2, len(x), self._outputs), x.dtype)
        arrays = [x, *self._arrays, bad, mean, variance]
        _run_arrays(self._loop, len(x), 8 * x.size * self._outputs, arrays)
        return torch.from_numpy(mean), torch.from_numpy(variance), not bad[0]
