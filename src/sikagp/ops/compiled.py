"""The compiled backend: Numba loops on the CPU, in float32 and float64.

Importing this module imports Numba. Code is compiled when an operator first meets a floating type,
and kept on disk for later processes.
"""

from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.ops.arrays import empty_like
from sikagp.ops.compilation import run_compiled
from sikagp.ops.loops.covariances import covariances_backward, covariances_forward
from sikagp.ops.loops.interpolation import interpolation_backward, interpolation_forward
from sikagp.ops.loops.moments import add_groups, moments_forward
from sikagp.ops.loops.moments import moments_backward as moments_backward_loop
from sikagp.ops.loops.states import states_backward, states_forward
from sikagp.ops.loops.tools import Loop
from sikagp.ops.parts import OwnParameters, Points
from sikagp.ops.points import point_weights, point_weights_backward
from sikagp.ops.trees import bridge_tree, bridge_tree_backward
from sikagp.tree import BridgeTree

__all__ = [
    "bridge_tree", "bridge_tree_backward", "cell_covariances", "cell_covariances_backward",
    "interpolate", "interpolate_backward", "moments", "moments_backward", "node_states",
    "node_states_backward", "point_weights", "point_weights_backward",
]  # fmt: skip

Tensors = Tensor | tuple[Tensor, ...]


def _run(loop: Loop, count: int, operations: int, s: int, *tensors: Tensors) -> None:
    """Run a loop over a range; the lengths of two tuples tell it the state size."""
    arrays = [_as_arrays(t) for t in tensors]
    run_compiled(loop, count, operations, (0,) * s, (0,) * s**2, *arrays)


def _as_arrays(tensors: Tensors) -> Any:
    if isinstance(tensors, Tensor):
        return tensors.detach().numpy()
    return tuple(t.detach().numpy() for t in tensors)


def _rows(tree: BridgeTree) -> tuple[Tensor, ...]:
    """Contiguous tree tensors with each bridge's matrix as one row."""
    return tree[0].contiguous(), *(part.flatten(2).contiguous() for part in tree[1:])


def _as_tree(rows: tuple[Tensor, ...], tree: BridgeTree) -> BridgeTree:
    return BridgeTree(*(row.view_as(part) for row, part in zip(rows, tree, strict=True)))


def node_states(
    weight: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes s outputs"]:
    """Turn weights in dyadic order into states at nodes from left to right."""
    weight = weight.contiguous()
    states = torch.empty_like(weight)
    s, operations = weight.shape[2], 3 * weight.shape[2] * weight.numel()
    _run(states_forward, len(weight), operations, s, weight, _rows(tree), states)
    return states


def node_states_backward(
    d_states: Float[Tensor, "features nodes s outputs"],
    states: Float[Tensor, "features nodes s outputs"],
    weight: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Gradients of weights and of the tree."""
    inputs = [t.contiguous() for t in (d_states, states, weight)]
    s, rows, d_weight = weight.shape[2], _rows(tree), torch.empty_like(inputs[2])
    d_tree = tuple(torch.zeros_like(t) for t in rows)
    operations = 6 * s * weight.numel()
    _run(states_backward, len(weight), operations, s, *inputs, rows, d_weight, d_tree)
    return d_weight, _as_tree(d_tree, tree)


def cell_covariances(
    scale: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes 2 s s outputs"]:
    """Covariance of each node's state with itself and with the next node's."""
    scale = scale.contiguous()
    features, nodes, s, outputs = scale.shape
    table = scale.new_empty(features, nodes, 2, s, s, outputs)
    operations = 4 * s * table.numel()
    _run(covariances_forward, features, operations, s, scale, _rows(tree), table)
    return table


def cell_covariances_backward(
    d_table: Float[Tensor, "features nodes 2 s s outputs"],
    table: Float[Tensor, "features nodes 2 s s outputs"],
    scale: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Gradients of scales and of the tree."""
    inputs = [t.contiguous() for t in (d_table, scale)]
    s, rows, d_scale = scale.shape[2], _rows(tree), torch.empty_like(inputs[1])
    d_tree = tuple(torch.zeros_like(t) for t in rows)
    operations = 12 * s * table.numel()
    _run(covariances_backward, len(scale), operations, s, *inputs, rows, d_scale, d_tree)
    return d_scale, _as_tree(d_tree, tree)


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
    operations, points = left.numel() * (2 + 6 * s) * outputs, tuple(inputs[:3])
    _run(interpolation_forward, rows, operations, s, points, tuple(inputs[3:]), (mean, variance))
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
    d_moments, points, tables = tuple(inputs[:2]), tuple(inputs[2:5]), tuple(inputs[5:])
    d_left, d_right, d_states, d_covariances = (torch.empty_like(t) for t in inputs[3:])
    operations = left.numel() * (8 + 12 * s) * outputs + 3 * states.numel()
    _run(
        interpolation_backward, features, operations, s,
        d_moments, points, tables, (d_left, d_right), (d_states, d_covariances),
    )  # fmt: skip
    return d_left, d_right, d_states, d_covariances


def moments(
    points: Points, own: OwnParameters, tree: BridgeTree
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f from weights, through tables that are made and used in the cache."""
    near, (features, _, s, outputs) = points.near, own.weight.shape
    rows = len(near)
    # Sums of groups are added in a fixed order; their number depends on the sizes alone.
    groups = min(features, max(4, min(16, 2**17 // max(1, rows * outputs))))
    whole = tuple(t.contiguous() for t in points)
    weight, raw_scale, bias, prior_variance = (t.contiguous() for t in own)
    parts = weight.new_empty(2, groups, rows, outputs).unbind()
    operations = 30 * s * weight.numel() + near.numel() * (2 + 6 * s) * outputs
    _run(
        moments_forward, groups, operations, s,
        whole, weight, raw_scale, _rows(tree), prior_variance, *parts,
    )  # fmt: skip
    sums = weight.new_empty(rows, outputs), weight.new_empty(rows, outputs)
    arrays = (_as_arrays(t) for t in (parts, bias, sums))
    run_compiled(add_groups, rows, 2 * parts[0].numel(), (0,) * s, *arrays)
    return sums


def moments_backward(
    d_mean: Float[Tensor, "rows outputs"],
    d_variance: Float[Tensor, "rows outputs"],
    points: Points,
    own: OwnParameters,
    tree: BridgeTree,
) -> tuple[Points, OwnParameters, BridgeTree]:
    """Gradients of the points (their cells aside), of the parameters and of the tree."""
    features, _, s, outputs = own.weight.shape
    d_moments = d_mean.contiguous(), d_variance.contiguous()
    points = Points(*(t.contiguous() for t in points))
    weight, raw_scale, _, prior_variance = (t.contiguous() for t in own)
    rows = _rows(tree)
    d_points = tuple(torch.empty_like(t) for t in points[1:])
    d_tree = tuple(torch.zeros_like(t) for t in rows)
    d_weight, d_raw, d_bias, d_prior_variance = empty_like(*own)
    operations = 60 * s * weight.numel() + points.near.numel() * (8 + 12 * s) * outputs
    _run(
        moments_backward_loop, features, operations, s,
        d_moments, tuple(points), weight, raw_scale, rows, prior_variance,
        d_points, d_weight, d_raw, d_tree, d_prior_variance, d_bias,
    )  # fmt: skip
    d_own = OwnParameters(d_weight, d_raw, d_bias, d_prior_variance)
    return Points(points.cell, *d_points), d_own, _as_tree(d_tree, tree)
