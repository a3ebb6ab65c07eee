"""The orthonormal basis in closed form, and the few basis functions that an input activates.

The basis function of an inner node b, halfway down the bridge from a to c, is the paper's template
(Appendix B): zero outside (a, c), and inside it

    phi_abc(x) = right(x; a, b) S    on [a, b],        phi_abc(x) = left(x; b, c) S    on [b, c],

with the interpolation weights and the innovation factor S of the kernel. For the Laplace kernel on
the uniform grid this is psi_lm of Theorem 1, ``sinh(theta (x - a)) sqrt(2 / sinh(2 theta h))``.
The first 2 s functions, psi_01 and psi_02, carry the end states and are active everywhere.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.kernels import MarkovKernel
from sikagp.kernels.base import Points
from sikagp.tree import GridPrior


class SparseFeatures(NamedTuple):
    """Values of the active basis functions, and which weights of the feature they belong to."""

    values: Float[Tensor, "*batch features active"]
    index: Int[Tensor, "*batch features active"]  # type: ignore[assignment]


def template(
    kernel: MarkovKernel,
    a: Points,
    b: Points,
    c: Points,
    x: Points,
    rate: Points,
    factor: Float[Tensor, "*#shape s s"],
) -> Float[Tensor, "*shape s"]:
    """Evaluate phi_abc at x in [a, c]; ``factor`` is the innovation factor of b."""
    on_left = x < b
    weights = kernel.interpolate(torch.where(on_left, a, b), x, torch.where(on_left, b, c), rate)
    to_middle = torch.where(on_left.unsqueeze(-1), weights.right, weights.left)
    return (to_middle.unsqueeze(-2) @ factor).squeeze(-2)


def sparse_features(x: Float[Tensor, "*batch features"], prior: GridPrior) -> SparseFeatures:
    """Evaluate the ``s (L + 2)`` active basis functions, all levels and features at once.

    Beyond the grid only the first 2 s are non-zero: they carry the end state to x.
    """
    kernel, grid, rate, tree = prior
    s = kernel.state_size
    whole = kernel.two_point(torch.zeros_like(x), x, torch.ones_like(x), rate)
    ends = (torch.cat([whole.left, whole.right], dim=-1).unsqueeze(-2) @ tree.boundary).squeeze(-2)
    inner = x.clamp(0, 1)
    left, middle, right, weight = grid.brackets(inner)
    factor = tree.factor_of(weight)
    bumps = template(kernel, left, middle, right, inner[..., None], rate[..., None], factor)
    index = weight.unsqueeze(-1) * s + torch.arange(s, device=x.device)
    first = torch.arange(2 * s, device=x.device).expand(*x.shape, -1)
    return SparseFeatures(
        torch.cat([ends, bumps.flatten(-2)], dim=-1), torch.cat([first, index.flatten(-2)], dim=-1)
    )


def dense_features(
    features: SparseFeatures, num_weights: int
) -> Float[Tensor, "*batch features weights"]:
    """Scatter the active values into vectors over all weights of a feature."""
    values, index = features
    dense = values.new_zeros(*values.shape[:-1], num_weights)
    return dense.scatter(-1, index, values)


def active_sum(
    features: SparseFeatures, weight: Float[Tensor, "*samples features weights outputs"]
) -> Float[Tensor, "*samples rows outputs"]:
    """Multiply active basis functions with their weights and sum over features.

    Features have shape (rows, features, active), or (*samples, rows, features, active) for
    different ones in every sample; no tensor of gathered weights is made.
    """
    *samples, num_features, num_weights, outputs = weight.shape
    tables = weight.reshape(-1, outputs)
    offset = torch.arange(len(tables) // num_weights, device=weight.device) * num_weights
    offset = offset.view(*samples, 1, num_features, 1)
    index = (features.index + offset).flatten(-2)
    values = features.values.flatten(-2).expand(index.shape)
    total = F.embedding_bag(
        index.flatten(0, -2), tables, per_sample_weights=values.flatten(0, -2), mode="sum"
    )
    return total.view(*index.shape[:-1], outputs)
