"""Pictures of uncertainty: is it calibrated, and does it find what is out of distribution."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sikagp.metrics import covered, reliability_bins
from sikagp.plots.drawing import (
    BAND_OPACITY,
    BLUE,
    GREY,
    SKY,
    VERMILLION,
    Values,
    as_array,
    as_vector,
    axes_or_new,
    draw_diagonal,
)
from sikagp.validation import check_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_reliability(
    probs: Values, target: Values, *, num_bins: int = 15, ax: "Axes | None" = None
) -> "Axes":
    """Draw accuracy against confidence with the gap of every bin; the title gives the ECE.

    Args:
        probs: class probabilities, shape (rows, classes).
        target: class labels, shape (rows,).
        num_bins: number of equal bins of the confidence; a bin without rows has no bar.
        ax: where to draw.
    """
    ax = axes_or_new(ax, square=True)
    bins = reliability_bins(torch.as_tensor(probs), torch.as_tensor(target), num_bins=num_bins)
    filled = bins.rows > 0
    left, accuracy, confidence = (
        as_array(values[filled])
        for values in (bins.edges[:-1], bins.accuracy, bins.mean_confidence)
    )
    bar: dict[str, Any] = {"width": 1 / num_bins, "align": "edge", "linewidth": 0.8}
    gap: dict[str, Any] = {"facecolor": "none", "edgecolor": VERMILLION, "hatch": "////"}
    ax.bar(left, accuracy, color=SKY, edgecolor="white", label="accuracy", **bar)
    ax.bar(left, confidence - accuracy, bottom=accuracy, label="gap to confidence", **bar, **gap)
    draw_diagonal(ax)
    ax.set(xlabel="confidence", ylabel="accuracy", title=f"ECE {100 * float(bins.ece):.1f}%")
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False, columnspacing=1
    )
    return ax


def plot_coverage(pit: Values, *, num_levels: int = 99, ax: "Axes | None" = None) -> "Axes":
    """Draw how many targets the central intervals cover, against how many they should.

    The grey band holds, at each level, 95% of what a calibrated model would show for as many
    independent targets.

    Args:
        pit: of any shape, from :func:`sikagp.metrics.pit` or :func:`sikagp.metrics.mixture_pit`.
        num_levels: number of nominal levels, evenly spaced inside (0, 1).
        ax: where to draw.
    """
    ax = axes_or_new(ax, square=True)
    values = torch.as_tensor(as_vector("pit", pit))
    nominal = np.arange(1, check_count("num_levels", num_levels) + 1) / (num_levels + 1)
    observed = [float(covered(values, float(level))) for level in nominal]
    noise = 1.96 * np.sqrt(nominal * (1 - nominal) / len(values))
    low, high = np.clip(nominal - noise, 0, 1), np.clip(nominal + noise, 0, 1)
    shade: dict[str, Any] = {"color": GREY, "alpha": BAND_OPACITY, "linewidth": 0}
    ax.fill_between(nominal, low, high, label="sampling noise, 95%", **shade)
    draw_diagonal(ax)
    ax.plot(nominal, observed, color=BLUE, linewidth=2, label="observed")
    ax.set(xlabel="nominal coverage", ylabel="observed coverage")
    ax.legend(frameon=False)
    return ax


def plot_entropy(
    inside: Values, outside: Values, *, num_bins: int = 30, ax: "Axes | None" = None
) -> "Axes":
    """Draw how predictive entropy is distributed in and out of distribution.

    Args:
        inside: entropies of rows like the training data, shape (rows,).
        outside: entropies of other rows, shape (other_rows,).
        num_bins: number of bins, the same for both.
        ax: where to draw.
    """
    ax = axes_or_new(ax)
    groups = {
        "in distribution": (as_vector("inside", inside), BLUE, "-"),
        "out of distribution": (as_vector("outside", outside), VERMILLION, "--"),
    }
    high = max(values.max() for values, _, _ in groups.values())
    edges = np.linspace(0, high if high > 0 else 1, check_count("num_bins", num_bins) + 1)
    for label, (values, color, line) in groups.items():
        share, _ = np.histogram(values, edges, weights=np.full(len(values), 1 / len(values)))
        ax.stairs(share, edges, fill=True, color=color, alpha=BAND_OPACITY)
        ax.stairs(share, edges, color=color, linestyle=line, linewidth=1.5, label=label)
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of rows", xlim=(0, edges[-1]))
    ax.legend(frameon=False)
    return ax
