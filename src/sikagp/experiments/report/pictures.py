"""Pictures of the report: those of the runs, and learning curves."""

import io
import math
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes

from sikagp.experiments.figures.style import STYLE, panels
from sikagp.experiments.report.collection import Group
from sikagp.plots.drawing import PALETTE

_STYLES = ("-", "--", ":")  # tell further curves apart


def draw_curves(groups: Sequence[Group]) -> bytes | None:
    """Score of held-out rows (or the loss) against epochs, one panel per data; a PNG."""
    shown = [group for group in groups if any(len(h) > 1 for h in group.histories)]
    if not shown:
        return None
    names = list(dict.fromkeys(group.data for group in shown))
    columns = min(2, len(names))
    rows = math.ceil(len(names) / columns)
    with rc_context(STYLE):
        figure, axes = panels(rows, columns, (4.6 * columns, 3.4 * rows))
        flat = [ax for row in axes for ax in row]
        for ax, data in zip(flat, names, strict=False):
            for number, group in enumerate(g for g in shown if g.data == data):
                _plot(ax, group, number)
            ax.set(title=data, xlabel="epoch", ylabel="negative log density per row")
            ax.legend(fontsize=7)
        for ax in flat[len(names) :]:
            ax.remove()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _plot(ax: Axes, group: Group, number: int) -> None:
    history = max(group.histories, key=len)
    key = "val_loss" if "val_loss" in history[-1] else "loss"
    points = [(i, entry[key]) for i, entry in enumerate(history, 1) if entry.get(key) is not None]
    if not points:
        return
    colour = PALETTE[number % len(PALETTE)]
    style = _STYLES[number // len(PALETTE) % len(_STYLES)]
    label = f"{group.row}, {group.scale}" + (" (training loss)" if key == "loss" else "")
    ax.plot(*zip(*points, strict=True), style, color=colour, lw=1.2, label=label)
