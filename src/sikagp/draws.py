"""Draws of functions: weights are sampled, so one draw can be evaluated anywhere, coherently."""

import copy

import torch
from torch import Tensor

from sikagp import ops
from sikagp._typing import Float
from sikagp.basis import SparseFeatures, active_sum
from sikagp.domains import Domain
from sikagp.precision import full_precision
from sikagp.table import two_point
from sikagp.tree import GridPrior
from sikagp.validation import check_finite_rows, check_input


def normal_draws(
    mean: Float[Tensor, "*shape"],
    deviation: Float[Tensor, "*shape"],
    count: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "count *shape"]:
    """Draw independent Gaussians, differentiable in mean and deviation."""
    shape = count, *mean.shape
    noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return torch.addcmul(mean, deviation, noise)


def flipout(
    features: SparseFeatures,
    scale: Float[Tensor, "features weights outputs"],
    num_samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "samples rows outputs"]:
    """Zero-mean part of the paper's flipout estimator, ``(phi * R) (sigma * epsilon)``.

    One weight perturbation per sample is shared by the batch and decorrelated between rows by
    random signs, one for each row and basis function.
    """
    perturbation = normal_draws(torch.zeros_like(scale), scale, num_samples, generator)
    values, index = features
    sign = torch.randint(
        0, 2, (num_samples, *values.shape), generator=generator, device=values.device
    )
    return active_sum(SparseFeatures(values * (2 * sign - 1), index), perturbation)


class Paths:
    """Functions drawn from a layer; calling them twice at the same points gives the same values.

    They carry no residual: between nodes they interpolate the drawn states. Later changes of the
    layer do not reach them.
    """

    def __init__(
        self,
        weight: Float[Tensor, "paths features weights outputs"],
        bias: Float[Tensor, "paths outputs"],
        domain: Domain,
        prior: GridPrior,
        scale: Float[Tensor, " features"],
        *,
        check_finite: bool = True,
    ) -> None:
        self.bias, self.prior, self.scale = bias, prior, scale
        self.check_finite = check_finite
        self.domain = copy.deepcopy(domain).eval()
        nodes, s = prior.grid.num_nodes, prior.kernel.state_size
        # The recursion is linear, so paths ride along as further outputs.
        stacked = weight.unflatten(2, (nodes, s)).movedim(0, -2)
        states = ops.node_states(stacked.flatten(-2), prior.tree)
        self.states = states.unflatten(-1, stacked.shape[-2:]).movedim(-2, 0).flatten(2, 3)

    def __len__(self) -> int:
        return len(self.states)

    def __call__(
        self, x: Float[Tensor, "*batch features"]
    ) -> Float[Tensor, "paths *batch outputs"]:
        """Evaluate every path at the same points."""
        check_input(x, len(self.scale))
        values = self._evaluate(x.reshape(-1, x.shape[-1]))
        return values.unflatten(1, x.shape[:-1]) if x.ndim > 1 else values.squeeze(1)

    def each(
        self, x: Float[Tensor, "paths *batch features"]
    ) -> Float[Tensor, "paths *batch outputs"]:
        """Evaluate path i at the points ``x[i]``, as composing paths through layers needs."""
        check_input(x, len(self.scale))
        if x.ndim < 2 or len(x) != len(self):
            raise ValueError(
                f"expected points of shape ({len(self)}, *batch, {len(self.scale)}), "
                f"one set per path; got shape {tuple(x.shape)}"
            )
        values = self._evaluate(x.reshape(len(x), -1, x.shape[-1]))
        return values.reshape(*x.shape[:-1], values.shape[-1])

    def _evaluate(self, x: Tensor) -> Tensor:
        if self.check_finite:
            check_finite_rows(x)
        x = x.to(self.states.dtype)
        s = self.prior.kernel.state_size
        with full_precision(x.device):
            cell, weights = two_point(self.domain(x), self.prior)
            # The two ends of a cell are neighbours, so their states are 2 s consecutive rows.
            index = cell.unsqueeze(-1) * s + torch.arange(2 * s, device=x.device)
            values = torch.cat([weights.left, weights.right], dim=-1) * self.scale.unsqueeze(-1)
            return active_sum(SparseFeatures(values, index), self.states) + self.bias.unsqueeze(1)
