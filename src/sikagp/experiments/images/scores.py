"""Scores of class probabilities: on clean, corrupted and foreign images."""

from collections.abc import Callable

from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.calibration import fit_temperature, temper
from sikagp.experiments.data import Images
from sikagp.experiments.detection import detection
from sikagp.experiments.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from sikagp.metrics import accuracy, brier, ece, mutual_information, nll, predictive_entropy

Draws = Float[Tensor, "samples rows classes"]


def classification_scores(
    draws: Float[Tensor, "samples rows classes"], labels: Int[Tensor, " rows"]
) -> dict[str, float]:
    """Accuracy, likelihood and calibration of the averaged probabilities."""
    probs = draws.mean(0)
    scores = {"accuracy": accuracy, "nll": nll, "ece": ece, "brier": brier}
    return {name: float(score(probs, labels)) for name, score in scores.items()}


def held_out_scores(
    held: Float[Tensor, "samples held classes"],
    held_labels: Int[Tensor, " held"],
    draws: Float[Tensor, "samples rows classes"],
    labels: Int[Tensor, " rows"],
) -> dict[str, float]:
    """Scores of held-out images, and of others after the temperature that fits those."""
    temperature = fit_temperature(held.mean(0), held_labels)
    tempered = temper(draws.mean(0), temperature).exp().unsqueeze(0)
    validation = classification_scores(held, held_labels)
    after = classification_scores(tempered, labels)
    return {
        **{f"validation_{name}": validation[name] for name in ("accuracy", "nll", "ece")},
        "temperature": temperature,
        **{f"{name}_tempered": after[name] for name in ("nll", "ece")},
    }


def detection_scores(
    known: Float[Tensor, "samples rows classes"], foreign: Float[Tensor, "samples others classes"]
) -> dict[str, float]:
    """How well entropy and mutual information tell foreign images (positive) from known ones.

    Mutual information needs several draws; with one it says nothing and is left out.
    """
    found = detection(predictive_entropy(known.mean(0)), predictive_entropy(foreign.mean(0)))
    if len(known) > 1:
        doubts = mutual_information(known), mutual_information(foreign)
        found |= detection(*doubts, suffix="_mutual_information")
    return found


def corruption_scores(predict: Callable[[Images], Draws], images: Images) -> dict[str, float]:
    """Accuracy, likelihood and calibration under every corruption and severity, and on average."""
    found: dict[str, float] = {}
    for kind in CORRUPTIONS:
        for severity in SEVERITIES:
            changed = images.with_pixels(corrupt(images.pixels, kind, severity))
            scores = classification_scores(predict(changed), images.labels)
            found |= {f"{kind}{severity}_{name}": value for name, value in scores.items()}
    for name in ("accuracy", "nll", "ece"):
        values = [value for key, value in found.items() if key.endswith(f"_{name}")]
        found[f"corrupted_{name}"] = sum(values) / len(values)
    return found
