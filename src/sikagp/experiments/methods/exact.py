"""The exact Gaussian process, for data small enough for it."""

import time
from pathlib import Path
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from sikagp._typing import Float
from sikagp.experiments.methods.base import FitReport, Problem, tensors
from sikagp.experiments.methods.gpytorch_models import build_kernel, typical_distance
from sikagp.mixtures import GaussianMixture
from sikagp.training.data import Rows
from sikagp.variational import GaussianMarginals


class _Regression(gpytorch.models.ExactGP):
    """Constant mean and a kernel with one lengthscale per feature."""

    def __init__(
        self,
        x: Float[Tensor, "rows features"],
        y: Float[Tensor, " rows"],
        likelihood: GaussianLikelihood,
        kernel: str,
    ) -> None:
        super().__init__(x, y, likelihood)
        features = x.shape[-1]
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = build_kernel(kernel, features, lengthscale=typical_distance(features))

    def forward(self, x: Float[Tensor, "rows features"]) -> MultivariateNormal:
        """Prior at inputs."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class ExactGP:
    """Exact regression; hyperparameters maximise the marginal likelihood.

    Args:
        problem: a regression with one target.
        kernel: ``"laplace"``, ``"matern32"``, ``"matern52"`` or ``"rbf"``.
        max_rows: refuse more, for time grows with their cube.
    """

    def __init__(self, problem: Problem, *, kernel: str = "matern52", max_rows: int = 6000) -> None:
        if problem.classifies or problem.out_features != 1:
            raise ValueError("exact-gp is for regression with one target")
        self.kernel, self.max_rows = kernel, max_rows
        self.epochs = int(problem.training.get("epochs", 100))
        self.learning_rate = float(problem.training.get("learning_rate", 0.05))

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Take gradient steps on all rows at once; it needs no held-out rows and no randomness."""
        del validation, seed, folder, progress
        x, y = tensors(train)
        if len(x) > self.max_rows:
            raise ValueError(
                f"exact-gp takes at most max_rows = {self.max_rows} rows, got {len(x)}; "
                "use svgp for more"
            )
        self.likelihood = GaussianLikelihood()
        self.model = _Regression(x, y.flatten(), self.likelihood, self.kernel).train()
        start = time.perf_counter()
        history = self._maximise(x, y.flatten())
        seconds = time.perf_counter() - start
        self.model.eval()
        self.likelihood.eval()
        return FitReport(seconds, self.epochs, history)

    def _maximise(
        self, x: Float[Tensor, "rows features"], y: Float[Tensor, " rows"]
    ) -> list[dict[str, float]]:
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate)
        history = []
        for _ in range(self.epochs):
            optimizer.zero_grad()
            loss: Any = -objective(self.model(x), y)
            loss.backward()
            optimizer.step()
            history.append({"loss": float(loss.detach())})
        return history

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "rows features"]) -> GaussianMixture:
        """Predict with the variance of f and of the noise."""
        with gpytorch.settings.fast_pred_var():
            prediction = self.likelihood(self.model(x))
        mean, variance = prediction.mean, prediction.variance
        return GaussianMixture(GaussianMarginals(mean.view(1, -1, 1), variance.view(1, -1, 1)))
