"""Mean-field Gaussians: what a layer returns, and positive parameters."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.precision import at_least_float32
from sikagp.validation import check_positive

if TYPE_CHECKING:
    from gpytorch.distributions import MultitaskMultivariateNormal


def inverse_softplus(value: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return y with ``softplus(y) = value``, for positive values of any size."""
    return value + torch.log(-torch.expm1(-value))


def deviation_of(variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Square root whose gradient stays finite where the variance vanishes."""
    return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()


class PositiveParameter:
    """A positive number stored as an unconstrained parameter; reads and sets like an attribute.

    Reading gives ``decode(raw)``, assigning stores ``encode(value)`` in place. An absent (None)
    parameter reads as None.
    """

    def __init__(
        self, stored: str, decode: Callable[[Tensor], Tensor], encode: Callable[[Tensor], Tensor]
    ) -> None:
        self.stored, self.decode, self.encode = stored, decode, encode

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: nn.Module | None, owner: type | None = None) -> Any:
        if module is None:
            return self
        raw = getattr(module, self.stored)
        return None if raw is None else self.decode(at_least_float32(raw))

    def __set__(self, module: nn.Module, value: float | Tensor) -> None:
        raw = getattr(module, self.stored)
        if raw is None:
            raise ValueError(f"this {type(module).__name__} has no {self.name}")
        # In float64, where every positive float32 number has a finite encoding.
        value = check_positive(self.name, value, tuple(raw.shape)).double()
        with torch.no_grad():
            raw.copy_(self.encode(value))


class GaussianMarginals:
    """Independent Gaussians for every row and output: the distribution of f under q.

    Attributes:
        mean: shape (*batch, outputs).
        variance: shape (*batch, outputs), of the function itself; noise belongs to a likelihood.
    """

    def __init__(
        self, mean: Float[Tensor, "*batch outputs"], variance: Float[Tensor, "*batch outputs"]
    ) -> None:
        self.mean = mean
        self.variance = variance

    def __repr__(self) -> str:
        return f"GaussianMarginals(shape={tuple(self.mean.shape)}, dtype={self.mean.dtype})"

    @property
    def stddev(self) -> Float[Tensor, "*batch outputs"]:
        """Standard deviation; its gradient stays finite where the variance vanishes."""
        return deviation_of(self.variance)

    def shifted(self, shift: Float[Tensor, "*batch outputs"]) -> "GaussianMarginals":
        """The same Gaussians around means that are larger by ``shift``."""
        return GaussianMarginals(self.mean + shift, self.variance)

    def rsample(
        self, sample_shape: tuple[int, ...] = (), *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "*sample_and_batch outputs"]:
        """Draw ``sample_shape + mean.shape`` values, differentiable in mean and variance."""
        noise = torch.randn(
            (*sample_shape, *self.mean.shape),
            generator=generator,
            dtype=self.mean.dtype,
            device=self.mean.device,
        )
        return torch.addcmul(self.mean, self.stddev, noise)

    def to_gpytorch(self) -> "MultitaskMultivariateNormal":
        """The same Gaussians for GPyTorch's likelihoods and objectives (diagonal covariance).

        Rows without a batch become a batch of one row.
        """
        from gpytorch.distributions import MultitaskMultivariateNormal
        from linear_operator.operators import DiagLinearOperator

        mean, variance = torch.atleast_2d(self.mean), torch.atleast_2d(self.variance)
        return MultitaskMultivariateNormal(mean, DiagLinearOperator(variance.flatten(-2)))
