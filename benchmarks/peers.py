"""GPyTorch models with the same number of inducing points as a SIKA layer."""

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import (
    AdditiveGridInterpolationVariationalStrategy,
    CholeskyVariationalDistribution,
    GridInterpolationVariationalStrategy,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

BOUNDS = (0.0, 1.0)


class _Model(gpytorch.models.ApproximateGP):
    """A zero-mean process with a scaled Laplace (Matérn-1/2) kernel, as in a SIKA layer."""

    def __init__(self, strategy: object, batch_shape: torch.Size) -> None:
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch_shape)
        kernel = gpytorch.kernels.MaternKernel(nu=0.5, batch_shape=batch_shape)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch_shape)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Prior at inputs of shape (*batch, rows, features)."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SVGP(_Model):
    """Sparse variational GP: M inducing points in D dimensions, one process per output."""

    def __init__(self, in_features: int, out_features: int, num_points: int) -> None:
        batch_shape = torch.Size([out_features] if out_features > 1 else [])
        points = torch.rand(*batch_shape, num_points, in_features)
        q = CholeskyVariationalDistribution(num_points, batch_shape=batch_shape)
        strategy = VariationalStrategy(self, points, q, learn_inducing_locations=True)
        if out_features > 1:
            strategy = IndependentMultitaskVariationalStrategy(strategy, num_tasks=out_features)
        super().__init__(strategy, batch_shape)


class AdditiveKISSGP(_Model):
    """One grid of M points per feature, summed over features; one output.

    GPyTorch's own sum over features takes seconds to give its diagonal, so that marginals are
    summed here instead.
    """

    def __init__(self, in_features: int, num_points: int) -> None:
        q = CholeskyVariationalDistribution(num_points, batch_shape=torch.Size([in_features]))
        strategy = AdditiveGridInterpolationVariationalStrategy(
            self, num_points, [BOUNDS], in_features, q, sum_output=False
        )
        super().__init__(strategy, torch.Size([]))

    def __call__(self, x: Tensor, *args: object, **kwargs: object) -> MultivariateNormal:
        """Marginals of the sum, at rows of all features."""
        parts = super().__call__(x, *args, **kwargs)
        variance = DiagLinearOperator(parts.variance.sum(0))
        return MultivariateNormal(parts.mean.sum(0), variance)


class SVDKLHead(_Model):
    """One grid of M points per feature; the softmax likelihood mixes features into classes."""

    def __init__(self, in_features: int, num_points: int) -> None:
        batch_shape = torch.Size([in_features])
        q = CholeskyVariationalDistribution(num_points, batch_shape=batch_shape)
        grid = GridInterpolationVariationalStrategy(self, num_points, [BOUNDS], q)
        strategy = IndependentMultitaskVariationalStrategy(grid, num_tasks=in_features)
        super().__init__(strategy, torch.Size([]))

    def __call__(self, x: Tensor, *args: object, **kwargs: object) -> MultivariateNormal:
        """Evaluate each feature's process at its own column of x."""
        return super().__call__(x.mT.unsqueeze(-1), *args, **kwargs)
