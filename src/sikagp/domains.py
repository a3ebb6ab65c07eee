"""Domains: where a layer's grid lies on the real line.

A domain maps raw inputs to unit coordinates, feature by feature. Inputs beyond it are welcome: they
get coordinates below 0 or above 1, and the kernel extrapolates. Nothing here ever looks at the
other rows of a batch at prediction time.
"""

import copy

import torch
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.grid import DyadicGrid
from sikagp.precision import at_least_float32
from sikagp.validation import check_level

Bound = float | Tensor


class Domain(nn.Module):
    """A fixed interval, the same for all features or one per feature.

    >>> Domain(-1.0, 1.0)(torch.tensor([[0.0, 3.0]]))
    tensor([[0.5000, 2.0000]])
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: Bound, high: Bound) -> None:
        super().__init__()
        bounds = torch.broadcast_tensors(self._as_bound("low", low), self._as_bound("high", high))
        if not bool((bounds[0] < bounds[1]).all()):
            raise ValueError(f"a domain needs low < high for every feature, got {low} and {high}")
        self.register_buffer("low", bounds[0].clone())
        self.register_buffer("high", bounds[1].clone())

    @staticmethod
    def _as_bound(name: str, bound: Bound) -> Float[Tensor, "*features"]:
        exact = isinstance(bound, Tensor) and bound.is_floating_point()
        value = torch.as_tensor(bound, dtype=None if exact else torch.float64).detach()
        if value.ndim > 1 or not bool(value.isfinite().all()):
            raise ValueError(
                f"{name} must be one finite number, or one per feature; got shape "
                f"{tuple(value.shape)}, values {value.flatten()[:4].tolist()}"
            )
        return value

    @classmethod
    def fit(cls, x: Float[Tensor, "*batch features"], *, margin: float = 0.1) -> "Domain":
        """Cover the range of data, widened on both sides by ``margin`` times that range.

        A feature that never varies gets an interval of width 1 around its value.
        """
        rows = x.detach().reshape(-1, x.shape[-1])
        bad = int((~rows.isfinite()).any(-1).sum())
        if not len(rows) or bad:
            raise ValueError(
                "a domain is fitted to at least one row, all of finite numbers; "
                f"got {len(rows)} rows, {bad} with NaN or infinity"
            )
        low, high = rows.amin(0), rows.amax(0)
        pad = torch.where(high > low, margin * (high - low), 0.5)
        return cls(low - pad, high + pad)

    @staticmethod
    def quantiles(
        x: Float[Tensor, "*batch features"],
        *,
        level: int = 7,
        margin: float = 0.1,
        evenness: float = 0.1,
    ) -> "NodeDomain":
        """Place nodes where the data are: at their quantiles, feature by feature.

        Node i of ``2**level + 1`` is ``1 - evenness`` times the quantile i / 2**level plus
        ``evenness`` times the i-th of evenly spaced nodes, which keeps nodes apart where values
        repeat. The ends lie where :meth:`fit` puts them. Layers of lower levels use every other
        node, those of higher levels halve the cells.
        """
        if not 0 <= evenness <= 1:
            raise ValueError(f"evenness must lie in [0, 1], got {evenness}")
        ends = Domain.fit(x, margin=margin)
        share = torch.linspace(0, 1, 2 ** check_level(level) + 1, dtype=torch.float64)
        rows = x.detach().reshape(-1, x.shape[-1]).double()
        low, high = ends.low.double().unsqueeze(-1), ends.high.double().unsqueeze(-1)
        share = share.to(rows.device)
        spots = rows.sort(dim=0).values
        place = share * (len(rows) - 1)
        before = place.long()
        after = (before + 1).clamp(max=len(rows) - 1)
        spots = torch.lerp(spots[before].T, spots[after].T, place - before)
        spots[:, :1], spots[:, -1:] = low, high
        even = torch.lerp(low, high, share)
        nodes = torch.lerp(spots, even, evenness)
        nodes[:, :1], nodes[:, -1:] = low, high
        return NodeDomain(nodes)

    def grid(self, level: int) -> DyadicGrid:
        """The grid of a level, in unit coordinates."""
        return DyadicGrid(level)

    def select(self, features: int | list[int]) -> "Domain":
        """The domain of one feature or of some features alone."""
        return Domain(*(end if end.ndim == 0 else end[features] for end in (self.low, self.high)))

    @property
    def width(self) -> Float[Tensor, "*features"]:
        """Length of the interval, one number or one per feature."""
        return at_least_float32(self.high) - at_least_float32(self.low)

    def forward(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
        """Map the interval to [0, 1], and what lies beyond it accordingly."""
        return (x - self.low.to(x.dtype)) / self.width.to(x.dtype)

    def extra_repr(self) -> str:
        """Describe the interval."""
        if self.low.ndim == 0:
            return f"low={self.low.item():g}, high={self.high.item():g}"
        return f"features={len(self.low)}"


class NodeDomain(Domain):
    """An interval with nodes at given positions, the same for all features or a row for each.

    ``positions`` holds ``2**k + 1`` increasing numbers per row, in units of the input. A layer of
    a lower level than k uses every other node, one of a higher level halves the cells, so grids of
    different levels are nested and a layer can be refined.

    >>> NodeDomain(torch.tensor([0.0, 1.0, 4.0])).grid(1).nodes
    tensor([[0.0000, 0.2500, 1.0000]], dtype=torch.float64)
    """

    positions: Tensor

    def __init__(self, positions: Float[Tensor, "*features nodes"]) -> None:
        rows = torch.atleast_2d(positions.detach())
        count = rows.shape[-1]
        if rows.ndim > 2 or count < 3 or (count - 1).bit_count() != 1:
            raise ValueError(
                "positions must have shape (nodes,) or (features, nodes) with 2**k + 1 nodes, "
                f"k >= 1; got {tuple(positions.shape)}"
            )
        super().__init__(
            *(end if positions.ndim > 1 else end[0] for end in (rows[:, 0], rows[:, -1]))
        )
        self.register_buffer("positions", rows.clone())
        self.check()

    def check(self) -> None:
        """Refuse nodes that do not increase in the type they are stored in."""
        bad = ~(self.positions.diff(dim=-1) > 0).all(-1)
        if bool(bad.any()):
            raise ValueError(
                f"nodes must increase strictly; {int(bad.sum())} of {len(bad)} rows do not in "
                f"{self.positions.dtype}. Values that repeat need an evenness above 0; values "
                "that differ by little need a shift or float64"
            )

    def grid(self, level: int) -> DyadicGrid:
        """Thin the nodes out to a lower level, or halve their cells up to a higher one."""
        nodes = self.positions.double()
        nodes = (nodes - nodes[:, :1]) / (nodes[:, -1:] - nodes[:, :1])
        while nodes.shape[-1] < 2**level + 1:
            middle = (nodes[:, 1:] + nodes[:, :-1]) / 2
            halves = torch.stack([nodes[:, :-1], middle], dim=-1).flatten(1)
            nodes = torch.cat([halves, nodes[:, -1:]], dim=-1)
        return DyadicGrid(level, nodes[:, :: (nodes.shape[-1] - 1) // 2**level], checked=True)

    def select(self, features: int | list[int]) -> "NodeDomain":
        """The domain of one feature or of some features alone."""
        return NodeDomain(self.positions[0 if len(self.positions) == 1 else features])

    def extra_repr(self) -> str:
        """Describe the interval and the number of nodes."""
        return f"{super().extra_repr()}, nodes={self.positions.shape[-1]}"


class RunningDomain(Domain):
    """An interval of ``mean +- reach * stddev`` that follows the inputs during training.

    Running mean and variance are buffers, updated by each batch in training mode and frozen in
    evaluation mode, as in batch normalisation; but also in training it is the running interval,
    not the batch's own, that maps the inputs.
    """

    running_mean: Tensor
    running_variance: Tensor
    num_batches: Tensor

    def __init__(self, num_features: int, *, reach: float = 3.0, momentum: float = 0.1) -> None:
        if not reach > 0 or not 0 < momentum <= 1:
            raise ValueError(
                f"reach must be positive and momentum in (0, 1], got {reach} and {momentum}"
            )
        super().__init__(torch.full((num_features,), -reach), torch.full((num_features,), reach))
        self.reach, self.momentum = reach, momentum
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_variance", torch.ones(num_features))
        self.register_buffer("num_batches", torch.tensor(0))

    @torch.no_grad()
    def update(self, x: Float[Tensor, "*batch features"]) -> None:
        """Fold the finite rows of a batch into the running statistics.

        The first batch replaces the initial values.
        """
        rows = x.detach().reshape(-1, x.shape[-1]).to(self.running_mean.dtype)
        finite = rows.isfinite().all(-1, keepdim=True)
        count = finite.sum()
        share = finite.to(rows.dtype) / count.clamp_min(1)
        rows = torch.where(finite, rows, 0.0)
        mean = (share * rows).sum(0)
        variance = (share * (rows - mean).square()).sum(0)
        pace = torch.where(self.num_batches == 0, 1.0, self.momentum) * (count > 0)
        pace = pace.to(mean.dtype)
        self.running_mean.lerp_(mean, pace)
        self.running_variance.lerp_(variance, pace)
        self.num_batches.add_(count > 0)
        # A feature that never varies still needs an interval.
        stddev = self.running_variance.sqrt()
        spread = torch.where(stddev > 0, stddev, 1.0) * self.reach
        torch.sub(self.running_mean, spread, out=self.low)
        torch.add(self.running_mean, spread, out=self.high)

    def forward(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
        """Map to unit coordinates, after updating the interval if in training mode."""
        if self.training:
            self.update(x)
        return super().forward(x)


def as_domain(domain: Domain | tuple[Bound, Bound], num_features: int) -> Domain:
    """Copy a domain, or make one of a pair of bounds, and check that it fits the features."""
    if not isinstance(domain, Domain):
        try:
            low, high = domain
        except (TypeError, ValueError):
            raise TypeError(f"domain must be (low, high) or a Domain, got {domain!r}") from None
        domain = Domain(low, high)
    else:
        domain = copy.deepcopy(domain)
    if domain.low.ndim == 1 and len(domain.low) != num_features:
        raise ValueError(
            f"the domain has bounds for {len(domain.low)} features, the layer has {num_features}"
        )
    return domain
