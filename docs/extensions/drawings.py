"""Figures that explain the method, each drawn from what the library computes."""

from fractions import Fraction

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sikagp.basis import dense_features, sparse_features
from sikagp.grid import DyadicGrid, dyadic_order, level_slice
from sikagp.kernels import get_kernel
from sikagp.table import node_states, two_point
from sikagp.tree import GridPrior, grid_prior

BLUE, ORANGE, GREEN, GREY, PALE = "#1b5e9e", "#d9660b", "#2e7d4f", "#8a8a8a", "#cfe0f0"
HERE = 0.3  # the input that the pictures follow
RATE = 4.0  # width of the domain over the lengthscale


def prior(level: int, kernel: str = "laplace", rate: float = RATE) -> GridPrior:
    """Return a kernel on a grid, one feature, in float64."""
    rates = torch.tensor([rate], dtype=torch.float64)
    return grid_prior(get_kernel(kernel), DyadicGrid(level), rates)


def points(count: int = 801, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Inputs from left to right, shape (count, 1)."""
    return torch.linspace(low, high, count, dtype=torch.float64).unsqueeze(-1)


def panels(rows: int, columns: int, width: float, height: float, **options: object) -> tuple:
    """Return a figure and its Axes, as pyplot would, but without its global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def grid() -> Figure:
    """Nodes of a grid of level 3 where they enter, in dyadic order."""
    level = 3
    figure, ax = panels(1, 1, 6.4, 2.5)
    order = dyadic_order(level)
    for weight, node in enumerate(order.tolist()):
        entry = next(lev for lev in range(level + 1) if weight <= 2**lev)
        x = node / 2**level
        ax.plot([x, x], [-level, -entry], color=PALE, lw=1.5, zorder=0)
        ax.plot(x, -entry, "o", color=BLUE, ms=15)
        ax.text(x, -entry, str(weight + 1), color="white", ha="center", va="center")
    cell = int(HERE * 2**level)
    ax.axvspan(cell / 2**level, (cell + 1) / 2**level, color=ORANGE, alpha=0.15, lw=0)
    ax.axvline(HERE, color=ORANGE, lw=1.2)
    ax.text(HERE + 0.008, 0.42, "x", color=ORANGE, style="italic", size=12)
    ax.set_yticks([0, -1, -2, -3], ["ends", "level 1", "level 2", "level 3"])
    nodes = [Fraction(node, 2**level) for node in range(2**level + 1)]
    ax.set_xticks([float(node) for node in nodes], [str(node) for node in nodes])
    ax.set(xlim=(-0.04, 1.04), ylim=(-3.5, 0.75))
    return figure


def basis() -> Figure:
    """Basis functions of level 3; those that x activates stand out."""
    level = 3
    figure, axes = panels(level + 1, 1, 6.4, 4.4, sharex=True)
    here = prior(level)
    x = points()
    psi = dense_features(sparse_features(x, here), 2**level + 1)[:, 0]
    active = dense_features(sparse_features(torch.tensor([[HERE]]).double(), here), 2**level + 1)
    for lev, ax in enumerate(axes):
        for weight in range(2) if lev == 0 else range(*level_slice(lev).indices(2**level + 1)):
            on = bool(active[0, 0, weight] != 0)
            curve = psi[:, weight].where(psi[:, weight] != 0, torch.nan)
            ax.plot(x, curve, color=BLUE if on else PALE, lw=2.2 if on else 1.6, zorder=2 + on)
            if on:
                ax.plot(HERE, active[0, 0, weight], "o", color=ORANGE, zorder=4)
        ax.axhline(0, color=GREY, lw=0.6)
        ax.axvline(HERE, color=ORANGE, lw=1, zorder=1)
        ax.set_ylabel("ends" if lev == 0 else f"level {lev}")
        ax.set(xlim=(0, 1), yticks=[0, 1])
    axes[-1].set_xlabel("$x$ in unit coordinates")
    return figure


def bridge() -> Figure:
    """One draw from the prior, built by midpoint displacement."""
    shown = (0, 1, 2, 3, 5, 8)
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(1, 2 ** shown[-1] + 1, 1, 1, generator=generator, dtype=torch.float64)
    figure, axes = panels(2, 3, 7.2, 3.8, sharex=True, sharey=True)
    for level, ax in zip(shown, axes.flat, strict=True):
        known = max(level, 1)
        here = prior(known)
        part = weight[:, : 2**known + 1].clone()
        part[:, 2**level + 1 :] = 0
        x = points()
        ax.plot(x, interpolated(part, here, x), color=BLUE, lw=1.3)
        fresh = (
            torch.arange(1, 2**level, 2).double() / 2**level if level else torch.tensor([0, 1.0])
        )
        states = interpolated(part, here, fresh.double().unsqueeze(-1))
        if level <= 5:
            ax.plot(fresh, states, "o", color=ORANGE, ms=4)
        ax.set_title("two ends" if level == 0 else f"level {level}", size=9)
    figure.supxlabel("$x$")
    return figure


def interpolated(weight: Tensor, here: GridPrior, x: Tensor) -> Tensor:
    """Values of f at x from weights, through the node table."""
    states = node_states(weight, here.tree)[0, ..., 0]
    cell, two = two_point(x, here)
    left, right = states[cell[:, 0]], states[cell[:, 0] + 1]
    return (two.left[:, 0] * left + two.right[:, 0] * right).sum(-1)


def two_point_weights(ax: Axes, here: GridPrior) -> None:
    """Draw alpha and beta across one cell."""
    x = points(201, 0.25, 0.375 - 1e-9)
    _, two = two_point(x, here)
    ax.plot(x, two.left[:, 0, 0], color=BLUE, label=r"$\alpha$, on the left node")
    ax.plot(x, two.right[:, 0, 0], color=GREEN, ls="--", label=r"$\beta$, on the right node")
    ax.axvline(HERE, color=ORANGE, lw=1.2)
    ax.set(xlabel="$x$ within its cell", ylim=(0, 1.02), xticks=[0.25, 0.375])
    ax.set_xticklabels(["1/4", "3/8"])
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=8)


