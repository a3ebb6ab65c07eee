"""Evaluation plans: three ways to the same mean and variance of the additive part.

- table: look up the two ends of each input's cell in a node table, O(1) per input;
- sparse: multiply the s (L + 2) active basis functions with their weights, O(log M);
- dense: multiply all basis functions with all weights, O(M); oracle and baseline.

``mean`` and ``deviation`` describe q(w); ``scale`` is the prior deviation sqrt(v_d) of each
feature.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sikagp import ops
from sikagp._typing import Float
from sikagp.basis import SparseFeatures, active_sum, dense_features, sparse_features
from sikagp.grid import DyadicGrid
from sikagp.kernels import MarkovKernel, TwoPoint
from sikagp.ops.backends import compiled_for, is_traced
from sikagp.table import interpolate_each, two_point
from sikagp.tree import BridgeTree, GridPrior, grid_prior

# How much of the residual between nodes and beyond the grid each mode adds.
OPEN_SHARES = {"full": (1.0, 1.0), "outside": (0.0, 1.0), "none": (0.0, 0.0)}

Moments = tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]
Predict = Callable[[Float[Tensor, "rows features"]], tuple[Tensor, Tensor, bool]]


class NodeTable(NamedTuple):
    """Node states and cell covariances under q, with the prior they belong to."""

    prior: GridPrior
    states: Float[Tensor, "features nodes s outputs"]
    covariances: Float[Tensor, "features nodes 2 s s outputs"]


def build_table(
    prior: GridPrior,
    mean: Float[Tensor, "features weights outputs"],
    deviation: Float[Tensor, "features weights outputs"],
) -> NodeTable:
    """Turn means and deviations of weights into a table, once per parameter update."""
    shape = prior.grid.num_nodes, prior.kernel.state_size
    states = ops.node_states(mean.unflatten(1, shape), prior.tree)
    covariances = ops.cell_covariances(deviation.unflatten(1, shape), prior.tree)
    return NodeTable(prior, states, covariances)


def build_predictor(
    table: NodeTable,
    domain: Float[Tensor, "2 features"],
    variance: Float[Tensor, " features"],
    bias: Float[Tensor, "2 outputs"],
    residual: str,
) -> Predict:
    """Pack a table for compiled prediction from raw rows; see ``ops.predictor.Predictor``."""
    from sikagp.ops.predictor import Predictor

    scale = variance.sqrt().view(-1, 1, 1, 1)
    states, covariances = table.states * scale, table.covariances * scale.square()[..., None, None]
    features = torch.stack([*domain, table.prior.rate, variance], dim=-1)
    shares = torch.tensor(OPEN_SHARES[residual], dtype=variance.dtype)
    return Predictor(features, shares, states, covariances, table.prior.grid.nodes, bias)


def has_predictor(kernel: MarkovKernel, tensor: Tensor) -> bool:
    """Whether compiled prediction exists for a kernel, and for a tensor's type and device."""
    return kernel.predictable and compiled_for(tensor) is not None


def grow_prior(
    kernel: MarkovKernel, grid: DyadicGrid, rate: Float[Tensor, " features"]
) -> GridPrior:
    """Grid prior of a kernel, its tree compiled where the kernel's formulas are."""
    if not is_fused(kernel, rate):
        return grid_prior(kernel, grid, rate)
    shape = grid.nodes, grid.level, kernel.state_size
    tree = ops.operators.bridge_tree(rate, torch.ones_like(rate), *shape)
    return GridPrior(kernel, grid, rate, BridgeTree(*tree))


def scaled_prior(
    kernel: MarkovKernel,
    grid: DyadicGrid,
    rate: Float[Tensor, " features"],
    scale: Float[Tensor, " features"],
) -> GridPrior:
    """Grid prior with a tree of processes of deviation ``scale``.

    Scaling the tree is less work than scaling the two-point weights of every row.
    """
    prior = grow_prior(kernel, grid, rate)
    return prior._replace(tree=prior.tree.scaled(scale))


