"""What does a SIKA head cost instead of nn.Linear, alone and in a whole training step?

A head's part of a step is all that the head adds: normalised features, forward pass, loss with 20
samples, KL divergence, backward pass to the features, and the update of its parameters. It is timed
inside whole steps, where the backbone has just emptied the caches. The embedding below the head
belongs to the backbone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gpytorch
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from benchmarks import backbones, figures, harness, workloads
from benchmarks.harness import Settings, Spread, compare
from benchmarks.results import Case, Cell, Result, make_cell, median, ratio, select
from benchmarks.tables import Table, format_ratio, format_seconds, format_share
from sikagp import RunningDomain, SIKALayer
from sikagp.objectives import VariationalELBO

LINEAR, SIKA = "nn.Linear", "SIKALayer"
SIZES = ((128, 10), (512, 100), (256, 150))
SAMPLES, NUM_DATA, LEVEL = 20, 50_000, 7


class Backbone(NamedTuple):
    """What lies below a head: how to make it, the shape of a row, features, classes, batches."""

    make: Callable[..., nn.Module]
    shape: tuple[int, ...]
    width: int
    classes: int
    rows: int
    quick_rows: int


BACKBONES = {
    "ResNet-18": Backbone(backbones.resnet18, (3, 32, 32), 128, 10, 128, 8),
    "MNIST CNN": Backbone(backbones.mnist_cnn, (1, 28, 28), 64, 10, 64, 64),
    "DistilBERT layers": Backbone(backbones.transformer, (48, 768), 256, 150, 32, 2),
}
ALONE, WHOLE = "head alone", "whole step"


@dataclass
class Head:
    """A last layer with its loss and its optimiser."""

    layer: nn.Module
    loss: Callable[[Any, Tensor], Tensor]

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step(self, features: Tensor, y: Tensor) -> Tensor:
        """Train on one batch; returns the gradient of the features."""
        features = features.detach().requires_grad_()
        self.optimizer.zero_grad()
        self.loss(self.layer(features), y).backward()
        self.optimizer.step()
        return features.grad


def make_head(name: str, in_features: int, out_features: int, device: str = "cpu") -> Head:
    """Return a linear head with cross entropy, or a SIKA head with the softmax ELBO."""
    if name == LINEAR:
        return Head(nn.Linear(in_features, out_features, device=device), nn.CrossEntropyLoss())
    domain = RunningDomain(in_features)
    layer = SIKALayer(in_features, out_features, level=LEVEL, domain=domain, device=device)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_classes=out_features, mixing_weights=False
    )
    elbo = VariationalELBO(likelihood, layer, NUM_DATA)

    def loss(marginals: Any, y: Tensor) -> Tensor:
        with gpytorch.settings.num_likelihood_samples(SAMPLES):
            return -elbo(marginals, y)

    return Head(layer, loss)


def cases(settings: Settings) -> list[Case]:
    """Heads alone, then on backbones."""
    sizes = SIZES[:2] if settings.quick else SIZES
    alone = [{"kind": ALONE, "B": 128, "D": D, "O": out} for D, out in sizes]
    whole = [
        {
            "kind": WHOLE,
            "backbone": name,
            "B": backbone.quick_rows if settings.quick else backbone.rows,
            "D": backbone.width,
            "O": backbone.classes,
        }
        for name, backbone in BACKBONES.items()
    ]
    return alone + whole


def measure(case: Case, settings: Settings) -> Cell:
    """Time one head against the other."""
    return (measure_alone if case["kind"] == ALONE else measure_whole)(case, settings)


def measure_alone(case: Case, settings: Settings) -> Cell:
    """Time training steps and predictions of heads on given features."""
    features = torch.randn(case["B"], case["D"], device=settings.device)
    y = torch.randint(case["O"], (case["B"],), device=settings.device)
    calls: dict[str, Callable[[], object]] = {}
    for name in (LINEAR, SIKA):
        head = make_head(name, case["D"], case["O"], settings.device)
        calls[f"{name}, training"] = lambda head=head: head.step(features, y)
        ready = make_head(name, case["D"], case["O"], settings.device).layer.eval()
        predict = workloads.without_gradients(lambda ready=ready: ready(features))
        calls[f"{name}, prediction"] = predict
    comparison = compare(calls, settings, limited=False)
    values = {
        work: comparison.ratio(f"{SIKA}, {work}", f"{LINEAR}, {work}")._asdict()
        for work in ("training", "prediction")
    }
    return make_cell(case, comparison, values=values)


def measure_whole(case: Case, settings: Settings) -> Cell:
    """Time whole training steps and the head's part in them; heads take turns."""
    make, shape, width, *_ = BACKBONES[case["backbone"]]
    backbone = make(width).to(settings.device)
    optimizer = torch.optim.SGD(backbone.parameters(), lr=1e-3, momentum=0.9, fused=True)
    x = torch.randn(case["B"], *shape, device=settings.device)
    y = torch.randint(case["O"], (case["B"],), device=settings.device)
    heads = {name: make_head(name, width, case["O"], settings.device) for name in (LINEAR, SIKA)}
    parts: dict[str, list[float]] = {name: [] for name in heads}

    def step(name: str) -> None:
        optimizer.zero_grad()
        features = backbone(x)
        settings.synchronise()
        start = harness.clock()
        gradient = heads[name].step(features, y)
        settings.synchronise()
        parts[name].append(harness.clock() - start)
        features.backward(gradient)
        optimizer.step()

    calls = {name: lambda name=name: step(name) for name in heads}
    comparison = compare(calls, settings, limited=False)
    return make_cell(case, comparison, baseline=LINEAR, values=_shares(parts, comparison))


