"""Evaluation plans: three ways to the same mean and variance of the additive part.

- table: look up the two ends of each input's cell in a node table, O(1) per input;
- sparse: multiply the s (L + 2) active basis functions with their weights, O(log M);
- dense: multiply all basis functions with all weights, O(M); oracle and baseline.

``mean`` and ``deviation`` describe q(w); ``scale`` is the prior deviation sqrt(v_d) of each
feature.
"""

from typing import NamedTuple

from torch import Tensor

from sikagp import ops
from sikagp._typing import Float, Int
from sikagp.basis import SparseFeatures, active_sum, dense_features, sparse_features
from sikagp.kernels import TwoPoint
from sikagp.tree import GridPrior

Moments = tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]


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


def table_moments(
    cell: Int[Tensor, "rows features"],
    weights: TwoPoint,
    scale: Float[Tensor, " features"],
    table: NodeTable,
) -> Moments:
    """Interpolate between the two ends of each cell."""
    left, right = weights.left * scale.unsqueeze(-1), weights.right * scale.unsqueeze(-1)
    return ops.interpolate(cell, left, right, table.states, table.covariances)


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


def open_variance(
    weights: TwoPoint, scale: Float[Tensor, " features"], residual: str
) -> Float[Tensor, "rows 1"]:
    """Prior variance that the grid leaves open, summed over features."""
    share = weights.outside + weights.inside if residual == "full" else weights.outside
    return share @ scale.square().unsqueeze(-1)
