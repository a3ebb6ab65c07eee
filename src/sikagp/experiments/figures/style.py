"""What the figures share: colours, and panels without boxes."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREY, INK = "#1b5e9e", "#d9660b", "#9aa5b1", "#262626"
STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "mathtext.fontset": "cm",
    "savefig.dpi": 140,
}


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of the given size in inches and its panels, row by row."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options).tolist()
