"""Values of functions that are given by their states at nodes, as one operator."""

from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.ops.arrays import as_arrays, empty_like
from sikagp.ops.backends import compiled_for

_POINTS = "Tensor cell, Tensor left, Tensor right, Tensor states"


@torch.library.custom_op("sikagp::node_values", mutates_args=(), schema=f"({_POINTS}) -> Tensor")
def node_values(cell: Tensor, left: Tensor, right: Tensor, states: Tensor) -> Tensor:
    """Sum over features of ``left z_c + right z_(c+1)``; every sample has points and states.

    Shape:
        Cells (samples, rows, features), weights (samples, rows, features, s), states (samples,
        features, nodes, s, outputs), values (samples, rows, outputs).
    """
    if compiled_for(states) is None:
        return _formula(cell, left, right, states)
    from sikagp.ops.compilation import run_compiled
    from sikagp.ops.loops.values import values_forward

    samples, rows, _ = cell.shape
    values = states.new_empty(samples, rows, states.shape[-1])
    points, operations = as_arrays(cell, left, right), 2 * left.numel() * states.shape[-1]
    state = (0,) * states.shape[3]
    run_compiled(
        values_forward, samples * rows, operations, state, points, *as_arrays(states, values)
    )
    return values


@torch.library.custom_op(
    "sikagp::node_values_backward",
    mutates_args=(),
    schema=f"(Tensor d_values, {_POINTS}) -> (Tensor, Tensor, Tensor)",
)
def node_values_backward(
    d_values: Tensor, cell: Tensor, left: Tensor, right: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the two-point weights, shape (samples, rows, features, s), and the states."""
    d_left, d_right, d_states = empty_like(left, right, states)
    if compiled_for(states) is None:
        sample, feature = _places(cell)
        d_states.zero_()
        for side, d_side, node in ((left, d_left, cell), (right, d_right, cell + 1)):
            z = states[sample, feature, node]
            d_side.copy_(torch.einsum("abo,abdio->abdi", d_values, z))
            d_z = torch.einsum("abo,abdi->abdio", d_values, side)
            place = (sample.expand_as(node), feature.expand_as(node), node)
            d_states.index_put_(place, d_z, accumulate=True)
        return d_left, d_right, d_states
    from sikagp.ops.compilation import run_compiled
    from sikagp.ops.loops.values import values_backward

    inputs = *as_arrays(d_values), as_arrays(cell, left, right), *as_arrays(states)
    outputs = as_arrays(d_left, d_right), *as_arrays(d_states)
    operations, state = 6 * left.numel() * states.shape[-1], (0,) * states.shape[3]
    count = states.shape[0] * states.shape[1]
    run_compiled(values_backward, count, operations, state, *inputs, *outputs)
    return d_left, d_right, d_states


def values(
    cell: Int[Tensor, "samples rows features"],
    left: Float[Tensor, "samples rows features s"],
    right: Float[Tensor, "samples rows features s"],
    states: Float[Tensor, "samples features nodes s outputs"],
) -> Float[Tensor, "samples rows outputs"]:
    """Values of one function per sample, summed over features, from the two ends of each cell."""
    if torch.compiler.is_exporting():
        return _formula(cell, left, right, states)
    return node_values(cell, left, right, states)


def _formula(cell: Tensor, left: Tensor, right: Tensor, states: Tensor) -> Tensor:
    sample, feature = _places(cell)
    near, far = states[sample, feature, cell], states[sample, feature, cell + 1]
    product = "abdi,abdio->abo"
    return torch.einsum(product, left, near) + torch.einsum(product, right, far)


def _places(cell: Tensor) -> tuple[Tensor, Tensor]:
    """Sample and feature of every entry, to index states with."""
    samples, _, features = cell.shape
    sample = torch.arange(samples, device=cell.device).view(-1, 1, 1)
    return sample, torch.arange(features, device=cell.device)


@node_values.register_fake
def _(cell: Tensor, left: Tensor, right: Tensor, states: Tensor) -> Tensor:
    return states.new_empty(*cell.shape[:2], states.shape[-1])


@node_values_backward.register_fake
def _(d_values: Tensor, cell: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return empty_like(*inputs)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, d_values: Tensor) -> tuple[Tensor | None, ...]:
    return None, *node_values_backward(d_values, *ctx.saved_tensors)


node_values.register_autograd(_gradient, setup_context=_save)
