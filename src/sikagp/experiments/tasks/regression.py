"""Regression on a table: train on one standard split, score the test rows.

Standardised and raw units are related by the deviation s of the training targets:

    RMSE_raw = s RMSE,    CRPS_raw = s CRPS,    NLPD_raw = NLPD + log s
"""

import math
import time
from typing import Any

from torch import Tensor

from sikagp._typing import Float
from sikagp.calibration import fit_width, widen
from sikagp.experiments.cell import Cell
from sikagp.experiments.data import uci
from sikagp.experiments.methods import Method, build_method
from sikagp.experiments.preparation import TableOptions, prepare
from sikagp.metrics import mixture_coverage, mixture_crps, mixture_moments, mixture_nlpd, nlpd, rmse
from sikagp.mixtures import GaussianMixture


def run(cell: Cell) -> dict[str, Any]:
    """Train and score; returns metrics, timings and the history of training."""
    recipe = cell.recipe
    options = TableOptions(**recipe.data)
    rows = prepare(uci(options.name), options, seed=cell.seed)
    method = build_method(
        recipe.method,
        in_features=rows.train[0].shape[1],
        out_features=1,
        task="regression",
        options=recipe.options,
        training=recipe.training,
        device=cell.device,
    )
    report = method.fit(
        rows.train,
        rows.validation,
        seed=cell.seed,
        folder=cell.folder / "run",
        progress=cell.progress,
    )
    start = time.perf_counter()
    prediction = _mixture(method, rows.test[0])
    predict_seconds = time.perf_counter() - start
    width = 1.0
    if options.calibrate and rows.validation is not None:
        x, y = rows.validation
        width = fit_width(_mixture(method, x), y.unsqueeze(-1))
    return {
        **score(widen(prediction, width), rows.test[1], rows.scale),
        "width": width,
        "fit_seconds": report.seconds,
        "predict_seconds": predict_seconds,
        "epochs": report.epochs,
        "seconds_per_epoch": report.seconds_per_epoch,
        "history": report.history,
    }


def score(
    prediction: GaussianMixture, target: Float[Tensor, " rows"], scale: float
) -> dict[str, float]:
    """Metrics of standardised predictions, in both units."""
    means = prediction.components.mean[..., 0]
    variances = prediction.components.variance[..., 0]
    mean, variance = mixture_moments(means, variances)
    standard = {
        "rmse": rmse(mean, target),
        "crps": mixture_crps(means, variances, target),
        "nlpd": nlpd(mean, variance, target),
        "nlpd_mixture": mixture_nlpd(means, variances, target),
    }
    found = {name: float(value) for name, value in standard.items()}
    raw = {
        f"{name}_raw": value + math.log(scale) if "nlpd" in name else value * scale
        for name, value in found.items()
    }
    coverage = float(mixture_coverage(means, variances, target, level=0.95))
    return {**found, **raw, "coverage": coverage, "target_scale": scale}


def _mixture(method: Method, x: Float[Tensor, "rows features"]) -> GaussianMixture:
    prediction = method.predict(x)
    if not isinstance(prediction, GaussianMixture):
        raise TypeError(f"expected a mixture, but {type(prediction).__name__} was predicted")
    return prediction
