"""Fit regressor and classifier to data that ship with scikit-learn, beside other models.

    python examples/demo.py --out build/demo

writes ``report.html``, one file that opens offline: tables, figures, timings and versions. The
figures also stand beside it. ``--quick`` trains everything briefly.
"""

import argparse
import base64
import contextlib
import datetime
import importlib.metadata
import io
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import jinja2
import matplotlib.pyplot as plt
import numpy as np
import one_layer
import torch
from compare_estimators import CLASSIFICATION, compare, load
from sklearn.datasets import load_diabetes

from sikagp import plots
from sikagp.estimators import SIKAClassifier, SIKARegressor

DATA = ("diabetes", "friedman1", "breast_cancer", "wine")
PACKAGES = ("sikagp", "torch", "gpytorch", "lightning", "scikit-learn", "numpy", "numba")
NOTES = {
    "Regression": "RMSE in units of the target; coverage is the share of test targets inside the "
    "95% interval. Baselines: default settings, standardised inputs and targets; Gaussian "
    "processes with an ARD kernel.",
    "Classification": "Accuracy and negative log likelihood of the test labels.",
}


def scores(names: tuple[str, ...], seed: int, *, quick: bool) -> list[dict[str, Any]]:
    """Compare on every data set, showing progress."""
    rows = []
    for name in names:
        for row in compare(name, seed, **({"steps": 20, "epochs": 20} if quick else {})):
            quality = row.get("rmse", row.get("accuracy"))
            line = f"  {name:14} {row['model']:26} {quality:8.4f} {row['seconds']:7.1f} s"
            print(line, flush=True)
            rows.append(row)
    return rows


def sections(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tables of the report: one for regression, one for classification."""
    tables = []
    scored = {"Regression": ("rmse", "coverage"), "Classification": ("accuracy", "nll")}
    for title, keys in scored.items():
        chosen = [row for row in rows if (row["data"] in CLASSIFICATION) == ("nll" in keys)]
        cells = [
            [row["data"], row["model"], *(_number(row[key]) for key in (*keys, "seconds"))]
            for row in chosen
        ]
        columns = ["data", "model", *keys, "seconds"]
        tables.append({"title": title, "note": NOTES[title], "columns": columns, "rows": cells})
    return tables


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def draw_effects(path: Path, *, quick: bool) -> None:
    """Effects of an additive model of diabetes, with their bands."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    epochs: Any = 20 if quick else "auto"
    SIKARegressor(hidden=(), max_epochs=epochs, random_state=0).fit(X, y).plot_components()
    plt.savefig(path, dpi=110)
    plt.close("all")


def draw_reliability(path: Path, *, quick: bool) -> None:
    """Calibration of the classifier on held-out rows of the breast cancer data."""
    X, X_test, y, y_test = load("breast_cancer", 0)
    model = SIKAClassifier(max_epochs=20 if quick else "auto", random_state=0).fit(X, y)
    plots.plot_reliability(model.predict_proba(X_test), y_test, num_bins=10)
    plt.savefig(path, dpi=110)
    plt.close("all")


def draw_one_layer(out: Path, steps: int) -> str:
    """Fit a single layer, draw basis and fit, and return what it said."""
    said = io.StringIO()
    with plt.rc_context(one_layer.STYLE), contextlib.redirect_stdout(said):
        x, y = one_layer.observe(one_layer.DATA, 100)
        print(f"Fitting one SIKA layer to {len(x)} noisy points, {steps} steps:")
        layer, likelihood = one_layer.fit(x, y, steps)
        one_layer.score(layer, likelihood)
        one_layer.draw_basis(out / "basis.png")
        one_layer.draw_fit(out / "fit.png", layer, likelihood, (x, y))
    return said.getvalue()


def write_report(out: Path, captions: dict[str, str], **content: Any) -> Path:
    """Fill the template, with all figures inside."""
    figures = [
        {
            "uri": f"data:image/png;base64,{base64.b64encode((out / name).read_bytes()).decode()}",
            "caption": caption,
        }
        for name, caption in captions.items()
    ]
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    template = jinja2.Environment(loader=folder, autoescape=True).get_template("report.html.j2")
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    date = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    path = out / "report.html"
    path.write_text(
        template.render(figures=figures, versions=versions, date=date, **content), encoding="utf-8"
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="train briefly, to see that it runs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    start = time.perf_counter()
    said = draw_one_layer(options.out, 50 if options.quick else 600)
    print(said, end="", flush=True)
    print("Comparing estimators (score and time of each):", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ("diabetes", "wine") if options.quick else DATA
        rows = scores(names, options.seed, quick=options.quick)
        print("Drawing effects and calibration", flush=True)
        draw_effects(options.out / "effects.png", quick=options.quick)
        draw_reliability(options.out / "reliability.png", quick=options.quick)
    captions = {
        "effects.png": "Effect of each feature of the diabetes data on disease progression, with "
        "95% bands: an additive model can be read.",
        "reliability.png": "Calibration of the classifier on held-out breast cancer rows.",
        "fit.png": "One layer on one input: the band widens where there are no data.",
        "basis.png": "The basis functions of a grid of level 3.",
    }
    seconds = time.perf_counter() - start
    path = write_report(
        options.out,
        captions,
        tables=sections(rows),
        one_layer=said,
        seconds=seconds,
        quick=options.quick,
    )
    print(f"Report after {seconds:.0f} s: {path}")


if __name__ == "__main__":
    main()
