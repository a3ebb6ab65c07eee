"""GPyTorch: SIKA models where GPyTorch expects one of its own.

GPyTorch's objectives call a model for its latent distribution and ask
``model.variational_strategy`` for the KL divergence:

    gp = as_gp(model)
    mll = gpytorch.mlls.VariationalELBO(likelihood, gp, num_data)
    loss = -mll(gp(x), y).mean()          # the mean is over samples of a deep model
"""

from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.models import GP
from linear_operator.operators import DiagLinearOperator
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.mixtures import GaussianMixture
from sikagp.variational import GaussianMarginals


class GPAdapter(GP):
    """A SIKA model as a GPyTorch model; parameters are shared, not copied."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    @property
    def variational_strategy(self) -> "GPAdapter":
        """The object that knows the KL divergence."""
        return self

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior), once, whatever the number of samples."""
        return self.module.kl_divergence()  # type: ignore[operator]

    def forward(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """Latent distribution; samples of a deep model are its batch dimension."""
        return to_gpytorch(self.module(*args, **kwargs))


def as_gp(module: nn.Module) -> GP:
    """Wrap a SIKA model for GPyTorch; GPyTorch's own models pass through."""
    return module if isinstance(module, GP) else GPAdapter(module)


def to_gpytorch(output: GaussianMarginals | GaussianMixture) -> MultivariateNormal:
    """Independent Gaussians over rows, or over rows and tasks if there are several outputs.

    Shape:
        Event (rows,) or (rows, outputs); a mixture's components become the batch dimension.
    """
    marginals = output.components if isinstance(output, GaussianMixture) else output
    if marginals.mean.shape[-1] > 1:
        return marginals.to_gpytorch()
    covariance = DiagLinearOperator(marginals.variance.squeeze(-1))
    return MultivariateNormal(marginals.mean.squeeze(-1), covariance)


def outputs_as_batch(marginals: GaussianMarginals) -> MultivariateNormal:
    """Independent Gaussians over rows, one batch entry per output: (*samples, outputs, rows)."""
    return MultivariateNormal(marginals.mean.mT, DiagLinearOperator(marginals.variance.mT))
