"""Predictions of several members as one distribution: an equally weighted mixture of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import special, stats
from torch.distributions import MixtureSameFamily

from sikagp._typing import Float
from sikagp.mixtures import GaussianMixture, invert_cdf


class Pooled:
    """Mean, deviation, density and quantiles of a mixture of predictions.

    Args:
        members: Gaussian mixtures, or mixtures of Student's t.
    """

    def __init__(self, members: Sequence[GaussianMixture | MixtureSameFamily]) -> None:
        parts = [_components(member) for member in members]
        self.weight = np.concatenate([weight for weight, *_ in parts], axis=-1) / len(parts)
        self.center = np.concatenate([center for _, center, *_ in parts], axis=-1)
        self.spread = np.concatenate([spread for *_, spread, _ in parts], axis=-1)
        degrees = [part[-1] for part in parts if part[-1] is not None]
        self.degrees = np.concatenate(degrees, axis=-1) if degrees else None

    @property
    def mean(self) -> Float[np.ndarray, "rows targets"]:
        """Mean over all components."""
        return (self.weight * self.center).sum(-1)

    @property
    def stddev(self) -> Float[np.ndarray, "rows targets"]:
        """Deviation within components and between them."""
        inflation = 1.0 if self.degrees is None else self.degrees / (self.degrees - 2)
        second = self.spread**2 * inflation + (self.center - self.mean[..., None]) ** 2
        return np.sqrt((self.weight * second).sum(-1))

    def log_prob(self, y: Float[np.ndarray, "rows targets"]) -> Float[np.ndarray, "rows targets"]:
        """Logarithm of the density at y, target by target."""
        density = stats.norm() if self.degrees is None else stats.t(self.degrees)
        z = (y[..., None] - self.center) / self.spread
        terms = density.logpdf(z) - np.log(self.spread) + np.log(self.weight)
        return special.logsumexp(terms, axis=-1)

    def cdf(self, y: Float[np.ndarray, "rows targets"]) -> Float[np.ndarray, "rows targets"]:
        """Probability of a value below y."""
        z = (y[..., None] - self.center) / self.spread
        below = special.ndtr(z) if self.degrees is None else special.stdtr(self.degrees, z)
        return (self.weight * below).sum(-1)

    def quantile(self, probability: float) -> Float[np.ndarray, "rows targets"]:
        """Value that is exceeded with one minus the given probability."""
        # Cantelli's inequality brackets it: a tail of p lies within sqrt(1 / p) deviations.
        reach = self.stddev / np.sqrt(min(probability, 1 - probability))
        bounds = (torch.from_numpy(self.mean + side) for side in (-reach, reach))
        found = invert_cdf(lambda y: torch.from_numpy(self.cdf(y.numpy())), probability, *bounds)
        return found.numpy()


def _components(member: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Weights, centers and spreads, shape (rows, targets, components), and degrees of freedom."""
    if isinstance(member, GaussianMixture):
        center = member.components.mean.movedim(0, -1).numpy()
        spread = member.components.stddev.movedim(0, -1).numpy()
        return np.full(center.shape, 1 / center.shape[-1]), center, spread, None
    conditional = member.component_distribution
    shape = conditional.loc.shape
    spread, degrees = (part.expand(shape).numpy() for part in (conditional.scale, conditional.df))
    weight = member.mixture_distribution.probs.numpy()
    return weight, conditional.loc.numpy(), spread, degrees
