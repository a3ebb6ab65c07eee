"""What a training step is computed from, in two bundles: where the rows lie, and the parameters."""

from typing import NamedTuple

from torch import Tensor

from sikagp._typing import Float, Int


class Points(NamedTuple):
    """Cells of the rows, weights of the two ends, and the variance that they leave open."""

    cell: Int[Tensor, "rows features"]
    near: Float[Tensor, "rows features s"]
    far: Float[Tensor, "rows features s"]
    residual: Float[Tensor, "rows features"]


class OwnParameters(NamedTuple):
    """Means and raw scales (before softplus) of weights, moments of the bias, prior variances."""

    weight: Float[Tensor, "features nodes s outputs"]
    raw_scale: Float[Tensor, "features nodes s outputs"]
    bias: Float[Tensor, "2 outputs"]
    prior_variance: Float[Tensor, " features"]
