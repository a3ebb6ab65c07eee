"""How long does one row take, at the median and at the 99th percentile?

128 features, 10 outputs, eager mode, against nn.Linear with a softmax. Calls are timed one by one,
the alternatives in turn.
"""

import gpytorch
import torch
from matplotlib.figure import Figure
from torch import nn

from benchmarks import figures, workloads
from benchmarks.harness import Call, Settings, timed
from benchmarks.results import Case, Cell, Result, make_cell
from benchmarks.tables import Table, format_ratio, format_seconds
from sikagp.predictions import predictive

LINEAR = "nn.Linear and softmax"
MOMENTS = "SIKALayer, mean and variance"
CLASSES = "SIKALayer, class probabilities"


def cases(settings: Settings) -> list[Case]:
    """One row."""
    repetitions = 500 if settings.quick else 20_000
    return [{"B": 1, "D": 128, "O": 10, "L": 7, "repetitions": repetitions}]


def calls(case: Case, settings: Settings) -> dict[str, Call]:
    """What is asked for one row."""
    x = workloads.make_rows(case["B"], case["D"], settings)
    linear = nn.Linear(case["D"], case["O"], device=settings.device)
    layer = workloads.make_layer(case["D"], case["O"], case["L"], settings).eval()
    softmax = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=case["O"], mixing_weights=False)
    found = {
        LINEAR: lambda: linear(x).softmax(-1),
        MOMENTS: lambda: layer(x),
        CLASSES: lambda: predictive(softmax, layer(x)).probs,
    }
    return {name: workloads.without_gradients(run) for name, run in found.items()}


def measure(case: Case, settings: Settings) -> Cell:
    """Time single calls many times."""
    alternatives = calls(case, settings)
    seconds: dict[str, list[float]] = {name: [] for name in alternatives}
    for repetition in range(case["repetitions"] + 50):
        for name, run in alternatives.items():
            duration = timed(run, settings)
            if repetition >= 50:  # warm-up
                seconds[name].append(duration)
    values = {name: percentiles(samples) for name, samples in seconds.items()}
    return make_cell(case, values=values)


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    p50, p99 = torch.tensor(seconds, dtype=torch.float64).quantile(
        torch.tensor([0.5, 0.99], dtype=torch.float64)
    )
    return {"p50": p50.item(), "p99": p99.item()}


def tables(result: Result) -> list[Table]:
    """Percentiles, and their ratio to the linear layer's."""
    (cell,) = result["cells"]
    base = cell["values"][LINEAR]
    rows = [
        [name]
        + [format_seconds(value[p]) for p in ("p50", "p99")]
        + [format_ratio(value[p] / base[p]) for p in ("p50", "p99")]
        for name, value in cell["values"].items()
    ]
    repetitions = cell["case"]["repetitions"]
    title = f"One row, 128 features, 10 outputs, {repetitions} calls"
    return [Table(title, ["call", "p50", "p99", "p50 ratio", "p99 ratio"], rows)]


def draw(result: Result) -> Figure:
    """Median and 99th percentile of every call."""
    (cell,) = result["cells"]
    figure, ((ax,),) = figures.grid(1, 1, size=(6.0, 2.2))
    names = [f"{name}, {p}" for name in cell["values"] for p in ("p50", "p99")]
    values = [value[p] for value in cell["values"].values() for p in ("p50", "p99")]
    colours = [
        figures.GREY if name.startswith("nn.") else figures.BLUE
        for name in cell["values"]
        for _ in range(2)
    ]
    figures.dots(ax, names, values, list(map(format_seconds, values)), colours)
    ax.set(xlabel="seconds", title="one row, 128 features, 10 outputs")
    return figure