def locate(unit: Float[Tensor, "rows features"], prior: GridPrior, residual: str) -> ops.Points:
    """Cells, two-point weights and residuals, compiled where the kernel's formulas are."""
    kernel, grid, rate, _ = prior
    if is_fused(kernel, unit):
        shape, shares = (grid.nodes, grid.level, kernel.state_size), OPEN_SHARES[residual]
        *weights, cell = ops.operators.point_weights(unit, rate, *shape, *shares)
        return ops.Points(cell, *weights)
    cell, weights = two_point(unit, prior)
    return ops.Points(cell, weights.left, weights.right, open_residual(weights, residual))


def is_fused(kernel: MarkovKernel, tensor: Tensor) -> bool:
    """Whether to call compiled formulas, rather than operations that can be traced and fused."""
    return not is_traced() and has_predictor(kernel, tensor)


def table_moments(
    points: ops.Points, scale: Float[Tensor, " features"], table: NodeTable
) -> Moments:
    """Interpolate between the two ends of each cell."""
    near, far = points.near * scale.unsqueeze(-1), points.far * scale.unsqueeze(-1)
    return ops.interpolate(points.cell, near, far, table.states, table.covariances)


def trained_moments(
    unit: Float[Tensor, "rows features"],
    kernel: MarkovKernel,
    grid: DyadicGrid,
    rate: Float[Tensor, " features"],
    own: ops.OwnParameters,
    residual: str,
) -> Moments:
    """Interpolate in tables made for this one use; residual and bias are included."""
    if is_fused(kernel, unit):
        return ops.layer_moments(unit, rate, own, grid.nodes, OPEN_SHARES[residual])
    prior = scaled_prior(kernel, grid, rate, own.prior_variance.sqrt())
    return ops.moments(locate(unit, prior, residual), own, prior.tree)


def slope_moments(
    unit: Float[Tensor, "rows features"],
    table: NodeTable,
    scale: Float[Tensor, " features"],
    residual: str,
) -> tuple[Float[Tensor, "rows features outputs"], Float[Tensor, "rows features outputs"]]:
    """Mean and variance of the derivative of every component, in unit coordinates over scale."""
    cell, weights = two_point(unit, table.prior, slope=True)
    left, right = (side * scale.unsqueeze(-1) for side in (weights.left, weights.right))
    mean, variance = interpolate_each(cell, left, right, table.states, table.covariances)
    between, beyond = OPEN_SHARES[residual]
    open_part = (between * weights.inside + beyond * weights.outside) * scale.square()
    return mean, variance + open_part.unsqueeze(-1)


def sparse_moments(
    features: SparseFeatures,
    mean: Float[Tensor, "features weights outputs"],
    deviation: Float[Tensor, "features weights outputs"],
) -> Moments:
    """Gather the weights of the active basis functions."""
    squared = SparseFeatures(features.values.square(), features.index)
    return active_sum(features, mean), active_sum(squared, deviation.square())


def dense_moments(
    features: SparseFeatures,
    mean: Float[Tensor, "features weights outputs"],
    deviation: Float[Tensor, "features weights outputs"],
) -> Moments:
    """Multiply full feature vectors with full weight matrices."""
    phi = dense_features(features, mean.shape[1]).flatten(-2)
    return phi @ mean.flatten(0, 1), phi.square() @ deviation.square().flatten(0, 1)


def scaled_features(
    unit: Float[Tensor, "rows features"], prior: GridPrior, scale: Float[Tensor, " features"]
) -> SparseFeatures:
    """Active basis functions times the prior standard deviation of their feature."""
    values, index = sparse_features(unit, prior)
    return SparseFeatures(values * scale.unsqueeze(-1), index)


def open_residual(weights: TwoPoint, residual: str) -> Float[Tensor, "rows features"]:
    """Share of the prior variance that the grid leaves open."""
    match OPEN_SHARES[residual]:
        case 0.0, 0.0:
            return torch.zeros_like(weights.inside)
        case 0.0, _:
            return weights.outside
    return weights.inside + weights.outside
