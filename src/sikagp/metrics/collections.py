"""The same scores over any number of updates and processes, as torchmetrics metrics.

Every state is a sum or a pool of rows, so the result is that of the whole set at once, never an
average over batches.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from sikagp._typing import Float, Int, Shaped
from sikagp.metrics import classification, detection, regression
from sikagp.metrics.classification import ReliabilityBins, accumulation_dtype, reliability_bins
from sikagp.metrics.detection import Marks
from sikagp.metrics.validation import check_scores
from sikagp.validation import check_count, check_fraction

Score = Callable[..., Float[Tensor, ""]]


class RowAverage(Metric):
    """A score that averages over rows, such as :func:`nlpd`; the last input holds the targets.

    Args:
        score: function of the inputs of ``update`` that returns its average over them.
        power: the score is the root of an average of this power: 2 for the RMSE.
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, score: Score, *, power: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.score, self.power = score, check_count("power", power)
        zero = torch.zeros((), dtype=accumulation_dtype())
        self.add_state("total", zero, dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, *inputs: Shaped[Tensor, "..."]) -> None:
        """Add rows: the arguments of the score, each of shape (..., rows, ...)."""
        size = inputs[-1].numel()
        if size > 0:
            value = self.score(*inputs).detach().to(self.total.dtype)
            self.total += value**self.power * size
            self.count += size

    def compute(self) -> Float[Tensor, ""]:
        """Score of all rows so far, shape (); NaN if there are none."""
        return (self.total / self.count) ** (1 / self.power)


class ExpectedCalibrationError(Metric):
    """ECE over all rows so far; ``bins()`` has what a reliability diagram needs."""

    full_state_update = False
    higher_is_better = False
    totals: Tensor

    def __init__(self, *, num_bins: int = 15, **options: Any) -> None:
        super().__init__(**options)
        self.num_bins = check_count("num_bins", num_bins)
        zeros = torch.zeros(len(ReliabilityBins._fields), num_bins, dtype=accumulation_dtype())
        self.add_state("totals", zeros, dist_reduce_fx="sum")

    def update(self, probs: Float[Tensor, "*batch classes"], target: Int[Tensor, "*batch"]) -> None:
        """Add rows: probabilities (*batch, classes) and labels (*batch)."""
        self.totals += torch.stack(reliability_bins(probs, target, num_bins=self.num_bins))

    def bins(self) -> ReliabilityBins:
        """Counts, confidences and correct rows of this process so far, shape (bins,) each."""
        return ReliabilityBins(*self.totals)

    def compute(self) -> Float[Tensor, ""]:
        """ECE of all rows so far, shape (); NaN if there are none."""
        return self.bins().ece


class PooledScore(Metric):
    """A score of the pooled rows, such as :func:`auroc`: keeps every score and mark."""

    full_state_update = False
    scores: list[Tensor]
    marks: list[Tensor]

    def __init__(self, score: Score, **options: Any) -> None:
        super().__init__(**options)
        self.score = score
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("marks", [], dist_reduce_fx="cat")

    def update(self, score: Float[Tensor, " rows"], positive: Marks) -> None:
        """Add rows: scores and marks (1: positive class), shape (rows,) each."""
        check_scores(score, positive)
        self.scores.append(score.detach())
        self.marks.append(positive.long())

    def compute(self) -> Float[Tensor, ""]:
        """Score of all rows so far, shape (); NaN unless both classes are present."""
        if len(self.scores) == 0:
            return torch.full((), torch.nan, device=self.device)
        return self.score(dim_zero_cat(self.scores), dim_zero_cat(self.marks))


def regression_metrics(*, level: float = 0.95, prefix: str | None = None) -> MetricCollection:
    """RMSE, NLPD, CRPS and coverage; ``update(mean, variance, target)`` of one shape each."""
    check_fraction("level", level)
    return _collect(
        {
            "rmse": RowAverage(_gaussian_rmse, power=2),
            "nlpd": RowAverage(regression.nlpd),
            "crps": RowAverage(regression.crps),
            "coverage": RowAverage(partial(regression.coverage, level=level)),
        },
        prefix,
    )


def mixture_metrics(*, level: float = 0.95, prefix: str | None = None) -> MetricCollection:
    """The same for mixtures: ``update(means, variances, target)``, components first.

    ``nlpd`` is exact; ``gaussian_nlpd`` is the paper's, of the Gaussian with the same moments.
    Shapes: (components, ...), (components, ...) and (...).
    """
    check_fraction("level", level)
    return _collect(
        {
            "rmse": RowAverage(_mixture_rmse, power=2),
            "nlpd": RowAverage(regression.mixture_nlpd),
            "gaussian_nlpd": RowAverage(_matched_nlpd),
            "crps": RowAverage(regression.mixture_crps),
            "coverage": RowAverage(partial(regression.mixture_coverage, level=level)),
        },
        prefix,
    )


def classification_metrics(
    num_classes: int, *, num_bins: int = 15, prefix: str | None = None
) -> MetricCollection:
    """Accuracy, NLL, ECE and Brier; ``update(probs, target)``, shapes (*batch, classes), (*batch).

    Rows with another number of classes are refused.
    """
    check_count("num_classes", num_classes)

    def average(score: Score) -> RowAverage:
        return RowAverage(partial(_of_classes, score, num_classes))

    return _collect(
        {
            "accuracy": average(classification.accuracy),
            "nll": average(classification.nll),
            "ece": ExpectedCalibrationError(num_bins=num_bins),
            "brier": average(classification.brier),
        },
        prefix,
    )


def detection_metrics(*, tpr: float = 0.95, prefix: str | None = None) -> MetricCollection:
    """AUROC, AUPRC and FPR at a TPR; ``update(score, positive)``, shape (rows,) each.

    Positive (1) are the rows that a high score should find: those out of distribution.
    """
    check_fraction("tpr", tpr)
    metrics = {
        "auroc": PooledScore(detection.auroc),
        "auprc": PooledScore(detection.auprc),
        "fpr_at_tpr": PooledScore(partial(detection.fpr_at_tpr, tpr=tpr)),
    }
    return _collect(metrics, prefix, shared=[list(metrics)])


def _collect(
    metrics: Mapping[str, Metric], prefix: str | None, shared: Sequence[list[str]] = ()
) -> MetricCollection:
    """State is shared only where we say so.

    Left to itself, the collection joins metrics whose first batch happens to give equal sums, as
    NLL and Brier score of a perfect batch do, and then reports one for the other.
    """
    return MetricCollection(dict(metrics), prefix=prefix, compute_groups=list(shared) or False)


def _gaussian_rmse(
    mean: Float[Tensor, "*shape"],
    variance: Float[Tensor, "*shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    return regression.rmse(mean, target)


def _mixture_rmse(
    means: Float[Tensor, "components *shape"],
    variances: Float[Tensor, "components *shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    return regression.rmse(regression.mixture_moments(means, variances)[0], target)


def _matched_nlpd(
    means: Float[Tensor, "components *shape"],
    variances: Float[Tensor, "components *shape"],
    target: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    return regression.nlpd(*regression.mixture_moments(means, variances), target)


def _of_classes(
    score: Score,
    num_classes: int,
    probs: Float[Tensor, "*batch classes"],
    target: Int[Tensor, "*batch"],
) -> Float[Tensor, ""]:
    if probs.shape[-1] != num_classes:
        raise ValueError(f"expected {num_classes} classes, got probs of {tuple(probs.shape)}")
    return score(probs, target)
