"""How well scores of doubt find rows that belong nowhere, for images and texts alike."""

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.metrics import auprc, auroc, fpr_at_tpr

MEASURES = {"auroc": auroc, "auprc": auprc, "fpr95": fpr_at_tpr}


def detection(
    known: Float[Tensor, " rows"], foreign: Float[Tensor, " others"], *, suffix: str = ""
) -> dict[str, float]:
    """AUROC, AUPRC and FPR at 95% TPR of one score; foreign rows are the positive ones."""
    score = torch.cat([known, foreign])
    positive = torch.arange(len(score)) >= len(known)
    return {f"{name}{suffix}": float(found(score, positive)) for name, found in MEASURES.items()}