def _shares(parts: dict[str, list[float]], comparison: harness.Comparison) -> dict[str, Any]:
    """Seconds of each head, and how much longer a step takes for the SIKA head."""
    seconds = {name: Spread.of(values[2:]) for name, values in parts.items()}  # warm-up aside
    whole = comparison.seconds(LINEAR).median
    extra = [(value - seconds[LINEAR].median) / whole for value in parts[SIKA][2:]]
    return {
        **{f"{name} part": spread._asdict() for name, spread in seconds.items()},
        "overhead": Spread.of(extra)._asdict(),
    }


def tables(result: Result) -> list[Table]:
    """Heads alone, and their part of whole steps."""
    alone = [
        [f"{cell['case']['D']} to {cell['case']['O']}", work]
        + [format_seconds(median(cell, f"{name}, {work}")) for name in (LINEAR, SIKA)]
        + [format_ratio(cell["values"][work]["median"])]
        for cell in select(result, kind=ALONE)
        for work in ("prediction", "training")
    ]
    whole = [
        [
            f"{cell['case']['backbone']}, B={cell['case']['B']}",
            *(format_seconds(median(cell, name)) for name in (LINEAR, SIKA)),
            *(format_seconds(cell["values"][f"{name} part"]["median"]) for name in (LINEAR, SIKA)),
            format_share(cell["values"]["overhead"]["median"]),
            format_share(ratio(cell, SIKA) - 1),
        ]
        for cell in select(result, kind=WHOLE)
    ]
    return [
        Table("Heads alone, B = 128", ["head", "work", LINEAR, SIKA, "ratio"], alone),
        Table(
            "Whole training steps",
            ["backbone", f"step, {LINEAR}", f"step, {SIKA}", f"{LINEAR} part", f"{SIKA} part",
             "overhead", "difference of steps"],
            whole,
            "Overhead: difference of the heads' parts over the step with nn.Linear. The difference "
            "of whole steps measures the same, with the backbone's noise on top.",
        ),
    ]  # fmt: skip


def draw(result: Result) -> Figure:
    """Seconds of a head alone, and of whole steps."""
    figure, panels = figures.grid(1, 2, size=(4.6, 3.0))
    names, values = [], []
    for cell in select(result, kind=ALONE):
        for name in (LINEAR, SIKA):
            names.append(f"{cell['case']['D']} to {cell['case']['O']}, {name}")
            values.append(median(cell, f"{name}, training"))
    colours = [figures.GREY, figures.BLUE] * (len(names) // 2)
    figures.dots(panels[0][0], names, values, list(map(format_seconds, values)), colours)
    panels[0][0].set(title="training step of a head alone, B = 128", xlabel="seconds")
    names, values, texts = [], [], []
    for cell in select(result, kind=WHOLE):
        for name in (LINEAR, SIKA):
            names.append(f"{cell['case']['backbone']}, {name}")
            values.append(cell["values"][f"{name} part"]["median"])
            share = values[-1] / median(cell, name)
            texts.append(f"{format_seconds(values[-1])} ({format_share(share)} of the step)")
    colours = [figures.GREY, figures.BLUE] * (len(names) // 2)
    figures.dots(panels[0][1], names, values, texts, colours)
    panels[0][1].set(title="head's part of a whole step", xlabel="seconds")
    return figure
