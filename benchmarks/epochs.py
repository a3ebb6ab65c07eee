"""How long does an epoch of training take?

Works: a head on the kept features of 15,000 texts (384 features, embedded into 256 channels, 150
classes) and of 50,000 images (64 features, 10 classes; with learned kernels and with fixed ones),
the paper's whole network for 60,000 digits with each head (64 channels), and the paper's deep
Gaussian process on tables of the size of kin40k and protein (two hidden layers of 64, 10 samples).

One step is all of training: model, expected log likelihood (of a head with 20 samples), KL
divergence, gradients and the update by Adam. An epoch is as many steps as there are batches.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gpytorch
import torch
from matplotlib.figure import Figure

from benchmarks import figures
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, make_cell, median, ratio
from benchmarks.tables import Table, format_ratio, format_seconds
from sikagp.experiments.backbones.digits import DigitsCNN
from sikagp.experiments.methods import Problem
from sikagp.experiments.methods.base import Task
from sikagp.experiments.methods.trained import Trained
from sikagp.objectives import VariationalELBO
from sikagp.training import TrainingConfig
from sikagp.training.optimization import build_optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Data of a certain size, and models for it.

    Attributes:
        title: what is trained on what.
        rows: in an epoch.
        features: of a row, as heads get them.
        outputs: targets or classes.
        task: regression or classification.
        options: of all models.
        models: method and options of each; times are compared with the first.
        batches: their sizes.
        picture: what a row is, if the options have a backbone that makes features of it.
    """

    title: str
    rows: int
    features: int
    outputs: int
    task: Task
    options: Mapping[str, Any]
    models: Mapping[str, tuple[str, Mapping[str, Any]]]
    batches: Sequence[int] = (128, 512, 1024)
    picture: Sequence[int] = ()


FIXED: Mapping[str, Any] = {"level": 7, "learn_lengthscale": False}
HEADS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "SIKA, level 7": ("sika", {"level": 7}),
    "SIKA, level 4": ("sika", {"level": 4}),
    "dense DAK, level 7": ("dense-dak", {"level": 7}),
    "dense DAK, level 7, fixed kernel": ("dense-dak", FIXED),
    "SVDKL, 128 points": ("svdkl", {"num_points": 128}),
    "linear": ("network", {"hidden": [], "train_samples": 1}),
}
FIXED_HEADS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "SIKA": ("sika", {"residual": "none", **FIXED}),
    "SIKA, weights drawn": ("paper-sika", {"hidden": [], "num_samples": [20, 20]}),
    "dense DAK": ("dense-dak", FIXED),
    "dense DAK, weights drawn": ("dense-dak", {"num_draws": 20, **FIXED}),
}
WHOLE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plain": ("network", {"hidden": [], "train_samples": 1}),
    **{
        name: (method, {"embedding": 64, **options})
        for name, (method, options) in HEADS.items()
        if method != "network"
    },
}
DEEP: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "DGP-SIKA, level 7": ("paper-sika", {}),
    "dense DGP, level 7": (
        "dense-dgp",
        {"level": 7, "learn_lengthscale": False, "mean_function": "none"},
    ),
}


def _deep_work(data: str, *, rows: int, features: int) -> Work:
    """Return the paper's deep Gaussian process on a table."""
    return Work(
        title=f"The paper's deep Gaussian process on {data}, {rows:,} rows of {features} features",
        rows=rows,
        features=features,
        outputs=1,
        task="regression",
        options={"hidden": [64, 64], "num_samples": [10, 20]},
        models=DEEP,
        batches=(512,),
    )


