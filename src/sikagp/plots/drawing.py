"""What the pictures share: colours, axes, bands, and conversion to NumPy and to web pages."""

import base64
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sikagp.precision import at_least_float32
from sikagp.validation import check_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values: TypeAlias = Tensor | np.ndarray | Sequence[float]

# Okabe and Ito's palette, which the colour-blind can tell apart.
BLUE, SKY, VERMILLION, BLACK = "#0072B2", "#56B4E9", "#D55E00", "#000000"
PALETTE = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#E69F00", SKY, BLACK)
GREY = "#888888"
BAND_OPACITY = 0.25


def axes_or_new(ax: "Axes | None", *, square: bool = False) -> "Axes":
    """Return the Axes, or those of a new figure, without a box around them."""
    if ax is None:
        from matplotlib import pyplot

        size = (4.2, 4.2) if square else (5.5, 3.6)
        _, ax = pyplot.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def new_panels(count: int) -> list["Axes"]:
    """Rows of up to four panels, as even as can be, with a shared vertical scale."""
    from matplotlib import pyplot

    rows = math.ceil(count / 4)
    columns = math.ceil(count / rows)
    size = (2.6 * columns, 2.3 * rows)
    _, panels = pyplot.subplots(
        rows, columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for spare in panels.flat[count:]:
        spare.remove()
    return list(panels.flat[:count])


def opens_row(ax: "Axes") -> bool:
    """Whether nothing stands to the left of these Axes."""
    place = ax.get_subplotspec()
    return place is None or place.is_first_col()


def draw_band(ax: "Axes", x: Values, mean: Values, variance: Values, level: float) -> None:
    """Draw the mean and the central interval of Gaussians, shape (points,) each."""
    points, center, spread = in_order(*as_columns(x=x, mean=mean, variance=variance))
    if bool((spread < 0).any()):
        raise ValueError(f"variances must not be negative, got {spread.min():g}")
    upper = torch.tensor((1 + check_fraction("level", level)) / 2, dtype=torch.float64)
    half = torch.special.ndtri(upper).item() * np.sqrt(spread)
    shade: dict[str, Any] = {"color": BLUE, "alpha": BAND_OPACITY, "linewidth": 0}
    ax.fill_between(
        points, center - half, center + half, label=f"{100 * level:g}% interval", **shade
    )
    ax.plot(points, center, color=BLUE, linewidth=1.8, label="mean")


def draw_diagonal(ax: "Axes") -> None:
    """Draw where a calibrated model lies, on the unit square."""
    ax.plot([0, 1], [0, 1], "--", color=BLACK, linewidth=1, label="calibrated")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def as_uri(png: bytes) -> str:
    """Write a picture into a page."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def as_array(values: Values) -> np.ndarray:
    """Return the values as NumPy array of the same shape."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    # NumPy has no bfloat16.
    return (at_least_float32(values) if values.is_floating_point() else values).numpy()


def as_vector(name: str, values: Values) -> np.ndarray:
    """Flatten to shape (values,); there must be something to draw."""
    array = as_array(values).reshape(-1)
    if len(array) == 0:
        raise ValueError(f"{name} is empty: there is nothing to draw")
    return array


def as_columns(**values: Values) -> list[np.ndarray]:
    """Flatten all to shape (points,); they must have one length."""
    arrays = {name: as_vector(name, column) for name, column in values.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        listed = ", ".join(f"{len(array)} of {name}" for name, array in arrays.items())
        raise ValueError(f"expected as many values of each, got {listed}")
    return list(arrays.values())


def in_order(points: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """Sort all by the first, shape (points,) each."""
    order = points.argsort(kind="stable")
    return [array[order] for array in (points, *values)]
