r"""Dense additive kernels: all basis functions of every feature, through a Cholesky factor.

.. math:: \phi(x) = K(x, U) P^{-\top}, \qquad K(U, U) = P P^\top

so that :math:`\phi(x) \phi(y)^\top = K(x, U) K(U, U)^{-1} K(U, y)`, for any kernel. With Gaussian
weights this is the deep additive kernel (DAK) that SIKA-GP makes sparse.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.domains import Domain
from sikagp.experiments.methods.bayesian import MeanFieldLinear
from sikagp.mixtures import GaussianMixture, mixture_of_draws
from sikagp.validation import check_choice, check_count, check_level
from sikagp.variational import GaussianMarginals, PositiveParameter

_SQRT3, _SQRT5 = math.sqrt(3), math.sqrt(5)

# Correlation as a function of the distance in lengthscales.
CORRELATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "laplace": lambda r: torch.exp(-r),
    "matern32": lambda r: (1 + _SQRT3 * r) * torch.exp(-_SQRT3 * r),
    "matern52": lambda r: (1 + _SQRT5 * r + 5 / 3 * r.square()) * torch.exp(-_SQRT5 * r),
    "rbf": lambda r: torch.exp(-0.5 * r.square()),
}
# Smooth kernels leave almost nothing to learn at the last nodes, and their factor needs help.
JITTER = {"laplace": 0.0, "matern32": 1e-8, "matern52": 1e-6, "rbf": 1e-6}


class DenseLayer(MeanFieldLinear):
    """Additive Gaussian process with a dense basis of ``2**level + 1`` functions per feature.

    Args:
        in_features: number of features.
        out_features: number of outputs.
        level: dyadic level of the grid of inducing points.
        kernel: ``"laplace"``, ``"matern32"``, ``"matern52"`` or ``"rbf"``.
        lengthscale: initial lengthscale in units of the input.
        learn_lengthscale: whether to learn one lengthscale per feature; otherwise all share the
            given one, and the factor is computed once.
        domain: interval that the inducing points cover.

    Shape:
        Input (*batch, in_features), marginals (*batch, out_features).
    """

    lengthscale = PositiveParameter("log_lengthscale", torch.exp, torch.log)
    variance = PositiveParameter("log_variance", torch.exp, torch.log)
    whitening: Tensor
    log_lengthscale: Tensor
    nodes: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        domain: Domain,
        level: int = 7,
        kernel: str = "laplace",
        lengthscale: float = 1.0,
        learn_lengthscale: bool = True,
    ) -> None:
        num_nodes = 2 ** check_level(level) + 1
        super().__init__(in_features * num_nodes, out_features, spread=0.1)
        self.in_features = in_features
        self.kernel = check_choice("kernel", kernel, CORRELATIONS)
        self.domain = domain
        self.log_variance = nn.Parameter(torch.full((in_features,), -math.log(in_features)))
        self.register_buffer("nodes", torch.linspace(0, 1, num_nodes))
        logarithm = torch.full((in_features,), math.log(lengthscale))
        if learn_lengthscale:
            self.log_lengthscale = nn.Parameter(logarithm)
        else:
            self.register_buffer("log_lengthscale", logarithm)
            self.register_buffer("whitening", self._whitening(), persistent=False)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> GaussianMarginals:
        """Marginals of f at each row."""
        return self.marginals(self.features(x).flatten(-2))

    def features(
        self, x: Float[Tensor, "*batch in_features"]
    ) -> Float[Tensor, "*batch in_features nodes"]:
        """All basis functions, times the prior deviation of their feature."""
        cross = self._correlation(self.domain(x).unsqueeze(-1), self.nodes)
        whitening = self._whitening() if self.log_lengthscale.requires_grad else self.whitening
        phi = torch.einsum("...dm,dmn->...dn", cross, whitening)
        return phi * self.variance.sqrt().unsqueeze(-1)

    def _correlation(
        self, x: Float[Tensor, "*batch in_features 1"], y: Float[Tensor, " nodes"]
    ) -> Float[Tensor, "*batch in_features nodes"]:
        """Correlation of unit coordinates; features are the last dimension but one."""
        rate = (self.domain.width / self.lengthscale).unsqueeze(-1)
        return CORRELATIONS[self.kernel]((x - y).abs() * rate)

    def _whitening(self) -> Float[Tensor, "in_features nodes nodes"]:
        """``P^-T`` of every feature, computed in double precision."""
        nodes = self.nodes.double()
        rate = (self.domain.width / self.lengthscale).double().view(-1, 1, 1)
        gram = CORRELATIONS[self.kernel]((nodes[:, None] - nodes).abs() * rate)
        identity = torch.eye(len(nodes), dtype=gram.dtype, device=gram.device)
        factor = torch.linalg.cholesky(gram + JITTER[self.kernel] * identity)
        inverse = torch.linalg.solve_triangular(factor, identity.expand_as(gram), upper=False)
        return inverse.mT.to(self.weight_mean.dtype)


class DrawnDenseLayer(DenseLayer):
    """A dense layer as DAK was published: weights are drawn in training, not marginals.

    Evaluation mode has the exact marginals, as every model here.

    Args:
        num_draws: sets of weights that a training step draws.
        options: of the :class:`DenseLayer`.
    """

    def __init__(
        self, in_features: int, out_features: int, *, num_draws: int, **options: Any
    ) -> None:
        super().__init__(in_features, out_features, **options)
        self.num_draws = check_count("num_draws", num_draws)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "*batch in_features"]
    ) -> GaussianMarginals | GaussianMixture:
        """Mixture of draws in training, marginals in evaluation."""
        if not self.training:
            return super().forward(x)
        return mixture_of_draws(self.drawn(self.features(x).flatten(-2), self.num_draws))
