"""What is measured: calibration in scope, and how well doubt finds what is out of scope.

Positive rows are those out of scope. Accuracies and calibration errors are fractions.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.calibration import fit_temperature, temper
from sikagp.experiments.detection import detection
from sikagp.metrics import accuracy, ece, mutual_information, nll, predictive_entropy

Draws = Float[Tensor, "draws rows classes"]


def in_scope_scores(
    draws: Draws,
    labels: Int[Tensor, " rows"],
    held_out_draws: Float[Tensor, "draws held_out classes"],
    held_out_labels: Int[Tensor, " held_out"],
) -> dict[str, float]:
    """Accuracy, NLL and ECE, as they are and with a temperature fitted on held-out rows."""
    probs = draws.mean(0)
    temperature = fit_temperature(held_out_draws.mean(0), held_out_labels)
    tempered = temper(probs, temperature).exp()
    return {
        "accuracy": float(accuracy(probs, labels)),
        "nll": float(nll(probs, labels)),
        "ece": float(ece(probs, labels)),
        "nll_tempered": float(nll(tempered, labels)),
        "ece_tempered": float(ece(tempered, labels)),
        "temperature": temperature,
    }


def doubts(draws: Draws, temperature: float = 1.0) -> dict[str, Float[Tensor, " rows"]]:
    """Scores of doubt for each row; higher means more.

    Probabilities give logits up to a shift, so their variance is that of centred logits.
    """
    probs = temper(draws.mean(0), temperature).exp()
    logits = draws.clamp_min(torch.finfo(draws.dtype).tiny).log()
    logits = logits - logits.mean(-1, keepdim=True)
    return {
        "entropy": predictive_entropy(probs),
        "mutual_information": mutual_information(draws),
        "max_probability": -probs.amax(-1),
        "logit_variance": logits.var(0, correction=0).sum(-1),
    }


def detection_scores(
    inside: Mapping[str, Float[Tensor, " rows"]], outside: Mapping[str, Float[Tensor, " others"]]
) -> dict[str, float]:
    """AUROC, AUPRC and FPR at 95% TPR for every score of doubt."""
    found: dict[str, float] = {}
    for name, score in inside.items():
        found |= detection(score, outside[name], suffix=f"_{name}")
    return found
