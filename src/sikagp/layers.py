"""The SIKA layer: an additive Gaussian process from features to outputs, as a torch module."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.basis import SparseFeatures, active_sum, sparse_features
from sikagp.caching import TensorCache
from sikagp.domains import Bound, Domain, as_domain
from sikagp.draws import Paths, flipout, standard_normal
from sikagp.grid import DyadicGrid
from sikagp.kernels import MarkovKernel, get_kernel
from sikagp.plans import (
    Moments,
    NodeTable,
    build_table,
    dense_moments,
    open_variance,
    scaled_features,
    sparse_moments,
    table_moments,
)
from sikagp.precision import at_least_float32, full_precision
from sikagp.table import two_point
from sikagp.tree import GridPrior, grid_prior
from sikagp.validation import check_choice, check_count, check_input, check_level
from sikagp.variational import (
    GaussianMarginals,
    PositiveParameter,
    inverse_softplus,
    softplus,
    standard_normal_kl,
)

PLANS = ("auto", "sparse", "table", "dense")
RESIDUALS = ("full", "outside", "none")
METHODS = ("local", "flipout", "path")
INITIAL_SCALE = 0.05


class SIKALayer(nn.Module):
    r"""Sparse inducing kernel approximation of an additive Gaussian process.

    .. math:: f_o(x) = b_o + \sum_d \sqrt{v_d}\, \phi(x_d) \cdot w_{do},
              \qquad q(w) = N(m, \mathrm{diag}(\sigma^2)),

    with a dyadic grid of ``2**level + 1`` nodes per feature. Calling the layer gives the exact
    Gaussian marginals of f under q; no sampling is involved.

    Args:
        in_features: number of features D.
        out_features: number of outputs O.
        level: dyadic level L of the grid.
        kernel: ``"laplace"``, ``"brownian"``, ``"bridge"`` or a :class:`MarkovKernel`.
        lengthscale: initial lengthscale in units of the raw input, one number or one per feature.
        domain: interval that the grid covers, ``(low, high)`` or a :class:`Domain`. Inputs beyond
            it relax to the prior.
        residual: where to add the prior variance that the grid cannot express: ``"full"`` makes
            the layer an exact sparse variational GP, ``"outside"`` adds it beyond the grid only,
            ``"none"`` is the Bayesian network of the paper.
        bias: whether to learn a Gaussian bias per output.
        plan: how to evaluate; all plans give the same numbers.
        check_finite: whether NaN and infinity in the input raise an error.

    Shape:
        Input (*batch, in_features), output marginals (*batch, out_features).

    >>> layer = SIKALayer(3, 2, domain=(-2.0, 2.0))
    >>> layer(torch.randn(5, 3)).mean.shape
    torch.Size([5, 2])
    """

    weight_mean: nn.Parameter
    weight_scale = PositiveParameter("raw_weight_scale", softplus, inverse_softplus)
    bias_mean: nn.Parameter | None
    bias_scale = PositiveParameter("raw_bias_scale", softplus, inverse_softplus)
    lengthscale = PositiveParameter("log_lengthscale", torch.exp, torch.log)
    variance = PositiveParameter("log_variance", torch.exp, torch.log)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        level: int = 7,
        kernel: str | MarkovKernel = "laplace",
        lengthscale: float | Tensor = 1.0,
        domain: Domain | tuple[Bound, Bound] = (0.0, 1.0),
        residual: str = "full",
        bias: bool = True,
        plan: str = "auto",
        check_finite: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.out_features = check_count("out_features", out_features)
        self.level = check_level(level)
        self.kernel = get_kernel(kernel)
        self.residual = check_choice("residual", residual, RESIDUALS)
        self.plan = check_choice("plan", plan, PLANS)
        self.check_finite = check_finite
        self.grid = DyadicGrid(level)
        self._table: TensorCache[NodeTable] = TensorCache()

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        shape = in_features, self.kernel.state_size * self.num_nodes, out_features
        self.weight_mean, self.raw_weight_scale = empty(*shape), empty(*shape)
        self.log_variance = empty(in_features)
        self.log_lengthscale = empty(in_features) if self.kernel.stationary else None
        self.bias_mean = empty(out_features) if bias else None
        self.raw_bias_scale = empty(out_features) if bias else None
        self.domain = as_domain(domain, in_features).to(device=device, dtype=self.weight_mean.dtype)
        self.reset_parameters()
        if self.kernel.stationary:
            self.lengthscale = lengthscale
        elif lengthscale != 1.0:
            raise ValueError(f"{type(self.kernel).__name__} has no lengthscale, got {lengthscale}")

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
    def num_nodes(self) -> int:
        """Number of grid nodes M per feature."""
        return self.grid.num_nodes

    @property
    def num_active(self) -> int:
        """Number of basis functions that one input activates, ``s (L + 2)``."""
        return self.kernel.state_size * (self.level + 2)

    def extra_repr(self) -> str:
        """Describe the layer's sizes and choices."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"level={self.level}, kernel={type(self.kernel).__name__}, "
            f"residual={self.residual!r}, bias={self.bias_mean is not None}, plan={self.plan!r}"
        )

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> GaussianMarginals:
        """Marginals of f at each row, shape (*batch, out_features)."""
        check_input(x, self.in_features, finite=self.check_finite)
        rows = self._rows(x)
        with full_precision(rows.device):
            mean, variance = self._moments(self.domain(rows))
            if self.bias_mean is not None:
                mean = mean + self.bias_mean
                variance = variance + self.bias_scale.square()
        shape = *x.shape[:-1], self.out_features
        return GaussianMarginals(mean.view(shape), variance.view(shape))

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), summed over weights and bias."""
        total = standard_normal_kl(at_least_float32(self.weight_mean), self.weight_scale)
        if self.bias_mean is not None:
            total = total + standard_normal_kl(at_least_float32(self.bias_mean), self.bias_scale)
        return total

    def features(self, x: Float[Tensor, "*batch in_features"]) -> SparseFeatures:
        """Active basis functions, shape (*batch, in_features, num_active).

        The index counts the weights of each feature; neither variance nor bias is included.
        """
        check_input(x, self.in_features, finite=self.check_finite)
        with full_precision(x.device):
            values, index = sparse_features(self.domain(self._rows(x)), self.prior())
        shape = *x.shape, self.num_active
        return SparseFeatures(values.view(shape), index.view(shape))

    def sample(
        self,
        x: Float[Tensor, "*batch in_features"],
        num_samples: int,
        *,
        method: str = "local",
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "num_samples *batch out_features"]:
        """Draw values of f, reparameterised.

        ``"local"`` draws from the marginals, independently for every row. ``"flipout"`` and
        ``"path"`` draw weights and so carry no residual; paths share them between all rows.
        """
        check_choice("method", method, METHODS)
        check_count("num_samples", num_samples)
        if method == "local":
            return self(x).rsample((num_samples,), generator=generator)
        if method == "path":
            return self.paths(num_samples, generator=generator)(x)
        check_input(x, self.in_features, finite=self.check_finite)
        with full_precision(x.device):
            unit, scale = self.domain(self._rows(x)), self.variance.sqrt()
            active = scaled_features(unit, self.prior(), scale)
            draws = active_sum(active, at_least_float32(self.weight_mean))
            draws = draws + flipout(active, self.weight_scale, num_samples, generator)
            draws = draws + self._draw_bias(num_samples, generator).unsqueeze(1)
        return draws.view(num_samples, *x.shape[:-1], self.out_features)

    def paths(self, num_paths: int, *, generator: torch.Generator | None = None) -> Paths:
        """Draw functions: a callable from (*batch, in_features) to (num_paths, *batch, outputs)."""
        check_count("num_paths", num_paths)
        mean, scale = at_least_float32(self.weight_mean), self.weight_scale
        noise = standard_normal((num_paths, *mean.shape), mean, generator)
        weight = torch.addcmul(mean, scale, noise)
        bias = self._draw_bias(num_paths, generator)
        return Paths(weight, bias, self.domain, self.prior(), self.variance.sqrt())

    def prior(self) -> GridPrior:
        """Kernel, grid and bridge tree at the current lengthscale and domain."""
        rate = at_least_float32(self.domain.width)
        if self.lengthscale is not None:
            rate = rate / self.lengthscale
        return grid_prior(self.kernel, self.grid, rate.expand(self.in_features))

    def clear_cache(self) -> None:
        """Forget the node table that evaluation mode keeps."""
        self._table.clear()

    def train(self, mode: bool = True) -> "SIKALayer":
        """Switch between training and evaluation mode."""
        self.clear_cache()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": TensorCache()}

    def _rows(self, x: Tensor) -> Tensor:
        return at_least_float32(x.reshape(-1, self.in_features).to(self.weight_mean.dtype))

    def _draw_bias(self, count: int, generator: torch.Generator | None) -> Tensor:
        if self.bias_mean is None:
            return self.variance.new_zeros(count, self.out_features)
        mean = at_least_float32(self.bias_mean)
        noise = standard_normal((count, self.out_features), mean, generator)
        return torch.addcmul(mean, self.bias_scale, noise)

    def _moments(self, unit: Tensor) -> Moments:
        """Mean and variance of the additive part at unit coordinates, by the chosen plan."""
        plan = self.plan if self.plan != "auto" else self._cheapest_plan(len(unit))
        scale = self.variance.sqrt()
        table = self._node_table() if plan == "table" else None
        prior = self.prior() if table is None else table.prior
        cell, weights = two_point(unit, prior)
        if table is not None:
            mean, variance = table_moments(cell, weights, scale, table)
        else:
            moments = sparse_moments if plan == "sparse" else dense_moments
            active = scaled_features(unit, prior, scale)
            mean, variance = moments(active, *self._weights())
        if self.residual != "none":
            variance = variance + open_variance(weights, scale, self.residual)
        return mean, variance

    def _weights(self) -> tuple[Tensor, Tensor]:
        return at_least_float32(self.weight_mean), self.weight_scale

    def _cheapest_plan(self, num_rows: int) -> str:
        """A table costs as much as evaluating a fraction of its nodes' number of rows."""
        return "table" if self._cacheable() or 4 * num_rows >= self.num_nodes else "sparse"

    def _cacheable(self) -> bool:
        needs_grad = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        return not (self.training or needs_grad or torch.compiler.is_compiling())

    def _node_table(self) -> NodeTable:
        if not self._cacheable():
            return self._build_table()
        sources = [*self.parameters(recurse=False), self.domain.low, self.domain.high]
        return self._table.get(sources, self._build_table)

    def _build_table(self) -> NodeTable:
        return build_table(self.prior(), *self._weights())
