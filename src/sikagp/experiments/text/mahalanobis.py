r"""Gaussian classes with one covariance: a classifier, and the distance to its nearest class.

.. math:: d_c(h)^2 = (h - \mu_c)^T S^{-1} (h - \mu_c), \qquad
          p(c \mid h) \propto \exp(-d_c(h)^2 / 2)

The score for texts that belong nowhere is :math:`\min_c d_c(h)^2`.
"""

import time
from pathlib import Path

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.experiments.methods import FitReport, Problem
from sikagp.experiments.methods.base import tensors
from sikagp.training.data import Rows


class Mahalanobis:
    """Class means and a shared covariance, shrunk a little towards its average variance.

    Args:
        problem: number of features and classes; ``shrinkage`` is its only option.
    """

    means: Tensor
    whitening: Tensor

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.shrinkage = float(problem.options.get("shrinkage", 0.05))

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Estimate means and covariance."""
        start = time.perf_counter()
        x, y = tensors(train)
        counts = torch.bincount(y, minlength=self.problem.out_features).unsqueeze(-1)
        sums = torch.zeros(len(counts), x.shape[-1]).index_add(0, y, x)
        self.means = sums / counts.clamp_min(1)
        within = (x - self.means[y]).double()
        covariance = within.mT @ within / len(x)
        average = covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64)
        covariance = torch.lerp(covariance, average, self.shrinkage)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        self.whitening = torch.linalg.cholesky(inverse).float()
        return FitReport(time.perf_counter() - start, 0)

    def distances(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "rows classes"]:
        """Squared distance to every class."""
        return torch.cdist(x @ self.whitening, self.means @ self.whitening).square()

    def predict(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, "draw rows classes"]:
        """Class probabilities, as a single draw."""
        return (-0.5 * self.distances(x)).softmax(-1).unsqueeze(0)

    def doubt(self, x: Float[Tensor, "rows features"]) -> Float[Tensor, " rows"]:
        """Squared distance to the nearest class."""
        return self.distances(x).amin(-1)
