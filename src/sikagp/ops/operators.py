"""Registration of the operators with torch: schemas, fake tensors and autograd.

Every operator has a forward and a backward pass in each backend, and both are registered, so that
``torch.compile`` can trace through training. A tree always travels as its four tensors.
"""

from typing import Any

import torch
from torch import Tensor

from sikagp.ops.arrays import empty_like
from sikagp.ops.backends import backend_for
from sikagp.ops.parts import OwnParameters, Points
from sikagp.tree import BridgeTree

_TREE = "Tensor boundary, Tensor left, Tensor right, Tensor factor"
_D_TREE = "Tensor, Tensor, Tensor, Tensor"
_POINTS = "Tensor cell, Tensor near, Tensor far, Tensor residual"
_OWN = "Tensor weight, Tensor raw_scale, Tensor bias, Tensor prior_variance"
_TRAINED = f"{_POINTS}, {_OWN}, {_TREE}"
_COORDINATES = "Tensor unit, Tensor rate, Tensor? nodes, int level"
_SHARES = "float between, float beyond"
_RATES = "Tensor rate, Tensor scale"
_POINT = "Tensor cell, Tensor left, Tensor right, Tensor states, Tensor covariances"


def _define(name: str, schema: str) -> Any:
    return torch.library.custom_op(f"sikagp::{name}", mutates_args=(), schema=schema)


@_define("node_states", f"(Tensor weight, {_TREE}) -> Tensor")
def node_states(weight: Tensor, *tree: Tensor) -> Tensor:
    """Weights in dyadic order to states at nodes; see ``table.node_states``.

    Shape:
        Weights and states (features, nodes, s, outputs).
    """
    return backend_for(weight).node_states(weight, BridgeTree(*tree))


