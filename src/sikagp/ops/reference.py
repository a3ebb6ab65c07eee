"""The reference backend: plain torch operations, on any device, in any floating type.

Forward passes stand in ``sikagp.table``; here are their adjoints, derived by hand so that the
recursions may work in place. A name ``d_x`` is the gradient with respect to x.
"""

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.grid import level_slice
from sikagp.table import cell_covariances, interpolate, node_states
from sikagp.tree import BridgeTree, level_rows

__all__ = [
    "cell_covariances",
    "cell_covariances_backward",
    "interpolate",
    "interpolate_backward",
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
        half = 2 ** (level - lev)
        rows, own = level_rows(tree.left.shape[1], level, lev), level_slice(lev)
        a, c = slice(0, -2 * half, 2 * half), slice(2 * half, None, 2 * half)
        middle = d_states[:, half :: 2 * half]
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
    coarse: Float[Tensor, "features inner s s outputs"],
    variance: Float[Tensor, "features nodes s outputs"],
    tree: BridgeTree,
) -> tuple[Float[Tensor, "features nodes s outputs"], BridgeTree]:
    """Run the recursion of ``cell_covariances`` upwards: gradients of variances and of the tree."""
    nodes, s = variance.shape[1:3]
    level = (nodes - 2).bit_length()
    d_table = d_table.clone(memory_format=torch.contiguous_format)
    d_variance = torch.empty_like(variance, memory_format=torch.contiguous_format)
    d_tree = BridgeTree(*(torch.zeros_like(part) for part in tree))
    node, (d_node, d_cross) = table[:, :, 0], d_table.unbind(2)
    cross = table[:, :-1, 1]  # neighbour covariances of the level being undone, finest first
    for lev in range(level, 0, -1):
        half = 2 ** (level - lev)
        rows, own = level_rows(tree.left.shape[1], level, lev), level_slice(lev)
        a, m, c = (
            slice(0, -2 * half, 2 * half),
            slice(half, None, 2 * half),
            slice(2 * half, None, 2 * half),
        )
        g_left, g_right, factor = tree.left[:, rows], tree.right[:, rows], tree.factor[:, rows]
        parent = coarse[:, 2 ** (lev - 1) - 1 : 2**lev - 1]
        d_m = d_node[:, m]
        d_variance[:, own] = torch.einsum("dniko,dnij,dnkj->dnjo", d_m, factor, factor)
        d_left = d_cross[:, a] + torch.einsum("dniko,dnkj->dnjio", d_m, g_left)
        d_right = d_cross[:, m] + torch.einsum("dniko,dnkj->dnijo", d_m, g_right)
        d_node[:, a] += torch.einsum("dniko,dnkj->dnijo", d_left, g_left)
        d_node[:, c] += torch.einsum("dnij,dniko->dnjko", g_right, d_right)
        d_cross[:, a] = torch.einsum("dniko,dnkj->dnijo", d_left, g_right)
        d_cross[:, a] += torch.einsum("dnij,dniko->dnjko", g_left, d_right)
        d_gain_left = (
            torch.einsum("dniko,dnjio->dnkj", d_m, cross[:, ::2])
            + torch.einsum("dniko,dnijo->dnkj", d_left, node[:, a])
            + torch.einsum("dniko,dnjko->dnij", d_right, parent)
        )
        d_gain_right = (
            torch.einsum("dniko,dnijo->dnkj", d_m, cross[:, 1::2])
            + torch.einsum("dniko,dnijo->dnkj", d_left, parent)
            + torch.einsum("dniko,dnjko->dnij", d_right, node[:, c])
        )
        both = d_m + d_m.transpose(2, 3)
        d_factor = torch.einsum("dniko,dnjo,dnkj->dnij", both, variance[:, own], factor)
        _add_rows(d_tree.left[:, rows], d_gain_left)
        _add_rows(d_tree.right[:, rows], d_gain_right)
        _add_rows(d_tree.factor[:, rows], d_factor)
        cross = parent
    top = torch.cat([d_node[:, 0], d_cross[:, 0]], dim=2)
    bottom = torch.cat([torch.zeros_like(d_cross[:, 0]), d_node[:, -1]], dim=2)
    joint, ends = torch.cat([top, bottom], dim=1), variance[:, :2].flatten(1, 2)
    d_ends = torch.einsum("dijo,dik,djk->dko", joint, tree.boundary, tree.boundary)
    d_variance[:, :2] = d_ends.unflatten(1, (2, s))
    joint = joint + joint.transpose(1, 2)
    d_tree.boundary.copy_(torch.einsum("dijo,dko,djk->dik", joint, ends, tree.boundary))
    return d_variance, d_tree


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
