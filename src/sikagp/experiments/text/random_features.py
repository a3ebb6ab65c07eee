r"""A random-feature Gaussian process on distance-preserving features, in the manner of SNGP.

.. math:: \phi(h) = \sqrt{2 / m}\, \cos(W h / \ell + b), \qquad f_c(h) = \phi(h) \cdot \beta_c

The weights beta are trained as a maximum a posteriori estimate; afterwards one pass over the
training rows gives the covariance that all classes share,

.. math:: \Sigma = \Bigl(\tau I + \sum_i \phi_i \phi_i^T\Bigr)^{-1}, \qquad
          \mathrm{Var} f_c(h) = \phi(h)^T \Sigma\, \phi(h).

The Gaussian over logits is averaged by the same draws as every other head's. The original scales
the mean instead, which is an approximation of that average.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.experiments.methods import FitReport, Problem
from sikagp.experiments.methods.base import tensors
from sikagp.experiments.methods.composition import OnFeatures
from sikagp.experiments.methods.trained import Trained
from sikagp.likelihoods import build_likelihood
from sikagp.training.data import Rows
from sikagp.variational import GaussianMarginals

_CHUNK = 1024


class RandomFeatureGP(nn.Module):
    """The head: marginals with a variance in evaluation mode, without one in training.

    Args:
        in_features: number of features.
        out_features: number of classes.
        num_features: number of random features m.
        lengthscale: of the kernel that they approximate, in units of a normalised feature vector.
        ridge: prior precision tau.
    """

    frequency: Tensor
    phase: Tensor
    covariance: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_features: int = 1024,
        lengthscale: float = 2.0,
        ridge: float = 1.0,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.ridge = in_features, out_features, ridge
        frequency = torch.randn(in_features, num_features) / (lengthscale * math.sqrt(in_features))
        self.register_buffer("frequency", frequency)
        self.register_buffer("phase", 2 * math.pi * torch.rand(num_features))
        self.register_buffer("covariance", torch.eye(num_features) / ridge)
        self.weight = nn.Parameter(torch.zeros(num_features, out_features))

    def features(self, x: Float[Tensor, "rows in_features"]) -> Float[Tensor, "rows features"]:
        """Random Fourier features; their inner products approximate an RBF kernel of variance 1."""
        scale = math.sqrt(2 / len(self.phase))
        return scale * torch.cos(x @ self.frequency + self.phase)

    def forward(self, x: Float[Tensor, "rows in_features"]) -> GaussianMarginals:
        """Marginals of the logits."""
        phi = self.features(x)
        mean = phi @ self.weight
        if self.training:
            return GaussianMarginals(mean, torch.zeros_like(mean))
        variance = ((phi @ self.covariance) * phi).sum(-1, keepdim=True)
        return GaussianMarginals(mean, variance.expand_as(mean))

    def kl_divergence(self) -> Float[Tensor, ""]:
        """Negative log prior of the weights, which takes the place of a KL divergence."""
        return 0.5 * self.ridge * self.weight.square().sum()

    @torch.no_grad()
    def set_covariance(self, x: Float[Tensor, "rows in_features"]) -> None:
        """Condition on the training rows."""
        size = len(self.phase)
        precision = self.ridge * torch.eye(size, dtype=torch.float64)
        for rows in x.split(_CHUNK):
            phi = self.features(rows).double()
            precision += phi.mT @ phi
        self.covariance.copy_(torch.cholesky_inverse(torch.linalg.cholesky(precision)))


class SNGP(Trained):
    """Spectrally normalised embedding under a random-feature Gaussian process."""

    def __init__(self, problem: Problem) -> None:
        super().__init__("network", problem)  # which, like this one, trains without a variance
        if self.setting.embedding is None:
            raise ValueError("SNGP constrains an embedding: expected its size, got None")

    def build(self, train: Rows) -> None:
        """Make a fresh embedding and head."""
        problem, size = self.problem, self.setting.embedding
        head = RandomFeatureGP(size or 0, problem.out_features, **self.head_options)
        self.model = OnFeatures(
            nn.Identity(),
            problem.in_features,
            head,
            embedding=size,
            normalisation="batch",
            spectral_norm=True,
        )
        self.likelihood = build_likelihood("softmax", problem.out_features)

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Train, then condition on the training rows."""
        options: dict[str, Any] = {"folder": folder, "progress": progress}
        report = super().fit(train, validation, seed=seed, **options)
        model: Any = self.model
        with torch.no_grad():
            model.layer.set_covariance(model.features(tensors(train)[0]))
        return report
