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
from sikagp.ops.loops.covariances import covariances_backward, covariances_forward
from sikagp.ops.loops.interpolation import interpolation_backward, interpolation_forward
from sikagp.ops.loops.moments import moments_backward as moments_backward_loop
from sikagp.ops.loops.moments import moments_forward
from sikagp.ops.loops.points import points_backward, points_forward
from sikagp.ops.loops.prediction import predict
from sikagp.ops.loops.states import states_backward, states_forward
from sikagp.ops.loops.tools import LINE, Loop
from sikagp.ops.loops.weights import cell_coefficients
from sikagp.ops.threads import share
from sikagp.tree import BridgeTree

_log = logging.getLogger("sikagp")
_SECONDS_BEFORE_NOTICE = 2.0
_compiled: set[tuple[Loop, int, Any]] = set()


def _run(loop: Loop, count: int, operations: int, s: int, *tensors: Tensor) -> None:
    """Run a loop over a range; the lengths of two tuples tell it the state size."""
    arrays = [tensor.detach().numpy() for tensor in tensors]
    _run_compiled(loop, count, operations, (0,) * s, (0,) * s**2, *arrays)


def _run_compiled(loop: Loop, count: int, operations: int, state: tuple, *arguments: Any) -> None:
    key = loop, len(state), arguments[-1].dtype
    if key not in _compiled:
        _compile(loop, state, *arguments)
        _compiled.add(key)
    share(loop, count, operations, state, *arguments)


def _compile(loop: Loop, *arguments: Any) -> None:
    """Compile a loop by running it over nothing, with a notice if that takes long."""
    message = "compiling %s for this machine (once; later processes load it from disk) ..."
    name = getattr(loop, "__name__", str(loop))
    timer = threading.Timer(_SECONDS_BEFORE_NOTICE, _log.warning, (message, name))
    timer.daemon = True
    timer.start()
    try:
        loop(0, 0, *arguments)
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
    s, operations = weight.shape[2], 3 * weight.shape[2] * weight.numel()
    _run(states_forward, len(weight), operations, s, weight, *_rows(tree), states)
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
        states_backward, len(weight), 6 * s * weight.numel(), s,
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
    operations = 4 * s * table.numel()
    _run(covariances_forward, features, operations, s, scale, *_rows(tree), table)
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
        covariances_backward, len(scale), 12 * s * table.numel(), s,
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
    _run(interpolation_forward, rows, operations, s, *inputs, mean, variance)
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
    _run(interpolation_backward, features, operations, s, *inputs, *gradients)
    return gradients[0], gradients[1], gradients[2], gradients[3]


def moments(
    cell: Int[Tensor, "rows features"],
    near: Float[Tensor, "rows features s"],
    far: Float[Tensor, "rows features s"],
    weight: Float[Tensor, "features nodes s outputs"],
    scale: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f from weights, through tables that are made and used in the cache."""
    inputs = [t.contiguous() for t in (cell, near, far, weight, scale)]
    features, _, s, outputs = weight.shape
    # Sums of groups are added in a fixed order; their number depends on the sizes alone.
    groups = min(features, max(4, min(16, 2**17 // max(1, len(cell) * outputs))))
    mean, variance = weight.new_empty(2, groups, len(cell), outputs).unbind()
    operations = 12 * s * weight.numel() + near.numel() * (2 + 6 * s) * outputs
    _run(moments_forward, groups, operations, s, *inputs, *_rows(tree), mean, variance)
    return mean.sum(0), variance.sum(0)


def moments_backward(
    d_mean: Float[Tensor, "rows outputs"],
    d_variance: Float[Tensor, "rows outputs"],
    cell: Int[Tensor, "rows features"],
    near: Float[Tensor, "rows features s"],
    far: Float[Tensor, "rows features s"],
    weight: Float[Tensor, "features nodes s outputs"],
    scale: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Tensor, Tensor, Tensor, Tensor, BridgeTree]:
    """Gradients of the two-point weights, the weights, the scales and the tree."""
    inputs = [t.contiguous() for t in (d_mean, d_variance, cell, near, far, weight, scale)]
    features, _, s, outputs = weight.shape
    gradients = [torch.empty_like(t) for t in inputs[3:]]
    d_tree = [torch.zeros_like(t) for t in _rows(tree)]
    operations = 40 * s * weight.numel() + near.numel() * (8 + 12 * s) * outputs
    loop, rows = moments_backward_loop, _rows(tree)
    _run(loop, features, operations, s, *inputs, *rows, *gradients, *d_tree)
    d_near, d_far, d_weight, d_scale = gradients
    whole = BridgeTree(*(g.view_as(t) for g, t in zip(d_tree, tree, strict=True)))
    return d_near, d_far, d_weight, d_scale, whole


def _geometry(
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
    _run_compiled(cell_coefficients, len(rate), 200 * coefficients.size, (0,) * s, *arrays)
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
    positions, coefficients = _geometry(rate, nodes, level, s)
    arrays = [t.detach().numpy() for t in (unit, cell, rate, left, right, inside, outside)]
    arrays[2:2], arrays[4:4] = [positions], [coefficients]
    sizes = (0,) * s, (0,) * s**2
    _run_compiled(points_forward, len(unit), 30 * s * unit.numel(), *sizes, *arrays)
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
    positions, coefficients = _geometry(rate, nodes, level, s)
    arrays = [t.detach().numpy() for t in (*inputs, d_unit, d_rate)]
    arrays[6:6], arrays[8:8] = [positions], [coefficients]
    sizes = (0,) * s, (0,) * s**2, (0,) * (s**2 + s)
    _run_compiled(points_backward, unit.shape[1], 60 * s * unit.numel(), *sizes, *arrays)
    return d_unit, d_rate


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
        geometry = _geometry(features[:, 2], nodes, level, s)
        row, column = torch.tril_indices(s, s)
        own, cross = covariances[:, :, 0, row, column], covariances[:, :, 1].flatten(2, 3)
        parts = [part.detach().numpy() for part in (states, own, cross)]
        size, past_end = sum(part.size for part in parts), LINE // parts[0].itemsize
        # NumPy asks for huge pages, without which random rows of a large table miss the TLB.
        table = np.zeros(size + past_end, parts[0].dtype)
        np.concatenate(parts, axis=2, out=table[:size].reshape(*states.shape[:2], -1, outputs))
        small = [t.detach().contiguous().numpy() for t in (features, open_shares, bias)]
        self._arrays = *small[:2], *geometry, table, small[2]
        lengths = s, s**2, len(row), len(row) + s**2
        self._sizes, self._outputs = [(0,) * length for length in lengths], outputs

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Return mean and variance, shape (rows, outputs), and whether all entries are finite."""
        x, bad = rows.detach().contiguous().numpy(), np.zeros(1, np.int64)
        mean, variance = np.empty((2, len(x), self._outputs), x.dtype)
        operations = 4 * x.size * self._outputs * len(self._sizes[-1])
        arrays = x, *self._arrays, bad, mean, variance
        _run_compiled(predict, len(x), operations, *self._sizes, *arrays)
        return torch.from_numpy(mean), torch.from_numpy(variance), not bad[0]
