"""The additive Gaussian process behind a layer: its variational parameters and its prior."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp import ops
from sikagp._typing import Float
from sikagp.domains import Bound, Domain, NodeDomain, as_domain
from sikagp.grid import DyadicGrid
from sikagp.kernels import MarkovKernel, get_kernel
from sikagp.plans import grow_prior, scaled_prior
from sikagp.precision import at_least_float32
from sikagp.tree import GridPrior
from sikagp.validation import check_count, check_level
from sikagp.variational import PositiveParameter, inverse_softplus

INITIAL_SCALE = 0.05

Weights = Float[Tensor, "features weights outputs"]


class AdditiveGP(nn.Module):
    """Mean-field Gaussian weights per feature and output, and the kernel they are whitened with.

    Weights have shape (in_features, s * num_nodes, out_features), lengthscale and variance
    (in_features,), the bias (out_features,). Positive quantities are stored unconstrained and read
    and set like attributes: ``raw_*`` holds the inverse softplus, ``log_*`` the logarithm.
    """

    weight_mean: nn.Parameter
    weight_scale = PositiveParameter("raw_weight_scale", F.softplus, inverse_softplus)
    bias_mean: nn.Parameter | None
    bias_scale = PositiveParameter("raw_bias_scale", F.softplus, inverse_softplus)
    lengthscale = PositiveParameter("log_lengthscale", torch.exp, torch.log)
    variance = PositiveParameter("log_variance", torch.exp, torch.log)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        level: int,
        kernel: str | MarkovKernel,
        lengthscale: float | Tensor,
        domain: Domain | tuple[Bound, Bound],
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.out_features = check_count("out_features", out_features)
        self.level = check_level(level)
        self.kernel = get_kernel(kernel)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        shape = in_features, self.kernel.state_size * self.num_nodes, out_features
        self.weight_mean, self.raw_weight_scale = empty(*shape), empty(*shape)
        self.log_variance = empty(in_features)
        self.log_lengthscale = empty(in_features) if self.kernel.stationary else None
        self.bias_mean = empty(out_features) if bias else None
        self.raw_bias_scale = empty(out_features) if bias else None
        self.domain = as_domain(domain, in_features).to(device=device, dtype=self.weight_mean.dtype)
        if isinstance(self.domain, NodeDomain):
            self.domain.check()
        self.reset_parameters()
        if self.kernel.stationary:
            self.lengthscale = lengthscale
        elif isinstance(lengthscale, Tensor) or lengthscale != 1.0:
            raise ValueError(f"{type(self.kernel).__name__} has no lengthscale, got {lengthscale}")

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module would register a Parameter under the name of the property.
        if isinstance(getattr(type(self), name, None), PositiveParameter):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def reset_parameters(self) -> None:
        """Start with small random means, confident weights and unit prior variance in total."""
        nn.init.normal_(self.weight_mean, std=0.1)
        nn.init.constant_(self.log_variance, -math.log(self.in_features))
        self.weight_scale = INITIAL_SCALE
        if self.log_lengthscale is not None:
            nn.init.zeros_(self.log_lengthscale)
        if self.bias_mean is not None:
            nn.init.zeros_(self.bias_mean)
            self.bias_scale = INITIAL_SCALE

    @property
    def grid(self) -> DyadicGrid:
        """Nodes in unit coordinates."""
        return self.domain.grid(self.level)

    @property
    def num_nodes(self) -> int:
        """Number of grid nodes M per feature."""
        return 2**self.level + 1

    @property
    def num_active(self) -> int:
        """Number of basis functions that one input activates, ``s (L + 2)``."""
        return self.kernel.state_size * (self.level + 2)

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), summed over weights and bias."""
        total = ops.divergence(*self.weight_parameters())
        if self.bias_mean is not None and self.raw_bias_scale is not None:
            bias = at_least_float32(self.bias_mean), at_least_float32(self.raw_bias_scale)
            total = total + ops.divergence(*bias)
        return total

    def rate(self) -> Float[Tensor, " features"]:
        """Width of the domain over the lengthscale."""
        width = self.domain.width
        if self.log_lengthscale is not None:
            width = width / self.lengthscale
        return width.expand(self.in_features)

    def prior(self) -> GridPrior:
        """Kernel, grid and bridge tree at the current lengthscale and domain."""
        return grow_prior(self.kernel, self.grid, self.rate())

    def scaled_prior(self) -> GridPrior:
        """The prior with the features' variances in its tree."""
        return scaled_prior(self.kernel, self.grid, self.rate(), self.variance.sqrt())

    @torch.no_grad()
    def refine(self, level: int) -> None:
        """Move to a finer grid without changing the mean function or the KL divergence.

        The weights of the new levels start at their prior. ``weight_mean`` and
        ``raw_weight_scale`` become new parameters, which an optimiser must be given; see
        :func:`sikagp.training.refine` for one that keeps its state.
        """
        if check_level(level) < self.level:
            raise ValueError(f"level can only grow: it is {self.level}, got {level}")
        num_weights = self.kernel.state_size * (2**level + 1)
        shape = self.in_features, num_weights, self.out_features
        mean, scale = self.weight_mean.new_zeros(shape), self.weight_mean.new_ones(shape)
        scale = inverse_softplus(scale)
        coarse = self.weight_mean.shape[1]  # dyadic order: coarse levels come first
        mean[:, :coarse], scale[:, :coarse] = self.weight_mean, self.raw_weight_scale
        self.weight_mean = nn.Parameter(mean, self.weight_mean.requires_grad)
        self.raw_weight_scale = nn.Parameter(scale, self.raw_weight_scale.requires_grad)
        self.level = level

    def weight_posterior(self) -> tuple[Weights, Weights]:
        """Mean and deviation of q(w)."""
        return at_least_float32(self.weight_mean), self.weight_scale

    def weight_parameters(self) -> tuple[Weights, Weights]:
        """Mean of q(w) and its deviation before softplus."""
        return at_least_float32(self.weight_mean), at_least_float32(self.raw_weight_scale)

    def bias_posterior(self) -> tuple[Float[Tensor, " outputs"], Float[Tensor, " outputs"]]:
        """Mean and deviation of q(b), zero without a bias."""
        if self.bias_mean is None:
            nothing = self.variance.new_zeros(self.out_features)
            return nothing, nothing
        return at_least_float32(self.bias_mean), self.bias_scale
