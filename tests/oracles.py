"""Independent answers: the paper's formulas as printed, and dense linear algebra in float64."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from helpers import doubles
from torch import Tensor

from sikagp import BrownianBridge, BrownianMotion, GaussMarkov, Laplace, MarkovKernel
from sikagp.grid import DyadicGrid
from sikagp.tree import BridgeTree, GridPrior, grid_prior

THETA = 5.0

Covariance = Callable[[Tensor, Tensor], Tensor]


class KernelCase(NamedTuple):
    """A kernel of the package and the same covariance written down by hand."""

    name: str
    kernel: MarkovKernel
    covariance: Covariance


def user_p(x: Tensor) -> Tensor:
    return (1 + x) * torch.exp(x)


def user_q(x: Tensor) -> Tensor:
    return 2 - x.square()


CASES = [
    KernelCase("laplace", Laplace(), lambda x, y: torch.exp(-THETA * (x - y).abs())),
    KernelCase("brownian", BrownianMotion(), torch.minimum),
    KernelCase(
        "bridge", BrownianBridge(), lambda x, y: torch.minimum(x, y) * (1 - torch.maximum(x, y))
    ),
    KernelCase(
        "user",
        GaussMarkov(user_p, user_q),
        lambda x, y: user_p(torch.minimum(x, y)) * user_q(torch.maximum(x, y)),
    ),
]


def laplace_covariance(theta: float) -> Covariance:
    """Return ``exp(-theta |x - y|)``."""
    return lambda x, y: torch.exp(-theta * (x - y).abs())


def gram(covariance: Covariance, x: Tensor, y: Tensor) -> Tensor:
    """Matrix of k(x_i, y_j)."""
    return covariance(x[:, None], y[None, :])


def condition(covariance: Covariance, x: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Weights K(x, U) K(U, U)^-1 and the covariance of f(x) that f(U) leaves open.

    Points where f is known to be zero (a bridge's ends) tell nothing and get weight zero.
    """
    known = covariance(given, given) > 0
    cross = gram(covariance, x, given[known])
    weights = torch.zeros(len(x), len(given), dtype=x.dtype)
    weights[:, known] = torch.linalg.solve(gram(covariance, given[known], given[known]), cross.T).T
    return weights, gram(covariance, x, x) - weights[:, known] @ cross.T


def nystrom(covariance: Covariance, x: Tensor, nodes: Tensor) -> Tensor:
    """``K(x, U) K(U, U)^-1 K(U, x)``."""
    return gram(covariance, x, x) - condition(covariance, x, nodes)[1]


def theorem_1(x: Tensor, theta: float, level: int) -> Tensor:
    """The paper's basis psi_01, psi_02, psi_11, psi_21, psi_23, ... at x in [0, 1], as printed."""
    near, far = torch.exp(-theta * x), torch.exp(-theta * (1 - x))
    decay = doubles(-theta).exp()
    columns = [
        (near + far) / torch.sqrt(2 * (1 + decay)),
        (near - far) / torch.sqrt(2 * (1 - decay)),
    ]
    for lev in range(1, level + 1):
        h = 2.0**-lev
        height = torch.sqrt(2 / doubles(2 * h * theta).sinh())
        for m in range(1, 2**lev, 2):
            rising = height * torch.sinh(theta * (x - (m - 1) * h))
            falling = height * torch.sinh(theta * ((m + 1) * h - x))
            bump = torch.where(x <= m * h, rising, falling)
            columns.append(torch.where((x - m * h).abs() <= h, bump, 0.0))
    return torch.stack(columns, dim=-1)


def template_function(covariance: Covariance, x: Tensor, abc: Tensor) -> Tensor:
    """The paper's phi_abc = A K(., a) + B K(., b) + C K(., c), coefficients from K^-1."""
    inverse = torch.linalg.pinv(gram(covariance, abc, abc), hermitian=True)
    return gram(covariance, x, abc) @ inverse[:, 1] / inverse[1, 1].sqrt()


def paper_index(x: Tensor, level: int) -> Tensor:
    """The paper's J(x), counted from 0: ``t = floor((ceil(x r) + 1) / 2)`` kept in its level."""
    r = 2 ** torch.arange(1, level + 1)
    t = torch.floor((torch.ceil(x.unsqueeze(-1) * r) + 1) / 2).long()
    t = torch.minimum(t.clamp(min=1), r // 2)
    ends = torch.tensor([1, 2]).expand(*x.shape, 2)
    return torch.cat([ends, t + r // 2 + 1], dim=-1) - 1


def random_nodes(level: int, rows: int = 1) -> Tensor:
    """Strictly increasing node positions from 0 to 1, far from even."""
    generator = torch.Generator().manual_seed(level)
    steps = torch.rand(rows, 2**level, dtype=torch.float64, generator=generator) + 0.1
    inner = steps.cumsum(-1)[:, :-1] / steps.sum(-1, keepdim=True)
    zero, one = torch.zeros(rows, 1, dtype=inner.dtype), torch.ones(rows, 1, dtype=inner.dtype)
    return torch.cat([zero, inner, one], dim=-1)


def make_prior(
    kernel: MarkovKernel, level: int, nodes: Tensor | None = None, *, theta: float = THETA
) -> tuple[GridPrior, Tensor]:
    """A prior of one feature in float64, and its node positions from left to right."""
    prior = grid_prior(kernel, DyadicGrid(level, nodes), doubles([theta]))
    positions = torch.arange(2**level + 1, dtype=torch.float64) / 2**level
    return prior, positions if nodes is None else nodes[0]


def random_tree(level: int, s: int, *, shared: bool, features: int = 2) -> BridgeTree:
    """A tree with the bridges of a level alike or not; no kernel stands behind it."""
    rows = level if shared else 2**level - 1
    parts = (0.7 * torch.randn(features, rows, s, s, dtype=torch.float64) for _ in range(3))
    return BridgeTree(torch.randn(features, 2 * s, 2 * s, dtype=torch.float64), *parts)


def unroll(tree: BridgeTree, level: int) -> Tensor:
    """Response of every node state to every weight, shape (features, nodes, s, nodes, s).

    Node by node and feature by feature, straight from ``z_m = G_left z_a + G_right z_c + S w_m``.
    """
    features, rows, s, _ = tree.left.shape
    count = 2**level + 1
    response = torch.zeros(features, count, s, count, s, dtype=tree.left.dtype)
    ends = tree.boundary.unflatten(2, (2, s))
    response[:, 0, :, :2], response[:, -1, :, :2] = ends[:, :s], ends[:, s:]
    for lev in range(1, level + 1):
        half = 2 ** (level - lev)
        for k in range(2 ** (lev - 1)):
            inner = 2 ** (lev - 1) - 1 + k
            row = lev - 1 if rows == level else inner
            m = (2 * k + 1) * half
            for d in range(features):
                a, c = response[d, m - half].flatten(1), response[d, m + half].flatten(1)
                state = (tree.left[d, row] @ a + tree.right[d, row] @ c).view(s, count, s)
                state[:, inner + 2] += tree.factor[d, row]
                response[d, m] = state
    return response
