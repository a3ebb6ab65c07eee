"""Node tables: the whole layer as states at nodes, evaluated in constant time per input.

Weights become node states once per parameter update, level by level down the bridge tree (O(M), no
matrix of nodes anywhere). An input then needs only the two ends of its cell:

    f(x)     = left z_c + right z_(c+1)
    Var f(x) = left A_c left^T + 2 left C_c right^T + right A_(c+1) right^T

where A_c is the covariance of the state at node c under q, and C_c its covariance with the next
node. Functions here are plain forward passes, in place over strides; ``sikagp.ops`` makes them
differentiable.
"""

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.grid import level_slice
from sikagp.kernels import TwoPoint
from sikagp.tree import BridgeTree, GridPrior, level_rows


def two_point(
    x: Float[Tensor, "*batch features"], prior: GridPrior, *, slope: bool = False
) -> tuple[Int[Tensor, "*batch features"], TwoPoint]:
    """Return the finest cell of x (unit coordinates, any real number) and its two-point weights.

    They give f(x), or with ``slope`` its derivative.
    """
    cell = prior.grid.locate(x.clamp(0, 1))
    node = torch.stack([cell, cell + 1], dim=-1)
    left, right = prior.grid.position(node, x.dtype).unbind(-1)
    return cell, prior.kernel.two_point(left, x, right, prior.rate, slope=slope)


