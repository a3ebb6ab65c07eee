"""Metrics: functions of whole tensors, and torchmetrics collections for streams of batches.

The functions of regression and classification need torch alone. Collections and the detection
scores need torchmetrics (``pip install 'sikagp[train]'``), which is imported when they are used.
"""

from typing import TYPE_CHECKING, Any

from sikagp.metrics.classification import (
    ReliabilityBins,
    accuracy,
    brier,
    ece,
    mutual_information,
    nll,
    predictive_entropy,
    reliability_bins,
)
from sikagp.metrics.detection import auprc, auroc, fpr_at_tpr
from sikagp.metrics.regression import (
    coverage,
    covered,
    crps,
    mixture_coverage,
    mixture_crps,
    mixture_moments,
    mixture_nlpd,
    mixture_pit,
    nlpd,
    pit,
    rmse,
)

if TYPE_CHECKING:
    from sikagp.metrics.collections import (
        ExpectedCalibrationError,
        PooledScore,
        RowAverage,
        classification_metrics,
        detection_metrics,
        mixture_metrics,
        regression_metrics,
    )

__all__ = [
    "ExpectedCalibrationError",
    "PooledScore",
    "ReliabilityBins",
    "RowAverage",
    "accuracy",
    "auprc",
    "auroc",
    "brier",
    "classification_metrics",
    "coverage",
    "covered",
    "crps",
    "detection_metrics",
    "ece",
    "fpr_at_tpr",
    "mixture_coverage",
    "mixture_crps",
    "mixture_metrics",
    "mixture_moments",
    "mixture_nlpd",
    "mixture_pit",
    "mutual_information",
    "nll",
    "nlpd",
    "pit",
    "predictive_entropy",
    "regression_metrics",
    "reliability_bins",
    "rmse",
]


def __getattr__(name: str) -> Any:
    """Import what needs torchmetrics on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sikagp.metrics import collections

    return getattr(collections, name)
