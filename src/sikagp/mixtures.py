"""Mixtures of Gaussians: what a deep model predicts, one component for each sample.

With S equally weighted components of mean m_s and variance v_s, element by element,

    mean     = average of m_s
    variance = average of v_s + average of (m_s - mean)^2
    density  = average of N(y; m_s, v_s)          (outputs of one component are independent)
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.validation import check_fraction
from sikagp.variational import GaussianMarginals, deviation_of

_BISECTIONS = 64
_BINS = 16


class GaussianMixture:
    """Equally weighted Gaussians for every row and output.

    Attributes:
        components: marginals of shape (samples, *batch, outputs).
    """

    def __init__(self, components: GaussianMarginals) -> None:
        if components.mean.ndim < 2:
            raise ValueError(
                "components must have shape (samples, *batch, outputs), "
                f"got {tuple(components.mean.shape)}"
            )
        self.components = components

    def __repr__(self) -> str:
        samples, *shape = self.components.mean.shape
        return f"GaussianMixture(samples={samples}, shape={tuple(shape)})"

    def __len__(self) -> int:
        return len(self.components.mean)

    @property
    def mean(self) -> Float[Tensor, "*batch outputs"]:
        """Mean over all components."""
        return self.components.mean.mean(0)

    @property
    def variance(self) -> Float[Tensor, "*batch outputs"]:
        """Variance within components plus variance between their means."""
        return self.components.variance.mean(0) + self.components.mean.var(0, correction=0)

    @property
    def stddev(self) -> Float[Tensor, "*batch outputs"]:
        """Standard deviation of the mixture."""
        return deviation_of(self.variance)

    def log_prob(self, y: Float[Tensor, "*batch outputs"]) -> Float[Tensor, "*batch"]:
        """Log density of each row, jointly over its outputs."""
        log_density = self._normal().log_prob(y).sum(-1)
        return log_density.logsumexp(0) - math.log(len(self))

    def cdf(self, y: Float[Tensor, "*#batch outputs"]) -> Float[Tensor, "*batch outputs"]:
        """Probability of a value below y, for every output by itself."""
        return self._normal().cdf(y).mean(0)

    @torch.no_grad()
    def quantile(self, probability: float) -> Float[Tensor, "*batch outputs"]:
        """Value that is exceeded with one minus the given probability; not differentiable."""
        check_fraction("probability", probability)
        target = torch.as_tensor(probability, dtype=self.mean.dtype, device=self.mean.device)
        # The mixture's quantile lies between the smallest and the largest of its components'.
        each = self._normal().icdf(target)
        return invert_cdf(self.cdf, probability, each.amin(0), each.amax(0))

    def rsample(
        self, sample_shape: tuple[int, ...] = (), *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "*sample_and_batch outputs"]:
        """Draw values, differentiable in the component that each row picks at random.

        Outputs of a row come from the same component; the choice itself carries no gradient.
        """
        mean, stddev = self.components.mean, self.components.stddev
        shape = (*sample_shape, *mean.shape[1:-1])
        pick = torch.randint(len(self), shape, generator=generator, device=mean.device)
        pick = pick.flatten(0, len(sample_shape) - 1) if sample_shape else pick.unsqueeze(0)
        index = pick.unsqueeze(-1).expand(*pick.shape, mean.shape[-1])
        chosen = GaussianMarginals(mean.gather(0, index), stddev.gather(0, index).square())
        return chosen.rsample(generator=generator).reshape(*shape, mean.shape[-1])

    def _normal(self) -> torch.distributions.Normal:
        return torch.distributions.Normal(
            self.components.mean, self.components.stddev, validate_args=False
        )


def invert_cdf(
    cdf: Callable[[Float[Tensor, "*shape"]], Float[Tensor, "*shape"]],
    probability: float,
    low: Float[Tensor, "*shape"],
    high: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    """Find by bisection, between bounds, where a distribution function reaches a probability."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = cdf(middle) < probability
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def mixture_of_draws(draws: Float[Tensor, "samples *batch outputs"]) -> GaussianMixture:
    """Components without variance, one for each draw of all outputs."""
    return GaussianMixture(GaussianMarginals(draws, torch.zeros_like(draws)))


def as_mixture(output: GaussianMarginals | GaussianMixture) -> GaussianMixture:
    """See marginals as a mixture of one component; a mixture passes through.

    Shape:
        Marginals (*batch, outputs), components (1, *batch, outputs).
    """
    if isinstance(output, GaussianMixture):
        return output
    if not isinstance(output, GaussianMarginals):
        raise TypeError(
            f"expected GaussianMarginals or a GaussianMixture, got {type(output).__name__}"
        )
    return GaussianMixture(
        GaussianMarginals(output.mean.unsqueeze(0), output.variance.unsqueeze(0))
    )


def concatenate(mixtures: Sequence[GaussianMixture], dim: int) -> GaussianMixture:
    """Put mixtures together along a dimension of their components, shape (samples, rows, outputs).

    0 adds components, 1 rows.
    """
    parts = [mixture.components for mixture in mixtures]
    mean, variance = (
        torch.cat([getattr(part, name) for part in parts], dim) for name in ("mean", "variance")
    )
    return GaussianMixture(GaussianMarginals(mean, variance))


def antithetic_noise(num_samples: int, width: int, *, seed: int) -> Float[Tensor, "samples width"]:
    """Repeatable standard normals in pairs of opposite sign, so that their mean is zero."""
    half = torch.randn((num_samples + 1) // 2, width, generator=torch.Generator().manual_seed(seed))
    return torch.cat([half, -half])[:num_samples]


def binned_exp(g: GaussianMarginals) -> Float[Tensor, "bins *batch outputs"]:
    """``E[exp g | bin]`` in bins of equal probability, so that the mean over bins is exact."""
    edge = torch.linspace(0, 1, _BINS + 1, dtype=g.mean.dtype, device=g.mean.device)
    edge = torch.special.ndtri(edge).view(-1, *[1] * g.mean.ndim)
    # E[exp g; g below an edge] = exp(mean + variance / 2) Phi(edge - stddev)
    below = torch.special.ndtr(edge - g.stddev)
    return _BINS * below.diff(dim=0) * torch.exp(g.mean + 0.5 * g.variance)
