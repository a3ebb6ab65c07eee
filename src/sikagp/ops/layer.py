"""Moments of a whole layer as one operator: bridge tree, two-point weights and sums over features.

Apart, these are three operators and some twenty small ones between them, which in a small layer take
longer than the loops. For Laplace and Matérn kernels, on the compiled backend.
"""

from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.ops.backends import backend_for
from sikagp.ops.parts import OwnParameters, Points
from sikagp.tree import BridgeTree

_OWN = "Tensor weight, Tensor raw_scale, Tensor bias, Tensor prior_variance"
_INPUTS = f"Tensor unit, Tensor rate, {_OWN}, Tensor? nodes, float between, float beyond"
_KEPT = "Tensor cell, Tensor near, Tensor far, Tensor residual"
_KEPT += ", Tensor boundary, Tensor left, Tensor right, Tensor factor"


@torch.library.custom_op(
    "sikagp::layer_moments",
    mutates_args=(),
    schema=f"({_INPUTS}) -> ({', '.join(['Tensor'] * 10)})",
)
def _layer_moments(unit: Tensor, rate: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Mean and variance, then the points and the tree that the backward pass will need."""
    *own, nodes, between, beyond = inputs
    backend, (level, s) = backend_for(unit), _sizes(own[0])
    tree = backend.bridge_tree(rate, own[-1].sqrt(), nodes, level, s)
    points = backend.point_weights(unit, rate, nodes, level, s, (between, beyond))
    return *backend.moments(points, OwnParameters(*own), tree), *points, *tree


@torch.library.custom_op(
    "sikagp::layer_moments_backward",
    mutates_args=(),
    schema=f"(Tensor d_mean, Tensor d_variance, {_INPUTS}, {_KEPT})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _layer_moments_backward(d_mean: Tensor, d_variance: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Gradients of unit coordinates, rates and parameters."""
    (unit, rate, *own, nodes, between, beyond), kept = inputs[:9], inputs[9:]
    backend, points, tree = backend_for(unit), Points(*kept[:4]), BridgeTree(*kept[4:])
    parts = points, OwnParameters(*own), tree
    d_points, d_own, d_tree = backend.moments_backward(d_mean, d_variance, *parts)
    d_unit, d_rate = backend.point_weights_backward(
        *d_points[1:], unit, rate, nodes, _sizes(own[0])[0], (between, beyond)
    )
    scale = own[-1].sqrt()
    d_tree_rate, d_scale = backend.bridge_tree_backward(d_tree, rate, scale, nodes)
    d_rate += d_tree_rate
    d_own.prior_variance.addcdiv_(d_scale, scale, value=0.5)
    return d_unit, d_rate, *d_own


def _sizes(weight: Tensor) -> tuple[int, int]:
    """Level and state size."""
    return (weight.shape[1] - 2).bit_length(), weight.shape[2]


@_layer_moments.register_fake
def _(unit: Tensor, rate: Tensor, weight: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    (rows, features), (level, s), nodes = unit.shape, _sizes(weight), inputs[3]
    tree_rows = level if nodes is None else 2**level - 1
    moments, weights = [(rows, weight.shape[-1])] * 2, [(rows, features, s)] * 2
    ends, bridges = (features, 2 * s, 2 * s), [(features, tree_rows, s, s)] * 3
    shapes = *moments, *weights, (rows, features), ends, *bridges
    found = [weight.new_empty(shape) for shape in shapes]
    found.insert(2, unit.new_empty(unit.shape, dtype=torch.long))
    return tuple(found)


@_layer_moments_backward.register_fake
def _(d_mean: Tensor, d_variance: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in inputs[:6])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, between, beyond = inputs
    ctx.shares = between, beyond
    ctx.save_for_backward(*tensors, *output[2:])
    ctx.set_materialize_grads(False)  # nobody differentiates what is kept


def _gradient(
    ctx: Any, d_mean: Tensor | None, d_variance: Tensor | None, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    inputs, kept = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
    shape = kept[0].shape[0], inputs[2].shape[-1]
    given = (inputs[2].new_zeros(shape) if d is None else d for d in (d_mean, d_variance))
    gradients = _layer_moments_backward(*given, *inputs, *ctx.shares, *kept)
    return *gradients, None, None, None


_layer_moments.register_autograd(_gradient, setup_context=_save)


def layer_moments(
    unit: Float[Tensor, "rows features"],
    rate: Float[Tensor, " features"],
    own: OwnParameters,
    nodes: Float[Tensor, "lines nodes"] | None,
    shares: tuple[float, float],
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f at unit coordinates, from a layer's parameters.

    ``shares`` says how much of the residual to add between nodes and beyond the grid.
    """
    mean, variance, *_ = _layer_moments(unit, rate, *own, nodes, *shares)
    return mean, variance
