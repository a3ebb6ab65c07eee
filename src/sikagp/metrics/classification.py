r"""Scores of class probabilities, and the uncertainty that they express.

Probabilities have shape (\*batch, classes) and are those of the predictive distribution: average
the probabilities of the draws, never their logits.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sikagp._typing import Float, Int, Shaped
from sikagp.metrics.validation import check_labels, check_probabilities
from sikagp.precision import at_least_float32
from sikagp.validation import check_count


class ReliabilityBins(NamedTuple):
    """Predictions sorted by confidence into equal bins (a, b] of [0, 1]: sums over each bin.

    Attributes:
        rows: number of rows.
        confidence: sum of the largest probabilities.
        correct: number of rows whose most probable class is the true one.
    """

    rows: Float[Tensor, " bins"]
    confidence: Float[Tensor, " bins"]
    correct: Float[Tensor, " bins"]

    @property
    def edges(self) -> Float[Tensor, " edges"]:
        """Boundaries of the bins, shape (bins + 1,)."""
        return torch.linspace(0, 1, len(self.rows) + 1, device=self.rows.device)

    @property
    def mean_confidence(self) -> Float[Tensor, " bins"]:
        """Average confidence in each bin, shape (bins,); NaN where a bin is empty."""
        return self.confidence / self.rows

    @property
    def accuracy(self) -> Float[Tensor, " bins"]:
        """Share of correct rows in each bin, shape (bins,); NaN where a bin is empty."""
        return self.correct / self.rows

    @property
    def ece(self) -> Float[Tensor, ""]:
        r"""Expected calibration error :math:`\sum_m \frac{|B_m|}{n} |acc(B_m) - conf(B_m)|`."""
        return (self.correct - self.confidence).abs().sum() / self.rows.sum()


def reliability_bins(
    probs: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"], *, num_bins: int = 15
) -> ReliabilityBins:
    """Compare confidence and accuracy, bin by bin; shape (num_bins,) each."""
    check_labels(probs, target)
    check_count("num_bins", num_bins)
    confidence, predicted = at_least_float32(probs).flatten(0, -2).max(-1)
    inner = torch.arange(1, num_bins, device=probs.device, dtype=confidence.dtype) / num_bins
    index = torch.bucketize(confidence, inner)
    correct = predicted == target.flatten()

    def total(values: Shaped[Tensor, " rows"]) -> Float[Tensor, " bins"]:
        zeros = torch.zeros(num_bins, device=probs.device, dtype=accumulation_dtype())
        return zeros.index_add(0, index, values.to(zeros.dtype))

    return ReliabilityBins(total(torch.ones_like(confidence)), total(confidence), total(correct))


def ece(
    probs: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"], *, num_bins: int = 15
) -> Float[Tensor, ""]:
    """Expected calibration error of the most probable class; see :class:`ReliabilityBins`."""
    return reliability_bins(probs, target, num_bins=num_bins).ece.to(at_least_float32(probs).dtype)


def accuracy(
    probs: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """Share of rows whose most probable class is the true one."""
    check_labels(probs, target)
    return (probs.argmax(-1) == target).to(at_least_float32(probs).dtype).mean()


def nll(probs: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"]) -> Float[Tensor, ""]:
    r"""Negative log likelihood :math:`-\frac1n \sum_i \log p_{i, y_i}`, in nats.

    A probability that has underflowed to 0 counts as the smallest normal number of its type: the
    row costs 87 nats in float32, which shows, instead of hiding all others behind infinity.
    """
    check_labels(probs, target)
    probs = at_least_float32(probs)
    chosen = probs.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
    return -chosen.clamp_min(torch.finfo(probs.dtype).tiny).log().mean()


def brier(
    probs: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    r"""Brier score :math:`\frac1n \sum_i \sum_c (p_{ic} - [y_i = c])^2`, between 0 and 2."""
    check_labels(probs, target)
    one_hot = torch.nn.functional.one_hot(target.long(), probs.shape[-1])
    return (at_least_float32(probs) - one_hot).square().sum(-1).mean()


def predictive_entropy(probs: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""Total uncertainty of each row, :math:`H(p) = -\sum_c p_c \log p_c`, in nats."""
    check_probabilities(probs)
    return torch.special.entr(at_least_float32(probs)).sum(-1)


def mutual_information(
    probs: Float[Tensor, "draws *batch classes"],
) -> Float[Tensor, "*batch"]:
    r"""Epistemic uncertainty of each row: what the draws disagree about, in nats.

    .. math:: H\Bigl(\frac1S \sum_s p^{(s)}\Bigr) - \frac1S \sum_s H(p^{(s)}) \ge 0

    The draws lie along the first dimension.
    """
    if probs.ndim < 2 or len(probs) == 0:
        raise ValueError(
            f"probs must have shape (draws, *batch, classes) with at least one draw, "
            f"got {tuple(probs.shape)}"
        )
    expected = predictive_entropy(probs).mean(0)
    return (predictive_entropy(at_least_float32(probs).mean(0)) - expected).clamp_min(0)


def accumulation_dtype() -> torch.dtype:
    """float64 for sums over many rows, except where the accelerator has none."""
    return torch.float32 if torch.backends.mps.is_available() else torch.float64