_IMAGES = Work(
    title="Heads on the features of 50,000 images, 64 channels, 10 classes",
    rows=50_000,
    features=64,
    outputs=10,
    task="classification",
    options={"normalisation": "batch", "train_samples": 20},
    models=HEADS,
)
WORKS = {
    "texts": Work(
        title="Heads on the features of 15,000 texts, 256 channels, 150 classes",
        rows=15_000,
        features=384,
        outputs=150,
        task="classification",
        options={"embedding": 256, "train_samples": 20},
        models=HEADS,
    ),
    "images": _IMAGES,
    "images, fixed": dataclasses.replace(
        _IMAGES,
        title="The same with kernels that are fixed, as in the paper: level 7, no residual",
        models=FIXED_HEADS,
    ),
    "digits": Work(
        title="The paper's network for 60,000 digits, whole",
        rows=60_000,
        features=DigitsCNN.num_features,
        outputs=10,
        task="classification",
        options={"backbone": DigitsCNN, "train_samples": 20},
        models=WHOLE,
        batches=(128,),
        picture=(1, 28, 28),
    ),
    "kin40k": _deep_work("kin40k", rows=36_000, features=8),
    "protein": _deep_work("protein", rows=41_157, features=9),
}
_QUICK = {"classification": {"embedding": 8}, "regression": {"hidden": [4, 4]}}


def cases(settings: Settings) -> list[Case]:
    """Every work with every size of its batches."""
    if settings.quick:
        return [{"work": work, "B": 32} for work in WORKS]
    return [{"work": name, "B": B} for name, work in WORKS.items() for B in work.batches]


def training_step(name: str, case: Case, settings: Settings) -> Callable[[], object]:
    """Return one whole training step of a model."""
    work = WORKS[case["work"]]
    method, options = work.models[name]
    chosen = {**work.options, **options, **(_QUICK[work.task] if settings.quick else {})}
    trained = Trained(method, Problem(work.features, work.outputs, work.task, chosen, {}))
    x = torch.randn(case["B"], *(work.picture or [work.features]))
    classes = torch.randint(work.outputs, (case["B"],))
    y = classes if work.task == "classification" else torch.randn(case["B"])
    trained.build((x, y))
    x, y = x.to(settings.device), y.to(settings.device)
    model = trained.model.to(settings.device).train()
    likelihood = trained.likelihood.to(settings.device)
    elbo = VariationalELBO(likelihood, model, work.rows)
    optimizer = build_optimizer(model, likelihood, TrainingConfig())

    def step() -> None:
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(trained.setting.train_samples):
            loss = -elbo(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def measure(case: Case, settings: Settings) -> Cell:
    """Time all models of one work for one size of batches."""
    models = WORKS[case["work"]].models
    calls = {name: training_step(name, case, settings) for name in models}
    return make_cell(case, compare(calls, settings, limited=False), baseline=next(iter(models)))


def seconds_per_epoch(cell: Cell, name: str) -> float:
    """Time of as many steps as an epoch has."""
    return math.ceil(WORKS[cell["case"]["work"]].rows / cell["case"]["B"]) * median(cell, name)


def tables(result: Result) -> list[Table]:
    """Return seconds of a step and an epoch, and how much slower than ours a model is."""
    found = []
    for name, work in WORKS.items():
        rows = [
            [
                str(cell["case"]["B"]),
                model,
                format_seconds(median(cell, model)),
                format_seconds(seconds_per_epoch(cell, model)),
                format_ratio(ratio(cell, model)),
            ]
            for cell in result["cells"]
            if cell["case"]["work"] == name
            for model in cell["alternatives"]
        ]
        header = ["batch", "model", "step", "epoch", f"against {next(iter(work.models))}"]
        found.append(Table(work.title, header, rows))
    return found


def draw(result: Result) -> Figure:
    """One panel per case."""
    columns = 2
    cells = result["cells"]
    figure, panels = figures.grid(math.ceil(len(cells) / columns), columns, size=(4.6, 2.2))
    axes = list(itertools.chain.from_iterable(panels))
    for ax in axes[len(cells) :]:
        ax.remove()
    for ax, cell in zip(axes, cells, strict=False):
        names = list(cell["alternatives"])
        values = [seconds_per_epoch(cell, name) for name in names]
        colours = [figures.BLUE if "SIKA" in name else figures.GREY for name in names]
        figures.dots(ax, names, values, list(map(format_seconds, values)), colours)
        case = cell["case"]
        ax.set(title=f"{case['work']}, batches of {case['B']}", xlabel="seconds per epoch")
    return figure