def node_states(
    weight: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes s outputs"]:
    """Turn weights in dyadic order into states at nodes from left to right."""
    level = (weight.shape[1] - 2).bit_length()
    s = weight.shape[2]
    states = torch.empty_like(weight, memory_format=torch.contiguous_format)
    ends = tree.boundary @ weight[:, :2].flatten(1, 2)
    states[:, 0], states[:, -1] = ends[:, :s], ends[:, s:]
    for lev in range(1, level + 1):
        half = 2 ** (level - lev)
        rows = level_rows(tree.left.shape[1], level, lev)
        a, m, c = neighbours(half)
        states[:, m] = (
            _apply(tree.left[:, rows], states[:, a])
            + _apply(tree.right[:, rows], states[:, c])
            + _apply(tree.factor[:, rows], weight[:, level_slice(lev)])
        )
    return states


def _apply(
    matrix: Float[Tensor, "features #cells s s"], state: Float[Tensor, "features #cells s outputs"]
) -> Float[Tensor, "features cells s outputs"]:
    return torch.einsum("dnij,dnjo->dnio", matrix, state)


def cell_covariances(
    scale: Float[Tensor, "features nodes s outputs"], tree: BridgeTree
) -> Float[Tensor, "features nodes 2 s s outputs"]:
    """Turn standard deviations of independent weights into covariances of neighbouring states.

    Entry ``[:, c, 0]`` is A_c and ``[:, c, 1]`` is C_c (zero for the last node). With end
    covariances A_a, A_c and neighbour covariance C of a cell, its midpoint m splits it:

        C_left  = A_a G_left^T + C G_right^T           = Cov(z_a, z_m)
        C_right = G_left C + G_right A_c               = Cov(z_m, z_c)
        A_m     = C_left^T G_left^T + C_right G_right^T + S diag(scale^2) S^T
    """
    features, nodes, s, outputs = scale.shape
    level = (nodes - 2).bit_length()
    variance = scale.square()
    table = scale.new_zeros(features, nodes, 2, s, s, outputs)
    node, cross = table[:, :, 0], table[:, :, 1]
    ends = variance[:, :2].flatten(1, 2)
    joint = torch.einsum("dik,dko,djk->dijo", tree.boundary, ends, tree.boundary)
    node[:, 0], node[:, -1], cross[:, 0] = joint[:, :s, :s], joint[:, s:, s:], joint[:, :s, s:]
    for lev in range(1, level + 1):
        half = 2 ** (level - lev)
        rows = level_rows(tree.left.shape[1], level, lev)
        g_left, g_right, factor = tree.left[:, rows], tree.right[:, rows], tree.factor[:, rows]
        a, m, c = neighbours(half)
        c_left, c_right = split_cells(node[:, a], cross[:, a], node[:, c], g_left, g_right)
        middle = torch.einsum(
            "dnij,dnjo,dnkj->dniko", factor, variance[:, level_slice(lev)], factor
        )
        middle += torch.einsum("dnjio,dnkj->dniko", c_left, g_left)
        middle += torch.einsum("dnijo,dnkj->dniko", c_right, g_right)
        node[:, m], cross[:, a], cross[:, m] = middle, c_left, c_right
    return table


def neighbours(half: int) -> tuple[slice, slice, slice]:
    """Left ends, midpoints and right ends of the cells of width ``2 * half``, as node slices."""
    return (
        slice(0, -2 * half, 2 * half),
        slice(half, None, 2 * half),
        slice(2 * half, None, 2 * half),
    )


def split_cells(
    a: Float[Tensor, "features cells s s outputs"],
    cross: Float[Tensor, "features cells s s outputs"],
    c: Float[Tensor, "features cells s s outputs"],
    g_left: Float[Tensor, "features bridges s s"],
    g_right: Float[Tensor, "features bridges s s"],
) -> tuple[
    Float[Tensor, "features cells s s outputs"], Float[Tensor, "features cells s s outputs"]
]:
    """Neighbour covariances of the two halves of each cell."""
    c_left = torch.einsum("dnijo,dnkj->dniko", a, g_left)
    c_left += torch.einsum("dnijo,dnkj->dniko", cross, g_right)
    c_right = torch.einsum("dnij,dnjko->dniko", g_left, cross)
    c_right += torch.einsum("dnij,dnjko->dniko", g_right, c)
    return c_left, c_right


def interpolate(
    cell: Int[Tensor, "rows features"],
    left: Float[Tensor, "rows features s"],
    right: Float[Tensor, "rows features s"],
    states: Float[Tensor, "features nodes s outputs"],
    covariances: Float[Tensor, "features nodes 2 s s outputs"],
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
    """Mean and variance of f, summed over features, from the two ends of each input's cell."""
    return _at_two_ends("bo", cell, left, right, states, covariances)


def interpolate_each(
    cell: Int[Tensor, "rows features"],
    left: Float[Tensor, "rows features s"],
    right: Float[Tensor, "rows features s"],
    states: Float[Tensor, "features nodes s outputs"],
    covariances: Float[Tensor, "features nodes 2 s s outputs"],
) -> tuple[Float[Tensor, "rows features outputs"], Float[Tensor, "rows features outputs"]]:
    """The same for every feature by itself."""
    return _at_two_ends("bdo", cell, left, right, states, covariances)


def _at_two_ends(
    kept: str,
    cell: Int[Tensor, "rows features"],
    left: Float[Tensor, "rows features s"],
    right: Float[Tensor, "rows features s"],
    states: Float[Tensor, "features nodes s outputs"],
    covariances: Float[Tensor, "features nodes 2 s s outputs"],
) -> tuple[Float[Tensor, "rows *kept"], Float[Tensor, "rows *kept"]]:
    """Mean and variance as in the module's docstring; ``kept`` are the dimensions not summed."""
    feature = torch.arange(cell.shape[1], device=cell.device)
    z_left, z_right = states[feature, cell], states[feature, cell + 1]
    near, far = covariances[feature, cell], covariances[feature, cell + 1, 0]
    linear, quadratic = f"bdi,bdio->{kept}", f"bdi,bdijo,bdj->{kept}"
    mean = torch.einsum(linear, left, z_left) + torch.einsum(linear, right, z_right)
    variance = torch.einsum(quadratic, left, near[:, :, 0], left)
    variance = variance + 2 * torch.einsum(quadratic, left, near[:, :, 1], right)
    return mean, variance + torch.einsum(quadratic, right, far, right)
