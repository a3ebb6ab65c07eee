"""Random predictions with their targets, for the tests of metrics."""

import torch
from torch import Tensor


def gaussians(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random means, variances and targets in float64; the targets lack the first dimension."""
    means = torch.randn(shape, dtype=torch.float64)
    variances = torch.empty(shape, dtype=torch.float64).uniform_(0.2, 2.0)
    return means, variances, 1.5 * torch.randn(shape[1:], dtype=torch.float64)


def class_rows(rows: int = 200, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Class probabilities and labels that have nothing to do with them."""
    probs = (2 * torch.randn(rows, classes, dtype=torch.float64)).softmax(-1)
    return probs, torch.randint(classes, (rows,))


def score_rows(rows: int = 300) -> tuple[Tensor, Tensor]:
    """Scores far beyond [0, 1] with many ties, and marks that go with them."""
    positive = torch.rand(rows) < 0.3
    score = (4 * torch.randn(rows, dtype=torch.float64) + 5 * positive).round() * 10
    return score, positive
