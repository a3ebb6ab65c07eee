"""How fast is a SIKA layer beside GPyTorch's models with as many inducing points?

Regression with one output: SVGP and additive KISS-GP. Classification with ten: SVGP and the SVDKL
head. M = 129 for all of them, inputs on the unit interval, one training step is the ELBO (20
samples of the softmax) with its gradients, prediction gives mean and variance of f.
"""

import itertools
from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from benchmarks import figures, workloads
from benchmarks.cpu_levels import PREDICTION, TRAINING
from benchmarks.harness import Alternative, Settings, compare
from benchmarks.results import Case, Cell, Result, make_cell, median, ratio
from benchmarks.tables import Table, format_ratio, format_seconds
from sikagp import objectives
from sikagp.experiments.methods.gpytorch_models import SVGP, AdditiveKISSGP, SVDKLHead

LEVEL, SAMPLES, NUM_DATA = 7, 20, 50_000
REGRESSION, CLASSIFICATION = "regression", "classification"
SIKA = "SIKALayer"


def cases(settings: Settings) -> list[Case]:
    """Both tasks, for few and for many features."""
    widths = (8,) if settings.quick else (16, 128)
    return [
        {"task": task, "work": work, "B": 128, "D": D, "O": 1 if task == REGRESSION else 10}
        for task in (REGRESSION, CLASSIFICATION)
        for D in widths
        for work in (PREDICTION, TRAINING)
    ]


def models(case: Case, settings: Settings) -> dict[str, nn.Module]:
    """Return the models of one task."""
    D, points = case["D"], 2**LEVEL + 1
    found: dict[str, nn.Module] = {
        SIKA: workloads.make_layer(D, case["O"], LEVEL, settings),
        "SVGP": SVGP(D, case["O"], points),
    }
    if case["task"] == REGRESSION:
        found["additive KISS-GP"] = AdditiveKISSGP(D, points)
    else:
        found["SVDKL head"] = SVDKLHead(D, points)
    return {name: model.to(settings.device) for name, model in found.items()}


def make_likelihood(name: str, case: Case) -> gpytorch.likelihoods.Likelihood:
    """Return Gaussian noise or a softmax; the SVDKL head's mixes features into classes."""
    if case["task"] == REGRESSION:
        return gpytorch.likelihoods.GaussianLikelihood()
    mixes = name == "SVDKL head"
    return gpytorch.likelihoods.SoftmaxLikelihood(
        num_features=case["D"] if mixes else None, num_classes=case["O"], mixing_weights=mixes
    )


def training_step(name: str, model: nn.Module, case: Case, x: Tensor) -> Callable[[], object]:
    """ELBO and gradients of all parameters and of x."""
    model.train()
    likelihood = make_likelihood(name, case).to(x.device)
    library = objectives if name == SIKA else gpytorch.mlls
    elbo = library.VariationalELBO(likelihood, model, NUM_DATA)
    x = x.detach().requires_grad_()
    rows = len(x)
    targets = {REGRESSION: torch.randn(rows), CLASSIFICATION: torch.randint(case["O"], (rows,))}
    y = targets[case["task"]].to(x.device)
    inputs = [x, *(p for p in elbo.parameters() if p.requires_grad)]

    def step() -> object:
        with gpytorch.settings.num_likelihood_samples(SAMPLES):
            loss = elbo(model(x), y)
        return torch.autograd.grad(loss, inputs, allow_unused=True)

    return step


def prediction(model: nn.Module, x: Tensor) -> Callable[[], object]:
    """Mean and variance of f; GPyTorch may keep what does not depend on x."""
    model.eval()

    def predict() -> tuple[Any, Any]:
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            q = model(x)
            return q.mean, q.variance

    return predict


def measure(case: Case, settings: Settings) -> Cell:
    """Time the models of one task."""
    x = workloads.make_rows(case["B"], case["D"], settings)
    calls = {}
    for name, model in models(case, settings).items():
        trains = case["work"] == TRAINING
        run = training_step(name, model, case, x) if trains else prediction(model, x)
        calls[name] = Alternative(run)
    return make_cell(case, compare(calls, settings), baseline=SIKA)


def tables(result: Result) -> list[Table]:
    """Return seconds of all models and how much slower the peers are."""
    rows = []
    for cell in result["cells"]:
        case = cell["case"]
        for name in cell["alternatives"]:
            seconds, factor = format_seconds(median(cell, name)), format_ratio(ratio(cell, name))
            rows.append([case["task"], case["work"], str(case["D"]), name, seconds, factor])
    header = ["task", "work", "D", "model", "time", "against SIKALayer"]
    return [Table("One batch of 128 rows, 129 inducing points", header, rows)]


def draw(result: Result) -> Figure:
    """One panel per task and kind of work, at the largest number of features."""
    widest = max(cell["case"]["D"] for cell in result["cells"])
    cells = [cell for cell in result["cells"] if cell["case"]["D"] == widest]
    figure, panels = figures.grid(len(cells) // 2, 2, size=(4.2, 1.6))
    for ax, cell in zip(itertools.chain(*panels), cells, strict=True):
        names = [name for name in cell["alternatives"] if "median" in cell["alternatives"][name]]
        values = [median(cell, name) for name in names]
        colours = [figures.BLUE if name == SIKA else figures.GREY for name in names]
        figures.dots(ax, names, values, list(map(format_seconds, values)), colours)
        ax.set(title=f"{cell['case']['task']}, {cell['case']['work']}", xlabel="seconds")
    figure.suptitle(f"128 rows, {widest} features, 129 inducing points", fontsize=10)
    return figure
