"""Calibrated uncertainty at the price of a linear layer: SIKA-GP on PyTorch."""

from sikagp.basis import SparseFeatures
from sikagp.domains import Domain, RunningDomain
from sikagp.draws import Paths
from sikagp.kernels import (
    BrownianBridge,
    BrownianMotion,
    GaussMarkov,
    Laplace,
    MarkovKernel,
    Matern32,
    Matern52,
)
from sikagp.layers import SIKALayer
from sikagp.variational import GaussianMarginals

__version__ = "0.1.0"

__all__ = [
    "BrownianBridge",
    "BrownianMotion",
    "Domain",
    "GaussMarkov",
    "GaussianMarginals",
    "Laplace",
    "MarkovKernel",
    "Matern32",
    "Matern52",
    "Paths",
    "RunningDomain",
    "SIKALayer",
    "SparseFeatures",
    "__version__",
]
