"""Pictures of functions: a fit of one input, and the effects of an additive model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sikagp.plots.drawing import (
    BLACK,
    GREY,
    Values,
    as_array,
    as_columns,
    axes_or_new,
    draw_band,
    in_order,
    new_panels,
    opens_row,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_fit(
    x: Values,
    mean: Values,
    variance: Values,
    *,
    level: float = 0.95,
    data: tuple[Values, Values] | None = None,
    truth: Values | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a function of one input with its central interval.

    Args:
        x: inputs in any order, shape (points,).
        mean: predictive means, shape (points,).
        variance: predictive variances, shape (points,).
        level: probability of the band.
        data: inputs and targets to draw as dots, shape (rows,) each.
        truth: the true function at ``x`` where it is known, shape (points,).
        ax: where to draw.
    """
    ax = axes_or_new(ax)
    draw_band(ax, x, mean, variance, level)
    if truth is not None:
        points, values = in_order(*as_columns(x=x, truth=truth))
        ax.plot(points, values, "--", color=BLACK, linewidth=1.2, label="truth")
    if data is not None:
        inputs, targets = as_columns(inputs=data[0], targets=data[1])
        ax.plot(inputs, targets, ".", color=BLACK, markersize=4, alpha=0.5, label="data")
    ax.set(xlabel="x", ylabel="y")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
    return ax


def plot_component(
    grid: Values,
    mean: Values,
    variance: Values,
    *,
    level: float = 0.95,
    name: str = "x",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the effect of one feature with its band; all of shape (points,)."""
    ax = axes_or_new(ax)
    ax.axhline(0, color=GREY, linewidth=0.8, zorder=0)
    draw_band(ax, grid, mean, variance, level)
    ax.set(xlabel=name, ylabel=f"effect ({100 * level:g}% band)")
    return ax


def plot_components(
    grid: Values,
    mean: Values,
    variance: Values,
    *,
    level: float = 0.95,
    names: Sequence[str] | None = None,
    axes: Sequence["Axes"] | None = None,
) -> list["Axes"]:
    """Draw the effects of an additive model, one panel per feature on a common vertical scale.

    Args:
        grid: inputs of each feature, shape (points, features).
        mean: effects of each feature, shape (points, features).
        variance: variances of the effects, shape (points, features).
        level: probability of the bands.
        names: one per feature; by default x0, x1, ...
        axes: one per feature; a new figure if none are given.
    """
    curves = [as_array(values) for values in (grid, mean, variance)]
    if curves[0].ndim != 2 or len({values.shape for values in curves}) > 1 or not curves[0].size:
        shapes = ", ".join(str(values.shape) for values in curves)
        raise ValueError(f"expected one shape (points, features) for all, got {shapes}")
    num_features = curves[0].shape[1]
    names = [f"x{d}" for d in range(num_features)] if names is None else list(names)
    axes = new_panels(num_features) if axes is None else list(axes)
    if not len(names) == len(axes) == num_features:
        raise ValueError(
            f"expected one name and one Axes for each of {num_features} features, "
            f"got {len(names)} names and {len(axes)} Axes"
        )
    for d, (name, ax) in enumerate(zip(names, axes, strict=True)):
        plot_component(*(values[:, d] for values in curves), level=level, name=name, ax=ax)
        if not opens_row(ax):
            ax.set_ylabel("")
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return axes
