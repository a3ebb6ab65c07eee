"""The reference backend: plain torch operations, on any device, in any floating type.

Forward passes stand in ``sikagp.table``; here are their adjoints, derived by hand so that the
recursions may work in place. A name ``d_x`` is the gradient with respect to x.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.grid import level_slice
from sikagp.ops.parts import OwnParameters, Points
from sikagp.table import (
    cell_covariances,
    interpolate,
    neighbours,
    node_states,
    split_cells,
)
from sikagp.tree import BridgeTree, level_rows

__all__ = [
    "cell_covariances",
    "cell_covariances_backward",
    "interpolate",
    "interpolate_backward",
    "moments",
    "moments_backward",
    "node_states",
    "node_states_backward",
]


def node_states_backward(
    d_states: Float[Tensor, "features nodes s outputs"],
    states: Float[Tensor, "features nodes s outputs"],
    weight: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Run the recursion of ``node_states`` upwards: gradients of weights and of the tree."""
    nodes, s = weight.shape[1:3]
    level = (nodes - 2).bit_length()
    d_states = d_states.clone(memory_format=torch.contiguous_format)
    d_weight = torch.empty_like(d_states)
    d_tree = BridgeTree(*(torch.zeros_like(part) for part in tree))
    for lev in range(level, 0, -1):
        rows, own = level_rows(tree.left.shape[1], level, lev), level_slice(lev)
        a, m, c = neighbours(2 ** (level - lev))
        middle = d_states[:, m]
        d_weight[:, own] = torch.einsum("dnij,dnio->dnjo", tree.factor[:, rows], middle)
        d_states[:, a] += torch.einsum("dnij,dnio->dnjo", tree.left[:, rows], middle)
        d_states[:, c] += torch.einsum("dnij,dnio->dnjo", tree.right[:, rows], middle)
        for part, source in (
            (d_tree.left, states[:, a]),
            (d_tree.right, states[:, c]),
            (d_tree.factor, weight[:, own]),
        ):
            _add_rows(part[:, rows], torch.einsum("dnio,dnjo->dnij", middle, source))
    ends = torch.cat([d_states[:, 0], d_states[:, -1]], dim=1)
    d_weight[:, :2] = (tree.boundary.mT @ ends).unflatten(1, (2, s))
    d_tree.boundary.copy_(ends @ weight[:, :2].flatten(1, 2).mT)
    return d_weight, d_tree


def _add_rows(part: Tensor, gradient: Tensor) -> None:
    """Add the gradients of a level's bridges, summed where the level shares one bridge."""
    part += gradient.sum(1, keepdim=True) if part.shape[1] == 1 else gradient


