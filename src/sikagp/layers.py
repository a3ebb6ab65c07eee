"""The SIKA layer: an additive Gaussian process from features to outputs, as a torch module."""

from typing import Any

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.additive import AdditiveGP
from sikagp.basis import SparseFeatures, sparse_features
from sikagp.caching import TensorCache
from sikagp.domains import Bound, Domain
from sikagp.draws import Paths, flipout, normal_draws
from sikagp.kernels import MarkovKernel
from sikagp.ops import OwnParameters
from sikagp.plans import (
    OPEN_SHARES,
    Moments,
    NodeTable,
    Predict,
    build_predictor,
    build_table,
    dense_moments,
    has_predictor,
    locate,
    scaled_features,
    slope_moments,
    sparse_moments,
    table_moments,
    trained_moments,
)
from sikagp.precision import full_precision
from sikagp.validation import check_choice, check_count, check_finite_rows, check_input
from sikagp.variational import GaussianMarginals

PLANS = ("auto", "sparse", "table", "dense")
METHODS = ("local", "flipout", "path")


class SIKALayer(AdditiveGP):
    r"""Sparse inducing kernel approximation of an additive Gaussian process.

    .. math:: f_o(x) = b_o + \sum_d \sqrt{v_d}\, \phi(x_d) \cdot w_{do},
              \qquad q(w) = N(m, \mathrm{diag}(\sigma^2)),

    with a dyadic grid of ``2**level + 1`` nodes per feature. Calling the layer gives the exact
    Gaussian marginals of f under q; no sampling is involved.

    Args:
        in_features: number of features D.
        out_features: number of outputs O.
        level: dyadic level L of the grid.
        kernel: ``"laplace"``, ``"matern32"``, ``"matern52"``, ``"brownian"``, ``"bridge"`` or a
            :class:`MarkovKernel`.
        lengthscale: initial lengthscale in units of the raw input, one number or one per feature.
        domain: interval that the grid covers, ``(low, high)`` or a :class:`Domain`. Inputs beyond
            it relax to the prior. ``Domain.quantiles(x)`` places the nodes where the data are.
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
        super().__init__(
            in_features,
            out_features,
            level=level,
            kernel=kernel,
            lengthscale=lengthscale,
            domain=domain,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.residual = check_choice("residual", residual, OPEN_SHARES)
        self.plan = check_choice("plan", plan, PLANS)
        self.check_finite = check_finite
        self._table: TensorCache[NodeTable] = TensorCache()
        self._predictor: TensorCache[Predict] = TensorCache()

    def extra_repr(self) -> str:
        """Describe the layer's sizes and choices."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"level={self.level}, kernel={type(self.kernel).__name__}, "
            f"residual={self.residual!r}, bias={self.bias_mean is not None}, plan={self.plan!r}"
        )

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> GaussianMarginals:
        """Marginals of f at each row, shape (*batch, out_features)."""
        check_input(x, self.in_features)
        if self._predictable(x):
            mean, variance = self._predict(x)
        else:
            self._check_finite(x)
            rows = self._rows(x)
            with full_precision(rows.device):
                mean, variance = self._moments(self.domain(rows))
        if x.ndim != 2:
            shape = *x.shape[:-1], self.out_features
            mean, variance = mean.view(shape), variance.view(shape)
        return GaussianMarginals(mean, variance)

    def gradient(self, x: Float[Tensor, "*batch in_features"]) -> GaussianMarginals:
        """Marginals of df/dx_d at each row, shape (*batch, in_features, out_features).

        They are exact, as those of f are, and follow the same residual mode. The kernel must have
        differentiable draws, as the Matérn kernels do.
        """
        check_input(x, self.in_features)
        self._check_finite(x)
        rows = self._rows(x)
        with full_precision(rows.device):
            table = build_table(self.prior(), *self.weight_posterior())
            scale = self.variance.sqrt() / self.domain.width.to(rows.dtype)
            mean, variance = slope_moments(self.domain(rows), table, scale, self.residual)
        shape = *x.shape, self.out_features
        return GaussianMarginals(mean.view(shape), variance.view(shape))

    def features(self, x: Float[Tensor, "*batch in_features"]) -> SparseFeatures:
        """Active basis functions, shape (*batch, in_features, num_active).

        The index counts the weights of each feature; neither variance nor bias is included.
        """
        check_input(x, self.in_features)
        self._check_finite(x)
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
        check_input(x, self.in_features)
        draws = self._flipout(x.reshape(1, -1, x.shape[-1]), num_samples, generator)
        return draws.view(num_samples, *x.shape[:-1], self.out_features)

    def flipout_each(
        self,
        x: Float[Tensor, "samples rows in_features"],
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "samples rows out_features"]:
        """Draw weights by flipout for each sample, and evaluate them at its own rows."""
        check_input(x, self.in_features)
        return self._flipout(x, len(x), generator)

    def paths(self, num_paths: int, *, generator: torch.Generator | None = None) -> Paths:
        """Draw functions: a callable from (*batch, in_features) to (num_paths, *batch, outputs)."""
        check_count("num_paths", num_paths)
        weight = normal_draws(*self.weight_posterior(), num_paths, generator)
        bias = normal_draws(*self.bias_posterior(), num_paths, generator)
        with full_precision(weight.device):
            prior = self.scaled_prior()
            return Paths(weight, bias, self.domain, prior, check_finite=self.check_finite)

    def clear_cache(self) -> None:
        """Forget the tables that evaluation mode keeps."""
        self._table.clear()
        self._predictor.clear()

    def train(self, mode: bool = True) -> "SIKALayer":
        """Switch between training and evaluation mode."""
        self.clear_cache()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": TensorCache(), "_predictor": TensorCache()}

    def _rows(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "rows features"]:
        rows = x if x.ndim == 2 else x.reshape(-1, self.in_features)
        return rows.to(torch.promote_types(self.log_variance.dtype, torch.float32))

    def _check_finite(self, x: Float[Tensor, "*batch features"]) -> None:
        if self.check_finite and not torch.compiler.is_compiling():
            check_finite_rows(x)

    def _moments(self, unit: Float[Tensor, "rows features"]) -> Moments:
        """Mean and variance at unit coordinates, by the chosen plan."""
        plan = self.plan if self.plan != "auto" else self._cheapest_plan(unit.shape[0])
        if plan == "table" and not self._cacheable():
            return self._trained_moments(unit)
        scale = self.variance.sqrt()
        if plan == "table":
            table = self._table.get(self._cache_sources(), self._build_table)
            points = locate(unit, table.prior, self.residual)
            mean, variance = table_moments(points, scale, table)
        else:
            prior = self.prior()
            points = locate(unit, prior, self.residual)
            moments = sparse_moments if plan == "sparse" else dense_moments
            features = scaled_features(unit, prior, scale)
            mean, variance = moments(features, *self.weight_posterior())
        if self.residual != "none":
            variance = variance + points.residual @ self.variance.unsqueeze(-1)
        bias_mean, bias_scale = self.bias_posterior()
        return mean + bias_mean, variance + bias_scale.square()

    def _flipout(self, x: Tensor, num_samples: int, generator: torch.Generator | None) -> Tensor:
        self._check_finite(x)
        with full_precision(x.device):
            prior = self.scaled_prior()
            located = locate(self.domain(self._rows(x)), prior, "none")
            points = [part.unflatten(0, x.shape[:2]) for part in located[:3]]
            draws = flipout(points, *self.weight_posterior(), prior, num_samples, generator)
            return draws + normal_draws(*self.bias_posterior(), num_samples, generator).unsqueeze(1)

    def _trained_moments(self, unit: Float[Tensor, "rows features"]) -> Moments:
        bias_mean, bias_scale = self.bias_posterior()
        shape = self.num_nodes, self.kernel.state_size
        weight, raw_scale = (part.unflatten(1, shape) for part in self.weight_parameters())
        bias = torch.stack([bias_mean, bias_scale.square()])
        own = OwnParameters(weight, raw_scale, bias, self.variance)
        return trained_moments(unit, self.kernel, self.grid, self.rate(), own, self.residual)

    def _cheapest_plan(self, num_rows: int | torch.SymInt) -> str:
        """A table is worth building unless it has very many nodes for each row.

        Compiled, it is still the faster plan at 128 nodes per row (``benchmarks/cpu_levels.py``).
        An exported program is for any number of rows, which is a symbol then.
        """
        if self._cacheable() or not isinstance(num_rows, int):
            return "table"
        return "table" if 128 * num_rows >= self.num_nodes else "sparse"

    def _cacheable(self) -> bool:
        needs_grad = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        return not (self.training or needs_grad or torch.compiler.is_compiling())

    def _cache_sources(self) -> list[Tensor]:
        bounds = self.domain._buffers
        places = (bounds.get(name) for name in ("low", "high", "positions"))
        sources = (*self._parameters.values(), *places)
        return [source for source in sources if source is not None]

    def _build_table(self) -> NodeTable:
        return build_table(self.prior(), *self.weight_posterior())

    def _predictable(self, x: Float[Tensor, "*batch features"]) -> bool:
        """Whether nothing asks for a gradient and compiled prediction exists."""
        return (
            self.plan in ("auto", "table")
            and self._cacheable()
            and not (x.requires_grad and torch.is_grad_enabled())
            and has_predictor(self.kernel, self.log_variance)
        )

    def _predict(self, x: Float[Tensor, "*batch features"]) -> Moments:
        predictor = self._predictor.get(self._cache_sources(), self._build_predictor)
        mean, variance, finite = predictor(self._rows(x))
        if not finite:
            self._check_finite(x)
        return mean, variance

    def _build_predictor(self) -> Predict:
        mean, scale = self.bias_posterior()
        domain = torch.stack([self.domain.low, self.domain.width]).to(mean.dtype)
        domain, bias = domain.view(2, -1).expand(2, self.in_features), torch.stack([mean, scale**2])
        return build_predictor(self._build_table(), domain, self.variance, bias, self.residual)
