"""The basis functions of a small grid, one panel per level (the paper's Figure 1)."""

from collections.abc import Mapping
from fractions import Fraction

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sikagp._typing import Float
from sikagp.basis import dense_features
from sikagp.experiments.figures.style import BLUE, INK, ORANGE, panels
from sikagp.grid import level_slice
from sikagp.layers import SIKALayer


def basis_functions(
    level: int, theta: float, points: int = 801
) -> tuple[Float[Tensor, " points"], Float[Tensor, "points nodes"]]:
    """Evaluate every psi, in dyadic order, at points of the unit interval."""
    layer = SIKALayer(1, 1, level=level, lengthscale=1 / theta)
    x = torch.linspace(0, 1, points)
    with torch.no_grad():
        features = layer.features(x.unsqueeze(-1))
    return x, dense_features(features, layer.num_nodes).squeeze(1)


def draw(
    *, level: int = 3, theta: float = 4.0, seed: int = 0
) -> tuple[Figure, Mapping[str, Mapping[str, float]]]:
    """Draw all of them on their supports; there is nothing random and nothing to measure."""
    del seed
    x, psi = basis_functions(level, theta)
    heights = [2.0] + [1.3] * level
    figure, axes = panels(level + 1, 1, (6.4, 4.8), sharex=True, height_ratios=heights)
    _draw_level(axes[0][0], x, psi[:, :2], [r"$\psi_{01}$", r"$\psi_{02}$"], at=[1.0, 1.0])
    axes[0][0].set(ylabel="boundary", ylim=(-0.9, 1.1))
    for lev in range(1, level + 1):
        odd = range(1, 2**lev, 2)
        names = [rf"$\psi_{{{lev}{m}}}$" for m in odd]
        ax = axes[lev][0]
        _draw_level(ax, x, psi[:, level_slice(lev)], names, at=[m / 2**lev for m in odd])
        ax.set(ylabel=f"level {lev}", ylim=(0, 1.3), yticks=[0, 1])
    nodes = [node / 2**level for node in range(2**level + 1)]
    last = axes[-1][0]
    last.set_xticks(nodes, ["0", *(str(Fraction(node)) for node in nodes[1:])])
    last.set(xlabel="$x$", xlim=(0, 1.07))
    return figure, {}


def _draw_level(
    ax: Axes,
    x: Float[Tensor, " points"],
    psi: Float[Tensor, "points functions"],
    names: list[str],
    at: list[float],
) -> None:
    """Plot the columns of psi where they are not zero, each named at the point ``at``."""
    ax.axhline(0, color=INK, lw=0.5)
    for column, (name, place) in enumerate(zip(names, at, strict=True)):
        color, value = (BLUE, ORANGE)[column % 2], psi[:, column]
        on = value.abs() > 1e-6
        ax.plot(x[on], value[on], color=color, lw=1.8, clip_on=False)
        peak = value[(x - place).abs().argmin()].item()
        shift, align = ((6, -3), "left") if place == 1 else ((0, 5), "center")
        ax.annotate(
            name, (place, peak), shift, textcoords="offset points", ha=align, color=color, size=12
        )