@_define(
    "node_states_backward",
    f"(Tensor d_states, Tensor states, Tensor weight, {_TREE}) -> (Tensor, {_D_TREE})",
)
def node_states_backward(
    d_states: Tensor, states: Tensor, weight: Tensor, *tree: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of the weights and of the tree, of their shape (features, ...)."""
    backend = backend_for(weight)
    d_weight, d_tree = backend.node_states_backward(d_states, states, weight, BridgeTree(*tree))
    return d_weight, *d_tree


@_define("cell_covariances", f"(Tensor scale, {_TREE}) -> Tensor")
def cell_covariances(scale: Tensor, *tree: Tensor) -> Tensor:
    """Scales of weights to covariances of neighbouring states; see ``table.cell_covariances``.

    Shape:
        Scales (features, nodes, s, outputs), table (features, nodes, 2, s, s, outputs).
    """
    return backend_for(scale).cell_covariances(scale, BridgeTree(*tree))


@_define(
    "cell_covariances_backward",
    f"(Tensor d_table, Tensor table, Tensor scale, {_TREE}) -> (Tensor, {_D_TREE})",
)
def cell_covariances_backward(
    d_table: Tensor, table: Tensor, scale: Tensor, *tree: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of the scales and of the tree, of their shape (features, ...)."""
    backend = backend_for(scale)
    d_scale, d_tree = backend.cell_covariances_backward(d_table, table, scale, BridgeTree(*tree))
    return d_scale, *d_tree


@_define("interpolate", f"({_POINT}) -> (Tensor, Tensor)")
def interpolate(
    cell: Tensor, left: Tensor, right: Tensor, states: Tensor, covariances: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance from the two ends of each cell; see ``table.interpolate``.

    Shape:
        Cells (rows, features), weights (rows, features, s), mean and variance (rows, outputs).
    """
    return backend_for(states).interpolate(cell, left, right, states, covariances)


@_define(
    "interpolate_backward",
    f"(Tensor d_mean, Tensor d_variance, {_POINT}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def interpolate_backward(
    d_mean: Tensor, d_variance: Tensor, cell: Tensor, *point: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the two-point weights, shape (rows, features, s), and of the tables."""
    return backend_for(d_mean).interpolate_backward(d_mean, d_variance, cell, *point)


def _bundled(tensors: tuple[Tensor, ...]) -> tuple[Points, OwnParameters, BridgeTree]:
    return Points(*tensors[:4]), OwnParameters(*tensors[4:8]), BridgeTree(*tensors[8:])


@_define("moments", f"({_TRAINED}) -> (Tensor, Tensor)")
def moments(cell: Tensor, near: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance from weights and raw scales, through tables that are not kept.

    Shape:
        Cells (rows, features), weights (features, nodes, s, outputs), results (rows, outputs).
    """
    return backend_for(near).moments(*_bundled((cell, near, *others)))


@_define(
    "moments_backward",
    f"(Tensor d_mean, Tensor d_variance, {_TRAINED})"
    f" -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, {_D_TREE})",
)
def moments_backward(d_mean: Tensor, d_variance: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of points, parameters and tree: of all inputs but the cells."""
    backend = backend_for(d_mean)
    d_points, d_own, d_tree = backend.moments_backward(d_mean, d_variance, *_bundled(inputs))
    return *d_points[1:], *d_own, *d_tree


@_define("point_weights", f"({_COORDINATES}, int s, {_SHARES}) -> (Tensor, Tensor, Tensor, Tensor)")
def point_weights(
    unit: Tensor, rate: Tensor, nodes: Tensor | None, level: int, s: int, *shares: float
) -> tuple[Tensor, ...]:
    """Two-point weights, residuals and cells, Laplace and Matérn; compiled backend only.

    Shape:
        Units, residuals and cells (rows, features), weights (rows, features, s).
    """
    cell, *points = backend_for(unit).point_weights(unit, rate, nodes, level, s, shares)
    return *points, cell


@_define(
    "point_weights_backward",
    "(Tensor d_near, Tensor d_far, Tensor d_residual,"
    f" {_COORDINATES}, {_SHARES}) -> (Tensor, Tensor)",
)
def point_weights_backward(d_near: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Gradients of unit coordinates, shape (rows, features), and rates, shape (features,)."""
    *tensors, between, beyond = inputs
    return backend_for(d_near).point_weights_backward(d_near, *tensors, (between, beyond))


@_define("bridge_tree", f"({_RATES}, Tensor? nodes, int level, int s) -> ({_D_TREE})")
def bridge_tree(rate: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Scaled bridge tree of Laplace and Matérn kernels; compiled backend only."""
    return tuple(backend_for(rate).bridge_tree(rate, *inputs))


@_define("bridge_tree_backward", f"({_TREE}, {_RATES}, Tensor? nodes) -> (Tensor, Tensor)")
def bridge_tree_backward(d_boundary: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Gradients of rates and prior deviations, shape (features,)."""
    *d_tree, rate, scale, nodes = d_boundary, *inputs
    return backend_for(rate).bridge_tree_backward(BridgeTree(*d_tree), rate, scale, nodes)


@bridge_tree.register_fake
def _(rate: Tensor, scale: Tensor, nodes: Tensor | None, level: int, s: int) -> tuple[Tensor, ...]:
    features, rows = rate.shape[0], level if nodes is None else 2**level - 1
    bridge = (rate.new_empty(features, rows, s, s) for _ in range(3))
    return rate.new_empty(features, 2 * s, 2 * s), *bridge


@bridge_tree_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_like(*inputs[4:6])


@node_states.register_fake
def _(weight: Tensor, *tree: Tensor) -> Tensor:
    return empty_like(weight)[0]


@node_states_backward.register_fake
def _(d_states: Tensor, states: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return empty_like(*inputs)


@cell_covariances.register_fake
def _(scale: Tensor, *tree: Tensor) -> Tensor:
    features, nodes, s, outputs = scale.shape
    return scale.new_empty(features, nodes, 2, s, s, outputs)


@cell_covariances_backward.register_fake
def _(d_table: Tensor, table: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return empty_like(*inputs)


@interpolate.register_fake
def _(
    cell: Tensor, left: Tensor, right: Tensor, states: Tensor, covariances: Tensor
) -> tuple[Tensor, Tensor]:
    shape = cell.shape[0], states.shape[-1]
    return states.new_empty(shape), states.new_empty(shape)


@interpolate_backward.register_fake
def _(d_mean: Tensor, d_variance: Tensor, cell: Tensor, *point: Tensor) -> tuple[Tensor, ...]:
    return empty_like(*point)


@moments.register_fake
def _(*inputs: Tensor) -> tuple[Tensor, ...]:
    points, own, _ = _bundled(inputs)
    shape = points.cell.shape[0], own.weight.shape[-1]
    return own.weight.new_empty(shape), own.weight.new_empty(shape)


@moments_backward.register_fake
def _(d_mean: Tensor, d_variance: Tensor, cell: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return empty_like(*inputs)


@point_weights.register_fake
def _(
    unit: Tensor, rate: Tensor, nodes: Tensor | None, level: int, s: int, *shares: float
) -> tuple[Tensor, ...]:
    near, far = unit.new_empty(*unit.shape, s), unit.new_empty(*unit.shape, s)
    return near, far, unit.new_empty(unit.shape), unit.new_empty(unit.shape, dtype=torch.long)


@point_weights_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_like(*inputs[3:5])


def _save_all(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs)


def _states_gradient(ctx: Any, d_states: Tensor) -> tuple[Tensor, ...]:
    return node_states_backward(d_states, *ctx.saved_tensors)


def _covariances_gradient(ctx: Any, d_table: Tensor) -> tuple[Tensor, ...]:
    return cell_covariances_backward(d_table, *ctx.saved_tensors)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs)


def _moments_gradient(ctx: Any, d_mean: Tensor, d_variance: Tensor) -> tuple[Tensor | None, ...]:
    return None, *moments_backward(d_mean, d_variance, *ctx.saved_tensors)


def _point_gradient(ctx: Any, d_mean: Tensor, d_variance: Tensor) -> tuple[Tensor | None, ...]:
    return None, *interpolate_backward(d_mean, d_variance, *ctx.saved_tensors)


node_states.register_autograd(_states_gradient, setup_context=_save_all)
cell_covariances.register_autograd(_covariances_gradient, setup_context=_save_all)
interpolate.register_autograd(_point_gradient, setup_context=_save_inputs)
moments.register_autograd(_moments_gradient, setup_context=_save_inputs)


def _save_rates(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:3])


def _rates_gradient(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    return *bridge_tree_backward(*gradients, *ctx.saved_tensors), None, None, None


bridge_tree.register_autograd(_rates_gradient, setup_context=_save_rates)


def _save_coordinates(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.level, _, between, beyond = inputs
    ctx.shares = between, beyond
    ctx.save_for_backward(*tensors)


def _coordinates_gradient(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    inputs = *gradients[:3], *ctx.saved_tensors, ctx.level, *ctx.shares
    return *point_weights_backward(*inputs), None, None, None, None, None


point_weights.register_autograd(_coordinates_gradient, setup_context=_save_coordinates)
