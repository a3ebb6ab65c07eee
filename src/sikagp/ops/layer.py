"""Moments of a whole layer at once: bridge tree, two-point weights and sums over features.

Apart, these are three operators with some twenty small ones between them, which in a small layer
take longer than the loops. For Laplace and Matérn kernels, on the compiled backend. What traces
operators (``torch.compile``, ``torch.export``, dispatch modes) is given those three instead.
"""

from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.ops.backends import backend_for
from sikagp.ops.functions import with_signature
from sikagp.ops.parts import OwnParameters, Points
from sikagp.tree import BridgeTree


class _LayerMoments(torch.autograd.Function):
    """Its outputs are mean and variance, then points and tree, kept for the backward pass."""

    @staticmethod
    @with_signature
    def forward(unit: Tensor, rate: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        *own, nodes, shares = inputs
        backend, (level, s) = backend_for(unit), _sizes(own[0])
        tree = backend.bridge_tree(rate, own[-1].sqrt(), nodes, level, s)
        points = backend.point_weights(unit, rate, nodes, level, s, shares)
        return *backend.moments(points, OwnParameters(*own), tree), *points, *tree

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.shares = inputs
        ctx.save_for_backward(*tensors, *output[2:])
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        unit, rate, *own, nodes = ctx.saved_tensors[:7]
        backend, kept = backend_for(unit), ctx.saved_tensors[7:]
        parts = Points(*kept[:4]), OwnParameters(*own), BridgeTree(*kept[4:])
        shape = len(unit), own[0].shape[-1]
        given = (own[0].new_zeros(shape) if d is None else d for d in gradients[:2])
        d_points, d_own, d_tree = backend.moments_backward(*given, *parts)
        scale = own[-1].sqrt()
        d_rate, d_scale = backend.bridge_tree_backward(d_tree, rate, scale, nodes)
        d_own.prior_variance.addcdiv_(d_scale, scale, value=0.5)
        d_unit = None  # with a fixed kernel on features that stay as they are
        if any(ctx.needs_input_grad[:2]):
            place = unit, rate, nodes, _sizes(own[0])[0], ctx.shares
            d_unit, d_point_rate = backend.point_weights_backward(*d_points[1:], *place)
            d_rate = d_rate.add_(d_point_rate)
        return d_unit, d_rate, *d_own, None, None


def _sizes(weight: Tensor) -> tuple[int, int]:
    """Level and state size."""
    return (weight.shape[1] - 2).bit_length(), weight.shape[2]


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
    mean, variance, *_ = _LayerMoments.apply(unit, rate, *own, nodes, shares)
    return mean, variance
