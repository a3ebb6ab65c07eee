"""What the figures share: panels, colours and legends. No window is ever opened."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from benchmarks.results import Cell, Result

# Okabe and Ito's palette.
BLACK, GREY, ORANGE, SKY = "#000000", "#888888", "#E69F00", "#56B4E9"
GREEN, BLUE, VERMILLION, PURPLE = "#009E73", "#0072B2", "#D55E00", "#CC79A7"
STYLE = {"axes.titlesize": 10, "axes.labelsize": 9, "font.size": 9, "lines.linewidth": 1.5}


def save(draw: Callable[[Result], Figure], result: Result, path: Path) -> None:
    """Draw a result in the style of the suite and write it."""
    with rc_context(STYLE):
        draw(result).savefig(path)


def grid(
    rows: int, columns: int, *, size: tuple[float, float] = (3.0, 2.4), **options: Any
) -> tuple[Figure, list[list[Axes]]]:
    """Panels without boxes, with faint lines to read values from."""
    figure = Figure(
        figsize=(max(4.5, size[0] * columns), size[1] * rows + 0.5), layout="constrained", dpi=150
    )
    panels = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in panels.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.tick_params(which="both", labelsize=8)
    return figure, [list(row) for row in panels]


def legend(figure: Figure, panels: Sequence[Sequence[Axes]]) -> None:
    """One legend for all panels, below them, as wide as the figure."""
    columns = int(figure.get_figwidth() // 2)
    labels: dict[str, Any] = {}
    for row in panels:
        for ax in row:
            handles, names = ax.get_legend_handles_labels()
            labels |= {name: handle for handle, name in zip(handles, names, strict=True)}
    figure.legend(
        labels.values(),
        labels.keys(),
        loc="outside lower center",
        ncols=min(columns, len(labels)),
        frameon=False,
        fontsize=9,
    )


def dots(
    ax: Axes,
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Named values on a logarithmic scale, the first on top, with what they say beside them."""
    places = range(len(names))
    start = 10 ** (math.floor(math.log10(min(values)) - 0.3))
    ax.hlines(places, start, values, colors=colours, linewidth=2, alpha=0.4)
    ax.scatter(values, places, c=colours, s=28, zorder=3)
    ax.set_yticks(places, names, fontsize=8)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xscale("log")
    ax.grid(axis="y", visible=False)
    ax.set_xlim(start, max(values) * (max(values) / start) ** 0.4)
    ax.xaxis.set_minor_formatter(NullFormatter())
    for place, value, text in zip(places, values, texts, strict=True):
        ax.annotate(
            text, (value, place), (7, 0), textcoords="offset points", va="center", fontsize=8
        )


def lines(
    ax: Axes,
    cells: Sequence[Cell],
    key: str,
    styles: Mapping[str, tuple[str, str]],
    *,
    log_x: bool = True,
) -> None:
    """Seconds of every alternative against one entry of the case, with quartiles shaded."""
    for name, (colour, style) in styles.items():
        found = [cell for cell in cells if "median" in cell["alternatives"].get(name, {})]
        if not found:
            continue
        entries = [cell["alternatives"][name] for cell in found]
        at = [cell["case"][key] for cell in found]
        middle, low, high = ([e[k] for e in entries] for k in ("median", "q25", "q75"))
        ax.plot(at, middle, style, color=colour, marker="o", markersize=3, label=name)
        ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.set_yscale("log")
    if log_x:
        ax.set_xscale("log")
    at = sorted({cell["case"][key] for cell in cells})
    ax.set_xticks(at, [f"{value:,}" for value in at])
    ax.xaxis.set_minor_locator(NullLocator())
