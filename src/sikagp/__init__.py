"""Calibrated uncertainty at the price of a linear layer: SIKA-GP on PyTorch."""

from importlib import import_module
from typing import Any

from sikagp.basis import SparseFeatures
from sikagp.domains import Domain, NodeDomain, RunningDomain
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
from sikagp.mixtures import GaussianMixture
from sikagp.models import DeepGP, DeepKernel, DeepTemperature
from sikagp.variational import GaussianMarginals

__version__ = "0.1.0"

__all__ = [
    "BrownianBridge",
    "BrownianMotion",
    "DeepGP",
    "DeepKernel",
    "DeepTemperature",
    "Domain",
    "GaussMarkov",
    "GaussianMarginals",
    "GaussianMixture",
    "Laplace",
    "MarkovKernel",
    "Matern32",
    "Matern52",
    "NodeDomain",
    "Paths",
    "RunningDomain",
    "SIKAClassifier",
    "SIKAForSequenceClassification",
    "SIKALayer",
    "SIKARegressor",
    "SparseFeatures",
    "TrainingConfig",
    "__version__",
    "fit",
]

# Names that need an extra; what they need is imported when they are first asked for.
_LAZY = {
    "SIKAClassifier": "sikagp.estimators",
    "SIKAForSequenceClassification": "sikagp.integrations.transformers",
    "SIKARegressor": "sikagp.estimators",
    "TrainingConfig": "sikagp.training",
    "fit": "sikagp.training",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sikagp' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
