"""GPyTorch's models, as its users build them."""

import math

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.models.deep_gps import DeepGPLayer
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    GridInterpolationVariationalStrategy,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from sikagp._typing import Float
from sikagp.validation import check_choice

_SMOOTHNESS = {"laplace": 0.5, "matern32": 1.5, "matern52": 2.5}
KERNELS = (*_SMOOTHNESS, "rbf")


def build_kernel(
    name: str, features: int, *, lengthscale: float, batch_shape: torch.Size | None = None
) -> Kernel:
    """Scaled kernel by name, with one lengthscale per feature, all started at the same value."""
    batch_shape = batch_shape or torch.Size()
    options = {"ard_num_dims": features, "batch_shape": batch_shape}
    if check_choice("kernel", name, KERNELS) == "rbf":
        kernel = RBFKernel(**options)
    else:
        kernel = MaternKernel(nu=_SMOOTHNESS[name], **options)
    kernel.lengthscale = lengthscale
    return ScaleKernel(kernel, batch_shape=batch_shape)


def typical_distance(features: int) -> float:
    """Start of a lengthscale: distances of standardised rows grow with the square root."""
    return math.sqrt(features)


class _Process(gpytorch.models.ApproximateGP):
    """A variational process with a mean and a kernel."""

    def __init__(self, strategy: object, mean: gpytorch.means.Mean, kernel: Kernel) -> None:
        super().__init__(strategy)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x: Float[Tensor, "*batch rows features"]) -> MultivariateNormal:
        """Prior at inputs."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SVGP(_Process):
    """Sparse variational GP: M inducing points in D dimensions, one process per output.

    ``points`` of shape (num_points, in_features) are where inducing points start; otherwise they
    are drawn from the unit cube.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_points: int,
        *,
        kernel: str = "laplace",
        points: Float[Tensor, "num_points in_features"] | None = None,
    ) -> None:
        batch_shape = torch.Size([out_features] if out_features > 1 else [])
        start = torch.rand(num_points, in_features) if points is None else points.clone()
        q = CholeskyVariationalDistribution(num_points, batch_shape=batch_shape)
        strategy = VariationalStrategy(
            self, start.repeat(*batch_shape, 1, 1), q, learn_inducing_locations=True
        )
        if out_features > 1:
            strategy = IndependentMultitaskVariationalStrategy(strategy, num_tasks=out_features)
        mean = ConstantMean(batch_shape=batch_shape)
        lengthscale = typical_distance(in_features)
        covariance = build_kernel(
            kernel, in_features, lengthscale=lengthscale, batch_shape=batch_shape
        )
        super().__init__(strategy, mean, covariance)


class SVDKLHead(_Process):
    """One grid of M points per feature; a softmax likelihood mixes features into classes.

    Inputs lie in the unit interval, in which the lengthscale counts too. Features share one kernel,
    as in GPyTorch's own example, or have one each.
    """

    def __init__(
        self,
        in_features: int,
        num_points: int,
        *,
        kernel: str = "laplace",
        lengthscale: float = 0.2,
        shared_kernel: bool = True,
    ) -> None:
        batch_shape = torch.Size([in_features])
        q = CholeskyVariationalDistribution(num_points, batch_shape=batch_shape)
        grid = GridInterpolationVariationalStrategy(self, num_points, [(0.0, 1.0)], q)
        strategy = IndependentMultitaskVariationalStrategy(grid, num_tasks=in_features)
        own = torch.Size() if shared_kernel else batch_shape
        covariance = build_kernel(kernel, 1, lengthscale=lengthscale, batch_shape=own)
        super().__init__(strategy, ZeroMean(batch_shape=own), covariance)

    def __call__(
        self, x: Float[Tensor, "rows features"], *args: object, **kwargs: object
    ) -> MultivariateNormal:
        """Evaluate each feature's process at its own column of x."""
        return super().__call__(x.mT.unsqueeze(-1), *args, **kwargs)


class AdditiveKISSGP(SVDKLHead):
    """The sum over features of one process on a grid each; one output."""

    def __call__(
        self, x: Float[Tensor, "rows features"], *args: object, **kwargs: object
    ) -> MultivariateNormal:
        """Marginals of the sum."""
        parts = super().__call__(x, *args, **kwargs)
        return MultivariateNormal(parts.mean.sum(-1), DiagLinearOperator(parts.variance.sum(-1)))


class HiddenLayer(DeepGPLayer):
    """Layer of GPyTorch's deep GP: one SVGP per unit, with a linear mean except at the end."""

    def __init__(
        self,
        points: Float[Tensor, "num_points in_features"],
        out_features: int,
        *,
        kernel: str,
        last: bool,
    ) -> None:
        num_points, in_features = points.shape
        batch_shape = torch.Size([out_features])
        q = CholeskyVariationalDistribution(num_points, batch_shape=batch_shape)
        strategy = VariationalStrategy(
            self, points.repeat(out_features, 1, 1), q, learn_inducing_locations=True
        )
        super().__init__(strategy, in_features, out_features)
        self.mean_module = (
            ConstantMean(batch_shape=batch_shape) if last else LinearMean(in_features)
        )
        lengthscale = typical_distance(in_features)
        self.covar_module = build_kernel(
            kernel, in_features, lengthscale=lengthscale, batch_shape=batch_shape
        )

    def forward(self, x: Float[Tensor, "*batch rows features"]) -> MultivariateNormal:
        """Prior at inputs."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))
