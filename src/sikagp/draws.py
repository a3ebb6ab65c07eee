"""Draws of functions: weights are sampled, so one draw can be evaluated anywhere, coherently."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from sikagp import ops
from sikagp._typing import Float
from sikagp.domains import Domain
from sikagp.plans import locate
from sikagp.precision import full_precision
from sikagp.tree import BridgeTree, GridPrior
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


def drawn_states(
    weight: Float[Tensor, "samples features weights outputs"], prior: GridPrior
) -> Float[Tensor, "samples features nodes s outputs"]:
    """States at nodes of weights that were drawn; every sample climbs down the same tree."""
    count = len(weight)
    stacked = weight.flatten(0, 1).unflatten(1, (prior.grid.num_nodes, prior.kernel.state_size))
    tree = BridgeTree(*(part.repeat(count, *[1] * (part.ndim - 1)) for part in prior.tree))
    return ops.node_states(stacked, tree).unflatten(0, (count, -1))


def flipout(
    points: Sequence[Tensor],
    mean: Float[Tensor, "features weights outputs"],
    deviation: Float[Tensor, "features weights outputs"],
    prior: GridPrior,
    num_samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "samples rows outputs"]:
    """The paper's flipout estimator, ``phi m + (phi * R) (sigma * epsilon)``.

    One weight perturbation per sample is shared by its rows and decorrelated between them by
    random signs R. A row's basis functions of one feature share their sign, so that they can be
    summed in a table first.

    Args:
        points: cells of shape (sets, rows, features) and two-point weights at both ends; one set
            for all samples or one for each.
    """
    cell, left, right = points
    cells, *ends = (part.flatten(0, 1).unsqueeze(0) for part in points)
    centre = ops.values(cells, ends[0], ends[1], drawn_states(mean.unsqueeze(0), prior))
    perturbation = normal_draws(torch.zeros_like(deviation), deviation, num_samples, generator)
    shape = num_samples, *cell.shape[1:]
    bit = torch.randint(0, 2, (*shape, 1), generator=generator, device=cell.device)
    sign, states = 2 * bit - 1, drawn_states(perturbation, prior)
    around = ops.values(cell.expand(shape), left * sign, right * sign, states)
    return centre.view(len(cell), *around.shape[1:]) + around


class Paths:
    """Functions drawn from a layer; calling them twice at the same points gives the same values.

    They carry no residual: between nodes they interpolate the drawn states. Later changes of the
    layer do not reach them. The prior's tree is scaled, see ``scaled_prior``.
    """

    def __init__(
        self,
        weight: Float[Tensor, "paths features weights outputs"],
        bias: Float[Tensor, "paths outputs"],
        domain: Domain,
        prior: GridPrior,
        *,
        check_finite: bool = True,
    ) -> None:
        self.bias, self.prior, self.check_finite = bias, prior, check_finite
        self.domain = copy.deepcopy(domain).eval()
        self.states = drawn_states(weight, prior)

    def __len__(self) -> int:
        return len(self.states)

    def __call__(
        self, x: Float[Tensor, "*batch features"]
    ) -> Float[Tensor, "paths *batch outputs"]:
        """Evaluate every path at the same points."""
        located = (part.expand(len(self), *part.shape) for part in self._locate(x))
        values = self._interpolate(*located)
        return values.unflatten(1, x.shape[:-1]) if x.ndim > 1 else values.squeeze(1)

    def each(
        self, x: Float[Tensor, "paths *batch features"]
    ) -> Float[Tensor, "paths *batch outputs"]:
        """Evaluate path i at the points ``x[i]``, as composing paths through layers needs."""
        if x.ndim < 2 or len(x) != len(self):
            raise ValueError(
                f"expected points of shape ({len(self)}, *batch, {self.states.shape[1]}), "
                f"one set per path; got shape {tuple(x.shape)}"
            )
        located = (part.unflatten(0, (len(x), -1)) for part in self._locate(x))
        values = self._interpolate(*located)
        return values.reshape(*x.shape[:-1], values.shape[-1])

    def _locate(self, x: Float[Tensor, "*batch features"]) -> tuple[Tensor, Tensor, Tensor]:
        """Cells and two-point weights of all rows, shape (rows, features, ...)."""
        check_input(x, self.states.shape[1])
        if self.check_finite:
            check_finite_rows(x)
        rows = x.reshape(-1, x.shape[-1]).to(self.states.dtype)
        with full_precision(x.device):
            return locate(self.domain(rows), self.prior, "none")[:3]

    def _interpolate(self, cell: Tensor, left: Tensor, right: Tensor) -> Tensor:
        with full_precision(cell.device):
            return ops.values(cell, left, right, self.states) + self.bias.unsqueeze(1)
