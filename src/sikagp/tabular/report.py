"""One page that says how well a model does, readable offline."""

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import torch

from sikagp import metrics, plots
from sikagp.plots.drawing import as_uri, axes_or_new
from sikagp.tabular.evaluation import Evaluation, class_probabilities
from sikagp.tabular.model import TabularModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 12
SCORES = {
    "rmse": "root mean squared error",
    "rmse_of_the_mean": "the same, if the mean of the training rows is predicted",
    "nlpd": "negative log predictive density (lower is better)",
    "coverage_95": "share of targets inside their 95% interval (should be near 0.95)",
    "accuracy": "share of rows with the right label",
    "accuracy_of_the_most_common": "the same, if the most common label is predicted",
    "nll": "negative log likelihood of the right label (lower is better)",
    "ece": "expected calibration error (0 is perfect)",
}


def write_report(
    path: Path, model: TabularModel, evaluation: Evaluation, summary: dict[str, Any]
) -> None:
    """Write scores and figures as one HTML file."""
    loader = jinja2.PackageLoader("sikagp.tabular", ".")
    template = jinja2.Environment(loader=loader, autoescape=True).get_template("report.html.j2")
    scores = [(SCORES[name], f"{value:.4g}") for name, value in summary["scores"].items()]
    figures = [
        {"caption": caption, "uri": _as_uri(ax)} for caption, ax in _figures(model, evaluation)
    ]
    page = template.render(
        summary=summary, scores=scores, figures=figures, columns=model.schema.columns
    )
    path.write_text(page, encoding="utf-8")


def _figures(model: TabularModel, evaluation: Evaluation) -> list[tuple[str, "Axes"]]:
    figures = []
    if model.task == "regression":
        figures += [
            ("Predictions of the test rows with 95% intervals", _predicted(evaluation)),
            (
                "Intervals of every level: how many targets they should hold and do",
                _covered(evaluation),
            ),
        ]
    else:
        rows = class_probabilities(model, evaluation.predictions, evaluation.target)
        ax = plots.plot_reliability(*rows)
        figures.append(("Confidence on the test rows, and how often it is right", ax))
    if hasattr(model.estimator, "feature_importances_"):
        order = np.argsort(-model.estimator.feature_importances_)[:MAX_PANELS]
        axes = model.estimator.plot_components([int(d) for d in order])
        figures.append(("Effect of each feature, most important first", axes[0]))
    return figures


def _predicted(evaluation: Evaluation) -> "Axes":
    ax = axes_or_new(None)
    predictions, target = evaluation.predictions, evaluation.target
    spread = [
        predictions["mean"] - predictions["lower"],
        predictions["upper"] - predictions["mean"],
    ]
    ax.errorbar(target, predictions["mean"], yerr=spread, fmt=".", alpha=0.4, linewidth=0.8)
    ends = [
        min(target.min(), predictions["mean"].min()),
        max(target.max(), predictions["mean"].max()),
    ]
    ax.plot(ends, ends, "--", color="black", linewidth=1)
    ax.set(xlabel="observed", ylabel="predicted")
    return ax


def _covered(evaluation: Evaluation) -> "Axes":
    mean, std, y = (
        torch.tensor(values)
        for values in (
            evaluation.predictions["mean"],
            evaluation.predictions["std"],
            evaluation.target,
        )
    )
    return plots.plot_coverage(metrics.pit(mean, std.square(), y))


def _as_uri(ax: "Axes") -> str:
    """The figure that the Axes belong to, as an image inside the page."""
    from matplotlib import pyplot

    content, figure = io.BytesIO(), ax.get_figure(root=True)
    with warnings.catch_warnings():
        # Names of columns may be in a script that the font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(content, format="png", dpi=110)  # type: ignore[union-attr]
    pyplot.close(figure)
    return as_uri(content.getvalue())
