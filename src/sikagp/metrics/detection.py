"""How well a score separates positive rows (1: out of distribution) from the others (0).

A higher score means more uncertain, so it speaks for the positive class. Only the order of the
scores matters. All are NaN unless both classes are present. Needs torchmetrics.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sikagp._typing import Bool, Float, Int
from sikagp.metrics.classification import accumulation_dtype
from sikagp.metrics.validation import check_scores
from sikagp.validation import check_fraction

Marks = Bool[Tensor, " rows"] | Int[Tensor, " rows"]


def auroc(score: Float[Tensor, " rows"], positive: Marks) -> Float[Tensor, ""]:
    """Area under the ROC curve: the chance that a positive row scores above a negative one.

    Ties count one half.
    """
    from torchmetrics.functional.classification import binary_auroc

    return _both_present(binary_auroc, score, positive)


def auprc(score: Float[Tensor, " rows"], positive: Marks) -> Float[Tensor, ""]:
    r"""Area under precision and recall, :math:`\sum_k (R_k - R_{k-1}) P_k` (average precision).

    A random score gets the share of positive rows, so the choice of the positive class matters.
    """
    from torchmetrics.functional.classification import binary_average_precision

    return _both_present(binary_average_precision, score, positive)


def fpr_at_tpr(
    score: Float[Tensor, " rows"], positive: Marks, *, tpr: float = 0.95
) -> Float[Tensor, ""]:
    """Share of negative rows flagged by the highest threshold that flags ``tpr`` of the positive.

    A row is flagged if its score reaches the threshold.
    """
    from torchmetrics.functional.classification import binary_roc

    check_fraction("tpr", tpr)

    def first_false_rate(
        ranks: Float[Tensor, " rows"], marks: Int[Tensor, " rows"]
    ) -> Float[Tensor, ""]:
        false_rate, true_rate, _ = binary_roc(ranks, marks)
        return false_rate[(true_rate >= tpr).nonzero()[0, 0]]

    return _both_present(first_false_rate, score, positive)


def _both_present(
    curve: Callable[[Tensor, Tensor], Tensor], score: Float[Tensor, " rows"], positive: Marks
) -> Float[Tensor, ""]:
    """Evaluate on ranks scaled to [0, 1], which torchmetrics does not take for logits.

    It would squash other scores by a sigmoid, and tie the large ones.
    """
    check_scores(score, positive)
    undefined = torch.full((), torch.nan, dtype=torch.float32, device=score.device)
    if bool((positive == positive.flatten()[:1]).all()) or bool(score.isnan().any()):
        return undefined
    distinct, rank = score.unique(return_inverse=True)
    return curve(rank.to(accumulation_dtype()) / len(distinct), positive.long())
