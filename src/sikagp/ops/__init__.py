"""Differentiable operators of the table plan.

``node_states`` and ``cell_covariances`` turn weights into tables, ``interpolate`` evaluates them;
``moments`` does both at once without keeping the tables, for training; ``layer_moments`` finds
cells, two-point weights and bridge trees too, for the kernels whose formulas are compiled.
``values`` evaluates drawn functions.
``torch.export`` sees the plain torch operations of the reference backend; everywhere else the
registered operators run on the backend chosen for the device.
"""

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.ops import operators, reference
from sikagp.ops.divergence import divergence
from sikagp.ops.layer import layer_moments
from sikagp.ops.parts import OwnParameters, Points
from sikagp.ops.values import values
from sikagp.tree import BridgeTree

__all__ = [
    "OwnParameters",
    "Points",
    "cell_covariances",
    "divergence",
    "interpolate",
    "layer_moments",
    "moments",
    "node_states",
    "values",
]


def node_states(
    weight: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes s outputs"]:
    """Turn weights in dyadic order into states at nodes from left to right."""
    if torch.compiler.is_exporting():
        return reference.node_states(weight, tree)
    return operators.node_states(weight, *tree)


def cell_covariances(
    scale: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes 2 s s outputs"]:
    """Covariance of each node's state with itself and with the next node's."""
    if torch.compiler.is_exporting():
        return reference.cell_covariances(scale, tree)
    return operators.cell_covariances(scale, *tree)


def interpolate(
    cell: Int[Tensor, "rows features"],
    left: Float[Tensor, "rows features s"],
    right: Float[Tensor, "rows features s"],
    states: Float[Tensor, "features nodes s outputs"],
    covariances: Float[Tensor, "features nodes 2 s s outputs"],
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f, summed over features, from the two ends of each input's cell."""
    if torch.compiler.is_exporting():
        return reference.interpolate(cell, left, right, states, covariances)
    return operators.interpolate(cell, left, right, states, covariances)


def moments(
    points: Points, own: OwnParameters, tree: BridgeTree
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f from a layer's parameters, through tables that are not kept."""
    if torch.compiler.is_exporting():
        return reference.moments(points, own, tree)
    return operators.moments(*points, *own, *tree)
