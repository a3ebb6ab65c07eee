"""Bridge trees of the compiled backend, for kernels of any state size."""

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.ops.arrays import as_arrays
from sikagp.ops.compilation import run_compiled
from sikagp.ops.loops.trees import tree_backward, tree_forward
from sikagp.ops.points import node_positions
from sikagp.tree import BridgeTree

_OPERATIONS = 2000  # of one bridge, times the state size


def bridge_tree(
    rate: Float[Tensor, " features"],
    scale: Float[Tensor, " features"],
    nodes: Float[Tensor, "lines nodes"] | None,
    level: int,
    s: int,
) -> BridgeTree:
    """Tree of the kernel of state size s, for a process of deviation ``scale``."""
    features, rows = len(rate), level if nodes is None else 2**level - 1
    boundary = rate.new_empty(features, 2 * s, 2 * s)
    tree = BridgeTree(boundary, *(rate.new_empty(features, rows, s, s) for _ in range(3)))
    inputs = as_arrays(rate, scale)
    arrays = node_positions(nodes, level), *inputs, *(part.numpy() for part in tree)
    run_compiled(tree_forward, features, _OPERATIONS * s * features * rows, (0,) * s, *arrays)
    return tree


def bridge_tree_backward(
    d_tree: BridgeTree,
    rate: Float[Tensor, " features"],
    scale: Float[Tensor, " features"],
    nodes: Float[Tensor, "lines nodes"] | None,
) -> tuple[Float[Tensor, " features"], Float[Tensor, " features"]]:
    """Gradients of rate and scale."""
    features, rows, s = d_tree.left.shape[:3]
    level = rows if nodes is None else rows.bit_length()
    d_rate, d_scale = torch.empty_like(rate), torch.empty_like(scale)
    inputs = as_arrays(rate, scale, *d_tree)
    arrays = node_positions(nodes, level), *inputs, d_rate.numpy(), d_scale.numpy()
    run_compiled(tree_backward, features, _OPERATIONS * s * features * rows, (0,) * s, *arrays)
    return d_rate, d_scale
