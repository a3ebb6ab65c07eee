"""Objectives: GPyTorch's, on the outputs of SIKA models.

    ELBO = average over rows of E_q(f) [ log p(y | f) ]  -  beta KL(q || prior) / num_data

A deep model's expectation is also averaged over its samples; the KL divergence is counted once.
With ``weight`` the average over rows is a weighted sum divided by the number of rows.
"""

from abc import abstractmethod

import gpytorch
import torch
from gpytorch.mlls._approximate_mll import _ApproximateMarginalLogLikelihood
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.integrations.gpytorch import as_gp
from sikagp.likelihoods import Targets, expected_log_prob
from sikagp.mixtures import GaussianMixture, as_mixture
from sikagp.predictions import log_marginal
from sikagp.validation import check_count
from sikagp.variational import GaussianMarginals

Output = GaussianMarginals | GaussianMixture


class _RowObjective(_ApproximateMarginalLogLikelihood):
    """Averages a term per row and subtracts the scaled KL divergence; ``beta`` may change."""

    def __init__(
        self,
        likelihood: gpytorch.likelihoods.Likelihood,
        model: nn.Module,
        num_data: int,
        beta: float = 1.0,
    ) -> None:
        if beta < 0:
            raise ValueError(f"beta must not be negative, got {beta}")
        super().__init__(likelihood, as_gp(model), check_count("num_data", num_data), beta)

    @abstractmethod
    def row_terms(self, output: Output, y: Targets) -> Float[Tensor, " rows"]:
        """What the data say about each row."""

    def forward(
        self, output: Output, y: Targets, weight: Float[Tensor, " rows"] | None = None
    ) -> Float[Tensor, ""]:
        """Objective per training row, to be maximised."""
        terms = self.row_terms(output, y)
        if weight is not None:
            terms = terms * weight
        divergence = self.model.variational_strategy.kl_divergence()
        return terms.mean() - divergence * (self.beta / self.num_data) + self._log_prior()

    def _log_prior(self) -> Float[Tensor, ""] | float:
        """Log density of priors on the likelihood's parameters, if it has any."""
        terms = [
            prior.log_prob(closure(module)).sum()
            for _, module, prior, closure, _ in self.likelihood.named_priors()
        ]
        return torch.stack(terms).sum() / self.num_data if terms else 0.0


class VariationalELBO(_RowObjective, gpytorch.mlls.VariationalELBO):
    """Evidence lower bound per training row; called as ``elbo(output, y)``.

    It is GPyTorch's objective with the same arguments, for the outputs of SIKA models. Any
    likelihood of GPyTorch will do.
    """

    def row_terms(self, output: Output, y: Targets) -> Float[Tensor, " rows"]:
        """Expected log likelihood of each row, averaged over a deep model's samples."""
        return expected_log_prob(self.likelihood, as_mixture(output).components, y).mean(0)


class PredictiveLogLikelihood(_RowObjective, gpytorch.mlls.PredictiveLogLikelihood):
    """Log density of y under the prediction, less the KL divergence (Jankowiak et al., 2020)."""

    def row_terms(self, output: Output, y: Targets) -> Float[Tensor, " rows"]:
        """Log predictive density of each row; the mixture is inside the logarithm."""
        return log_marginal(self.likelihood, output, y)


def warm_up(step: int, num_steps: int) -> float:
    """Factor of a linear warm-up, above 0 at step 0 and 1 from step ``num_steps`` on."""
    return min(1.0, (step + 1) / (num_steps + 1))