def two_point_table(ax: Axes, here: GridPrior) -> None:
    """Draw node states, the function between them, and the two that x needs."""
    generator = torch.Generator().manual_seed(8)
    weight = torch.randn(1, 9, 1, 1, generator=generator, dtype=torch.float64)
    x = points()
    nodes = points(9)
    states = interpolated(weight, here, nodes)
    value = interpolated(weight, here, torch.tensor([[HERE]]).double())
    ax.plot(x, interpolated(weight, here, x), color=PALE, lw=2)
    ax.plot(nodes, states, "o", color=GREY, ms=5, label="node states")
    ax.plot(nodes[2:4], states[2:4], "o", color=BLUE, ms=8, label="the two that are read")
    ax.plot([HERE], value, "D", color=ORANGE, ms=7, label="$f(x)$")
    ax.axvline(HERE, color=ORANGE, lw=1, zorder=0)
    ax.set(xlabel="$x$", xlim=(-0.02, 1.02))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, fontsize=8)


def two_point_evaluation() -> Figure:
    """Table on the left, weights of the two ends on the right."""
    here = prior(3)
    figure, (left, right) = panels(1, 2, 7.2, 2.7, width_ratios=(2, 1))
    two_point_table(left, here)
    two_point_weights(right, here)
    return figure


def residual() -> Figure:
    """Prior variance with and without the residual, inside the grid and beyond."""
    x = points(1201, -0.4, 1.4)
    figure, axes = panels(1, 2, 7.2, 2.7, sharey=True)
    titles = {"laplace": "Laplace", "matern32": "Matérn-3/2"}
    for ax, (kernel, title) in zip(axes, titles.items(), strict=True):
        for level, color in ((2, BLUE), (4, GREEN)):
            here = prior(level, kernel)
            _, two = two_point(x, here)
            missing = (two.inside + two.outside)[:, 0]
            ax.plot(x, 1 - missing, color=color, label=f"level {level}")
        ax.axhline(1, color=GREY, lw=0.8, ls=":")
        ax.axvspan(0, 1, color=PALE, alpha=0.35, lw=0, zorder=0)
        ax.set_title(title, size=9)
        ax.set(xlabel="$x$ (the grid is shaded)", ylim=(0, 1.05))
    axes[0].set_ylabel("variance that the weights carry")
    axes[1].legend(loc="lower center")
    return figure


def kernels() -> Figure:
    """Three draws from four priors."""
    names = ("laplace", "matern32", "matern52", "brownian")
    figure, axes = panels(1, 4, 7.6, 2.1, sharey=True)
    for ax, name in zip(axes, names, strict=True):
        here = prior(8, name, rate=3.0)
        s = here.kernel.state_size
        generator = torch.Generator().manual_seed(0)
        x = points()
        for color in (BLUE, ORANGE, GREEN):
            weight = torch.randn(1, 257, s, 1, generator=generator, dtype=torch.float64)
            ax.plot(x, interpolated(weight, here, x), color=color, lw=1.1)
        ax.set_title(f'"{name}"', size=9)
        ax.set(xlabel="$x$")
    return figure


def levels() -> Figure:
    """Largest share of prior variance that a grid misses, by level and kernel."""
    figure, ax = panels(1, 1, 6.0, 3.0)
    marks = {"laplace": (BLUE, "o"), "matern32": (ORANGE, "s"), "matern52": (GREEN, "^")}
    for name, (color, mark) in marks.items():
        worst = [missing_share(name, level) for level in range(1, 9)]
        ax.semilogy(range(1, 9), worst, mark, ls="-", color=color, label=name)
    ax.axhline(0.01, color=GREY, lw=0.8, ls=":")
    ax.set(xlabel="level $L$ (nodes: $2^L + 1$)", ylim=(1e-9, 1.5))
    ax.set_ylabel("largest missing share\nof the prior variance")
    ax.legend()
    return figure


def missing_share(kernel: str, level: int) -> float:
    """Largest residual between nodes, with a lengthscale of a fifth of the domain."""
    here = prior(level, kernel, rate=5.0)
    _, two = two_point(points(2**level * 16 + 1), here)
    return float(two.inside.max())
