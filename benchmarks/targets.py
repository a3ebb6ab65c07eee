"""Does the library reach the speed and memory it promises?

Each row is a ratio of two things measured side by side: what is required and what was found.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from benchmarks import figures, heads, latency, memory, workloads
from benchmarks.harness import Comparison, Settings, Spread, compare
from benchmarks.results import Case, Cell, Result, make_cell
from benchmarks.tables import Table

AT_LEAST, AT_MOST = "at least", "at most"
NETWORK_SAMPLES = 10


class Target(NamedTuple):
    """A promise: what is measured, the bound, and how to measure it."""

    work: str
    sense: str
    bound: float
    measure: Callable[[Settings], tuple[Spread, dict[str, str]]]


def levels(settings: Settings) -> tuple[Spread, dict[str, str]]:
    """Cached prediction at level 12 against level 4."""
    x = workloads.make_rows(256, 128, settings)
    calls = {}
    for level in (4, 12):
        layer = workloads.make_layer(128, 10, level, settings)
        calls[str(level)] = workloads.own_predictions(layer, x)[workloads.CACHED]
    comparison = compare(calls, settings, limited=False)
    return comparison.ratio("12", "4"), {}


def prediction_against(baseline: str) -> Callable[[Settings], tuple[Spread, dict[str, str]]]:
    """Cached prediction against one of the baselines, B=128 D=128 O=10 L=7."""

    def measure(settings: Settings) -> tuple[Spread, dict[str, str]]:
        layer = workloads.make_layer(128, 10, 7, settings)
        x = workloads.make_rows(128, 128, settings)
        found = workloads.predictions(layer, x, NETWORK_SAMPLES)
        others = {workloads.LOCAL: workloads.PRODUCTS, workloads.NETWORK: workloads.SHARED}
        names = (baseline, others.get(baseline, baseline), workloads.CACHED)
        comparison = compare({name: found[name] for name in names}, settings, limited=False)
        details = _against(comparison, workloads.CACHED, names[1]) if baseline in others else {}
        return comparison.ratio(baseline, workloads.CACHED), details

    return measure


def training_against_dense(
    B: int, D: int, outputs: int, level: int
) -> Callable[[Settings], tuple[Spread, dict[str, str]]]:
    """Training step by the table plan against dense with local reparameterisation."""

    def measure(settings: Settings) -> tuple[Spread, dict[str, str]]:
        layer = workloads.make_layer(D, outputs, level, settings)
        found = workloads.training_steps(layer, workloads.make_rows(B, D, settings), 1)
        names = (workloads.LOCAL, workloads.PRODUCTS, workloads.TABLE)
        calls = {name: found[name] for name in names} | {"traffic": traffic(layer)}
        comparison = compare(calls, settings, limited=False)
        details = _against(comparison, workloads.TABLE, workloads.PRODUCTS)
        share = comparison.ratio("traffic", workloads.TABLE).median
        details["memory traffic"] = f"{100 * share:.0f}% of the step"
        return comparison.ratio(workloads.LOCAL, workloads.TABLE), details

    return measure


def traffic(layer: torch.nn.Module) -> Callable[[], object]:
    """Moving what any table plan must move, and nothing else.

    It reads means and scales and writes three tables of that size; backward it reads the gradients
    of the tables and writes those of means and scales: ten passes, or five copies.
    """
    source, target = torch.empty_like(layer.weight_mean), torch.empty_like(layer.weight_mean)

    def copy() -> None:
        for _ in range(5):
            target.copy_(source)

    return copy


def samples(settings: Settings) -> tuple[Spread, dict[str, str]]:
    """What 100 samples cost more than one, against drawing as many normals."""
    layer = workloads.make_layer(128, 10, 7, settings).eval()
    x = workloads.make_rows(256, 128, settings)
    calls = {
        "100": workloads.without_gradients(lambda: layer.sample(x, 100)),
        "1": workloads.without_gradients(lambda: layer.sample(x, 1)),
        "randn": lambda: torch.randn(99, 256, 10, device=settings.device),
    }
    comparison = compare(calls, settings, limited=False)
    return comparison.combine(lambda a, b, c: (a - b) / c, "100", "1", "randn"), {}


def head_overhead(backbone: str) -> Callable[[Settings], tuple[Spread, dict[str, str]]]:
    """How much longer a training step takes with a SIKA head than with nn.Linear."""

    def measure(settings: Settings) -> tuple[Spread, dict[str, str]]:
        found = heads.cases(settings)
        (case,) = (case for case in found if case.get("backbone") == backbone)
        cell = heads.measure_whole(case, settings)
        return Spread(**cell["values"]["overhead"]), {"batch": str(case["B"])}

    return measure


def single_row(settings: Settings) -> tuple[Spread, dict[str, str]]:
    """Median time of one row against nn.Linear and softmax."""
    found = latency.measure(latency.cases(settings)[0], settings)["values"]
    value = found[latency.MOMENTS]["p50"] / found[latency.LINEAR]["p50"]
    return Spread(value, value, value), {}


def step_memory(settings: Settings) -> tuple[Spread, dict[str, str]]:
    """Largest share of its memory bound that a training step takes."""
    cells = [memory.measure(case, settings)["values"] for case in memory.cases(settings)]
    value = max(values["allocated"] / values["bound"] for values in cells)
    return Spread(value, value, value), {}


def _against(comparison: Comparison, own: str, baseline: str) -> dict[str, str]:
    return {baseline: f"{comparison.ratio(baseline, own).median:.1f}"}


SHAPE = "B=128 D=128 O=10 L=7"
TARGETS = (
    Target("cached prediction, level 12 / level 4, B=256 D=128 O=10", AT_MOST, 2, levels),
    Target(
        f"dense, local / cached prediction, {SHAPE}", AT_LEAST, 10,
        prediction_against(workloads.LOCAL),
    ),
    Target(
        f"dense BNN S=10 / cached prediction, {SHAPE}", AT_LEAST, 200,
        prediction_against(workloads.NETWORK),
    ),
    Target(
        f"gather S=10 / cached prediction, {SHAPE}", AT_LEAST, 50,
        prediction_against(workloads.GATHER),
    ),
    Target(
        "dense, local / training step, B=512 D=64 O=64 L=7", AT_LEAST, 6,
        training_against_dense(512, 64, 64, 7),
    ),
    Target(
        "dense, local / training step, B=512 D=64 O=64 L=10", AT_LEAST, 12,
        training_against_dense(512, 64, 64, 10),
    ),
    Target(
        "dense, local / training step, B=128 D=512 O=100 L=7", AT_LEAST, 2.5,
        training_against_dense(128, 512, 100, 7),
    ),
    Target("(S=100 less S=1) / drawing as many normals, B=256 D=128 O=10", AT_MOST, 1.5, samples),
    Target("head overhead, ResNet-18, 128 to 10", AT_MOST, 0.01, head_overhead("ResNet-18")),
    Target("head overhead, MNIST CNN, 64 to 10", AT_MOST, 0.10, head_overhead("MNIST CNN")),
    Target("single row / nn.Linear and softmax, median", AT_MOST, 6, single_row),
    Target("memory of a training step / its bound", AT_MOST, 1, step_memory),
)  # fmt: skip


def cases(settings: Settings) -> list[Case]:
    """One per promise."""
    return [{"work": target.work} for target in TARGETS]


def measure(case: Case, settings: Settings) -> Cell:
    """Measure one promise."""
    (target,) = (target for target in TARGETS if target.work == case["work"])
    spread, details = target.measure(settings)
    values = {"sense": target.sense, "bound": target.bound, **spread._asdict()}
    values["met"] = is_met(target, spread.median)
    return make_cell(case, values={**values, "details": details})


def is_met(target: Target, value: float) -> bool:
    """Whether a measured ratio keeps the promise."""
    return value >= target.bound if target.sense == AT_LEAST else value <= target.bound


def tables(result: Result) -> list[Table]:
    """Required and measured ratios, row by row."""
    rows = []
    for cell in result["cells"]:
        values = cell["values"]
        spread = f"{values['q25']:.3g} to {values['q75']:.3g}"
        details = ", ".join(f"{key}: {text}" for key, text in values["details"].items())
        required = f"{values['sense']} {values['bound']:g}"
        verdict = "yes" if values["met"] else "no"
        measured = f"{values['median']:.3g}"
        rows.append([cell["case"]["work"], required, measured, spread, verdict, details])
    header = ["ratio", "required", "measured", "quartiles", "met", "for comparison"]
    return [Table("Promises", header, rows)]


def draw(result: Result) -> Figure:
    """How far each promise is kept: right of the line is better than required."""
    figure, ((ax,),) = figures.grid(1, 1, size=(9.0, 4.2))
    names, margins, colours = [], [], []
    for cell in result["cells"]:
        values = cell["values"]
        ratio = max(values["median"], 1e-3) / values["bound"]
        names.append(cell["case"]["work"])
        margins.append(ratio if values["sense"] == AT_LEAST else 1 / ratio)
        colours.append(figures.BLUE if values["met"] else figures.VERMILLION)
    for place, (margin, colour) in enumerate(zip(margins, colours, strict=True)):
        ax.plot([1, margin], [place, place], color=colour, linewidth=6, solid_capstyle="butt")
        ax.annotate(
            f"{margin:.2g}", (max(1, margin), place), (4, 0), textcoords="offset points",
            va="center", fontsize=8,
        )  # fmt: skip
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.grid(axis="y", visible=False)
    ax.axvline(1, color=figures.BLACK, linewidth=1)
    ax.margins(x=0.08)
    ax.set(xlabel="measured over required (above 1: better than required)")
    return figure
