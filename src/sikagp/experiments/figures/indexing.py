"""Sparse indexing: which weights an input touches, level by level (the paper's Figure 3)."""

from collections.abc import Mapping
from fractions import Fraction

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sikagp._typing import Int
from sikagp.experiments.figures.style import BLUE, GREY, INK, ORANGE, panels
from sikagp.grid import DyadicGrid, dyadic_order


def active_weights(x: float, level: int) -> Int[Tensor, " active"]:
    """Positions in dyadic order of the L + 2 weights whose basis functions x activates."""
    weight = DyadicGrid(level).brackets(torch.tensor([x])).weight
    return torch.cat([torch.arange(2), weight.flatten()])


def draw(
    *, level: int = 3, x: float = 0.3, seed: int = 0
) -> tuple[Figure, Mapping[str, Mapping[str, float]]]:
    """Draw the tree of nodes with the path of x above, the vector of weights below."""
    del seed
    figure, axes = panels(2, 1, (6.4, 4.0), height_ratios=[3, 1])
    active = set(active_weights(x, level).tolist())
    position = (dyadic_order(level) / 2**level).tolist()
    _draw_tree(axes[0][0], x, level, position, active)
    _draw_vector(axes[1][0], position, active)
    return figure, {}


def _draw_tree(ax: Axes, x: float, level: int, position: list[float], active: set[int]) -> None:
    heights = [0, 0] + [lev for lev in range(1, level + 1) for _ in range(2 ** (lev - 1))]
    for index, (place, height) in enumerate(zip(position, heights, strict=True)):
        color = ORANGE if index in active else GREY
        if height:
            reach = 2.0**-height
            ax.plot([place - reach, place + reach], [height, height], color=color, lw=2, alpha=0.5)
        ax.plot(place, height, "o", color=color, ms=7)
        ax.annotate(
            str(Fraction(place)), (place, height), (0, 7), textcoords="offset points", ha="center"
        )
    ax.axvline(x, color=BLUE, lw=1.2, ls="--")
    ax.annotate(f"$x = {x:g}$", (x, level + 0.6), (4, 0), textcoords="offset points", color=BLUE)
    ax.set(ylim=(level + 0.8, -0.6), xlim=(-0.04, 1.04), ylabel="level", xlabel="$x$")
    ax.set_yticks(range(level + 1))


def _draw_vector(ax: Axes, position: list[float], active: set[int]) -> None:
    for index, place in enumerate(position):
        on = index in active
        ax.bar(index, 1, width=0.9, color=ORANGE if on else "white", edgecolor=INK, lw=0.8)
        ax.text(
            index, 0.5, str(Fraction(place)), ha="center", va="center", color="white" if on else INK
        )
    ax.set(xlim=(-0.6, len(position) - 0.4), ylim=(0, 1), yticks=[])
    ax.set_xticks(range(len(position)), [str(index + 1) for index in range(len(position))])
    ax.set_xlabel(f"weights in dyadic order: {len(active)} of {len(position)} are active")