def cell_covariances_backward(
    d_table: Float[Tensor, "features nodes 2 s s outputs"],
    table: Float[Tensor, "features nodes 2 s s outputs"],
    scale: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Run the recursion of ``cell_covariances`` upwards: gradients of scales and of the tree."""
    level = (scale.shape[1] - 2).bit_length()
    d_table = d_table.clone(memory_format=torch.contiguous_format)
    d_scale = torch.empty_like(scale, memory_format=torch.contiguous_format)
    d_tree = BridgeTree(*(torch.zeros_like(part) for part in tree))
    node, (d_node, d_cross) = table[:, :, 0], d_table.unbind(2)
    cross = _neighbour_covariances(node, scale, tree)
    for lev in range(level, 0, -1):
        rows, own = level_rows(tree.left.shape[1], level, lev), level_slice(lev)
        a, m, c = neighbours(2 ** (level - lev))
        g_left, g_right, factor = tree.left[:, rows], tree.right[:, rows], tree.factor[:, rows]
        d_m = d_node[:, m]
        d_left = d_cross[:, a] + torch.einsum("dniko,dnkj->dnjio", d_m, g_left)
        d_right = d_cross[:, m] + torch.einsum("dniko,dnkj->dnijo", d_m, g_right)
        d_node[:, a] += torch.einsum("dniko,dnkj->dnijo", d_left, g_left)
        d_node[:, c] += torch.einsum("dnij,dniko->dnjko", g_right, d_right)
        d_cross[:, a] = torch.einsum("dniko,dnkj->dnijo", d_left, g_right)
        d_cross[:, a] += torch.einsum("dnij,dniko->dnjko", g_left, d_right)
        d_scale[:, own], d_factor = _factor_gradients(d_m, factor, scale[:, own])
        parent, (c_left, c_right) = cross[lev - 1], (cross[lev][:, ::2], cross[lev][:, 1::2])
        for part, middle, before, after in (
            (d_tree.left, c_left.transpose(2, 3), node[:, a], parent),
            (d_tree.right, c_right, parent, node[:, c]),
        ):
            gradient = torch.einsum("dniko,dnijo->dnkj", d_m, middle)
            gradient += torch.einsum("dniko,dnijo->dnkj", d_left, before)
            gradient += torch.einsum("dniko,dnjko->dnij", d_right, after)
            _add_rows(part[:, rows], gradient)
        _add_rows(d_tree.factor[:, rows], d_factor)
    top = torch.cat([d_node[:, 0], d_cross[:, 0]], dim=2)
    bottom = torch.cat([torch.zeros_like(d_cross[:, 0]), d_node[:, -1]], dim=2)
    joint, ends = torch.stack([top, bottom], dim=1).flatten(1, 2), scale[:, :2].flatten(1, 2)
    d_ends, d_boundary = _factor_gradients(joint[:, None], tree.boundary[:, None], ends[:, None])
    d_scale[:, :2] = d_ends.view_as(d_scale[:, :2])
    d_tree.boundary.copy_(d_boundary.squeeze(1))
    return d_scale, d_tree


def _neighbour_covariances(node: Tensor, scale: Tensor, tree: BridgeTree) -> list[Tensor]:
    """Neighbour covariances of the cells of every level 0, 1, ..., L."""
    s, level = scale.shape[2], (scale.shape[1] - 2).bit_length()
    variance = scale[:, :2].flatten(1, 2).square()
    first, last = tree.boundary[:, :s], tree.boundary[:, s:]
    cross = [torch.einsum("dik,dko,djk->dijo", first, variance, last).unsqueeze(1)]
    for lev in range(1, level + 1):
        rows = level_rows(tree.left.shape[1], level, lev)
        a, _, c = neighbours(2 ** (level - lev))
        gains = tree.left[:, rows], tree.right[:, rows]
        halves = split_cells(node[:, a], cross[-1], node[:, c], *gains)
        cross.append(torch.stack(halves, dim=2).flatten(1, 2))
    return cross


def _factor_gradients(d_product: Tensor, factor: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of scale and factor where the product is ``factor diag(scale^2) factor^T``."""
    d_variance = torch.einsum("dniko,dnij,dnkj->dnjo", d_product, factor, factor)
    both = d_product + d_product.transpose(2, 3)
    d_factor = torch.einsum("dniko,dnjo,dnkj->dnij", both, scale.square(), factor)
    return 2 * scale * d_variance, d_factor


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
    feature = torch.arange(cell.shape[1], device=cell.device)
    z_left, z_right = states[feature, cell], states[feature, cell + 1]
    near, far = covariances[feature, cell], covariances[feature, cell + 1, 0]
    matrix = "bo,bdijo,bdj->bdi"
    d_left = torch.einsum("bo,bdio->bdi", d_mean, z_left)
    d_left += 2 * torch.einsum(matrix, d_variance, near[:, :, 0], left)
    d_left += 2 * torch.einsum(matrix, d_variance, near[:, :, 1], right)
    d_right = torch.einsum("bo,bdio->bdi", d_mean, z_right)
    d_right += 2 * torch.einsum(matrix, d_variance, far, right)
    d_right += 2 * torch.einsum("bo,bdijo,bdi->bdj", d_variance, near[:, :, 1], left)
    d_states, d_covariances = torch.zeros_like(states), torch.zeros_like(covariances)
    place = feature.expand_as(cell)
    outer = "bo,bdi,bdj->bdijo"
    for node, weight in ((cell, left), (cell + 1, right)):
        d_state = torch.einsum("bo,bdi->bdio", d_mean, weight)
        d_states.index_put_((place, node), d_state, accumulate=True)
        d_node = torch.einsum(outer, d_variance, weight, weight)
        d_covariances[:, :, 0].index_put_((place, node), d_node, accumulate=True)
    d_cross = 2 * torch.einsum(outer, d_variance, left, right)
    d_covariances[:, :, 1].index_put_((place, cell), d_cross, accumulate=True)
    return d_left, d_right, d_states, d_covariances


def moments(
    points: Points, own: OwnParameters, tree: BridgeTree
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f from weights, through tables that are not kept."""
    covariances = cell_covariances(F.softplus(own.raw_scale), tree)
    tables = node_states(own.weight, tree), covariances
    mean, variance = interpolate(*points[:3], *tables)
    opened = points.residual @ own.prior_variance.unsqueeze(-1)
    return mean + own.bias[0], variance + opened + own.bias[1]


def moments_backward(
    d_mean: Float[Tensor, "rows outputs"],
    d_variance: Float[Tensor, "rows outputs"],
    points: Points,
    own: OwnParameters,
    tree: BridgeTree,
) -> tuple[Points, OwnParameters, BridgeTree]:
    """Gradients of the points (their cells aside), of the parameters and of the tree."""
    scale = F.softplus(own.raw_scale)
    states, table = node_states(own.weight, tree), cell_covariances(scale, tree)
    inputs = *points[:3], states, table
    d_near, d_far, d_states, d_table = interpolate_backward(d_mean, d_variance, *inputs)
    d_weight, first = node_states_backward(d_states, states, own.weight, tree)
    d_scale, second = cell_covariances_backward(d_table, table, scale, tree)
    d_opened = d_variance.sum(1)
    d_points = Points(points.cell, d_near, d_far, torch.outer(d_opened, own.prior_variance))
    d_bias = torch.stack([d_mean.sum(0), d_variance.sum(0)])
    d_raw = d_scale * torch.sigmoid(own.raw_scale)
    d_own = OwnParameters(d_weight, d_raw, d_bias, d_opened @ points.residual)
    return d_points, d_own, BridgeTree(*(a + b for a, b in zip(first, second, strict=True)))
