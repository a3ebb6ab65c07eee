"""How long does an epoch of a head take on 15,000 texts whose features are kept on disk?

One step is all of training: linear embedding of 384 features into 256 channels, statistics of the
batch, head for 150 classes, expected log likelihood with 20 samples, KL divergence, gradients and
the update by Adam. An epoch is as many steps as there are batches.
"""

import math
from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from matplotlib.figure import Figure

from benchmarks import figures
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, make_cell, median, ratio
from benchmarks.tables import Table, format_ratio, format_seconds
from sikagp.experiments.methods import Problem
from sikagp.experiments.methods.trained import Trained
from sikagp.objectives import VariationalELBO
from sikagp.training import TrainingConfig
from sikagp.training.optimization import build_optimizer

TEXTS, FEATURES, CLASSES, SAMPLES = 15_000, 384, 150, 20
SIKA = "SIKA, level 7"
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    SIKA: ("sika", {"level": 7}),
    "SIKA, level 4": ("sika", {"level": 4}),
    "dense DAK, level 7": ("dense-dak", {"level": 7}),
    "dense DAK, level 7, fixed kernel": ("dense-dak", {"level": 7, "learn_lengthscale": False}),
    "SVDKL, 128 points": ("svdkl", {"num_points": 128}),
    "linear": ("network", {"hidden": [], "train_samples": 1}),
}


def cases(settings: Settings) -> list[Case]:
    """Small and large batches."""
    if settings.quick:
        return [{"B": 32, "D": 8}]
    return [{"B": rows, "D": 256} for rows in (128, 512)]


def training_step(name: str, case: Case, settings: Settings) -> Callable[[], object]:
    """Return one whole training step of a head."""
    method, options = HEADS[name]
    chosen = {"embedding": case["D"], "train_samples": SAMPLES, **options}
    trained = Trained(method, Problem(FEATURES, CLASSES, "classification", chosen, {}))
    x = torch.randn(case["B"], FEATURES, device=settings.device)
    y = torch.randint(CLASSES, (case["B"],), device=settings.device)
    trained.build((x, y))
    model = trained.model.to(settings.device).train()
    likelihood = trained.likelihood.to(settings.device)
    elbo = VariationalELBO(likelihood, model, TEXTS)
    optimizer = build_optimizer(model, likelihood, TrainingConfig())

    def step() -> None:
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(chosen["train_samples"]):
            loss = -elbo(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def measure(case: Case, settings: Settings) -> Cell:
    """Time all heads for one size of batches."""
    calls = {name: training_step(name, case, settings) for name in HEADS}
    return make_cell(case, compare(calls, settings, limited=False), baseline=SIKA)


def seconds_per_epoch(cell: Cell, name: str) -> float:
    """Time of as many steps as an epoch has."""
    return math.ceil(TEXTS / cell["case"]["B"]) * median(cell, name)


def tables(result: Result) -> list[Table]:
    """Return seconds of a step and an epoch, and how much slower than SIKA a head is."""
    rows = [
        [
            str(cell["case"]["B"]),
            name,
            format_seconds(median(cell, name)),
            format_seconds(seconds_per_epoch(cell, name)),
            format_ratio(ratio(cell, name)),
        ]
        for cell in result["cells"]
        for name in cell["alternatives"]
    ]
    header = ["batch", "head", "step", "epoch", f"against {SIKA}"]
    return [Table("Training a head on the features of 15,000 texts, 150 classes", header, rows)]


def draw(result: Result) -> Figure:
    """One panel per size of batches."""
    figure, (panels,) = figures.grid(1, len(result["cells"]), size=(4.6, 2.2))
    for ax, cell in zip(panels, result["cells"], strict=True):
        names = list(cell["alternatives"])
        values = [seconds_per_epoch(cell, name) for name in names]
        colours = [figures.BLUE if name.startswith("SIKA") else figures.GREY for name in names]
        figures.dots(ax, names, values, list(map(format_seconds, values)), colours)
        ax.set(title=f"batches of {cell['case']['B']}", xlabel="seconds per epoch")
    return figure
