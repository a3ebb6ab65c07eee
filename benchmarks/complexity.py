"""How does the time of one-layer GPs grow with inducing points M, rows N and features D?

The paper's table of complexities, measured: SVGP and additive KISS-GP of GPyTorch, the dense
additive layer (DAK), and the SIKA layer by the paper's sparse indexing and by the plan it picks
itself. One output; one size grows, the others stay; exponents as in the scaling benchmark. Samples
do not matter here: all of them have Gaussian marginals.
"""

from collections.abc import Mapping

from matplotlib.figure import Figure
from torch import nn

from benchmarks import figures, workloads
from benchmarks.cpu_levels import PREDICTION, TRAINING
from benchmarks.gpytorch_peers import REGRESSION, SIKA, prediction, training_step
from benchmarks.harness import Alternative, Settings, compare
from benchmarks.results import Case, Cell, Result, describe, distinct, make_cell, median, select
from benchmarks.scaling import exponent
from benchmarks.tables import Table, format_seconds
from sikagp.experiments.methods.gpytorch_models import SVGP, AdditiveKISSGP

KISS_GP = "KISS-GP"
# GPyTorch's additive KISS-GP fills the memory at sizes where the others hardly start to work: a
# training step was seen to take 200 bytes per row, inducing point and feature. So it has sizes of
# its own.
BASES = {"all but KISS-GP": {"N": 1024, "D": 32, "M": 257}, KISS_GP: {"N": 32, "D": 4, "M": 65}}
RANGES = {
    "all but KISS-GP": {"M": (65, 257, 1025), "N": (256, 1024, 4096), "D": (8, 32, 128)},
    KISS_GP: {"M": (17, 65, 257), "N": (16, 64, 256), "D": (2, 4, 8)},
}
STYLES = {
    "SVGP": (figures.BLACK, "-"),
    KISS_GP: (figures.PURPLE, "-"),
    "DAK": (figures.VERMILLION, "-"),
    "SIKA-GP, sparse": (figures.ORANGE, "-"),
    "SIKA-GP": (figures.BLUE, "-"),
}
WORKS = {TRAINING: "training", PREDICTION: "inference"}


def cases(settings: Settings) -> list[Case]:
    """Both kinds of work, with one size changed at a time; smaller sizes if in a hurry."""
    shrink = 4 if settings.quick else 1
    found = []
    for work in WORKS:
        for family, ranges in RANGES.items():
            base = BASES[family] | {"N": BASES[family]["N"] // shrink}
            for key, sizes in ranges.items():
                for size in sizes[: 2 if settings.quick else None]:
                    case = {"work": work, "family": family, "vary": key, "size": size}
                    found.append(case | {"task": REGRESSION, "O": 1} | base | {key: size})
    return found


def models(case: Case, settings: Settings) -> dict[str, nn.Module]:
    """Return the models of a family with M inducing points."""
    found: dict[str, nn.Module]
    if case["family"] == KISS_GP:
        found = {KISS_GP: AdditiveKISSGP(case["D"], case["M"])}
    else:
        layer = workloads.make_layer(case["D"], 1, (case["M"] - 1).bit_length() - 1, settings)
        found = {
            "SVGP": SVGP(case["D"], 1, case["M"]),
            "DAK": workloads.with_plan(layer, "dense"),
            "SIKA-GP, sparse": workloads.with_plan(layer, "sparse"),
            "SIKA-GP": workloads.with_plan(layer, "auto"),
        }
    return {name: model.to(settings.device) for name, model in found.items()}


def measure(case: Case, settings: Settings) -> Cell:
    """Time all models at one size."""
    x = workloads.make_rows(case["N"], case["D"], settings)
    calls = {}
    for name, model in models(case, settings).items():
        if case["work"] == TRAINING:
            own = name not in ("SVGP", KISS_GP)
            run = training_step(SIKA if own else name, model, case, x)
        else:
            run = prediction(model, x)
        calls[name] = Alternative(run)
    return make_cell(case, compare(calls, settings, limited=False))


def curve(result: Result, work: str, key: str, name: str) -> tuple[list[float], list[float]]:
    """Sizes and seconds of a model where it was timed."""
    cells = [
        cell
        for cell in select(result, work=work, vary=key)
        if "median" in cell["alternatives"].get(name, {})
    ]
    return [cell["case"]["size"] for cell in cells], [median(cell, name) for cell in cells]


def rows(result: Result) -> Mapping[str, Mapping[str, float]]:
    """Exponents by model, for the paper's table."""
    found: dict[str, dict[str, float]] = {name: {} for name in STYLES}
    for name in STYLES:
        for work, title in WORKS.items():
            for key in distinct(result, "vary"):
                sizes, seconds = curve(result, work, key, name)
                if len(sizes) > 1:
                    found[name][f"{title}_exponent_{key}"] = exponent(sizes, seconds)
    return found


def tables(result: Result) -> list[Table]:
    """Times at the ends of each range, and exponents."""
    slopes, lines = rows(result), []
    for work, title in WORKS.items():
        for key in distinct(result, "vary"):
            for name in STYLES:
                sizes, seconds = curve(result, work, key, name)
                if len(sizes) > 1:
                    ends = [format_seconds(seconds[0]), format_seconds(seconds[-1])]
                    slope = f"{slopes[name][f'{title}_exponent_{key}']:.2f}"
                    lines.append([work, key, f"{sizes[0]} to {sizes[-1]}", name, *ends, slope])
    header = ["work", "size", "range", "model", "time at first", "time at last", "exponent"]
    note = (
        f"Other sizes: {'; '.join(f'{name}: {describe(sizes)}' for name, sizes in BASES.items())}."
    )
    return [Table("Time of one call", header, lines, note)]


def draw(result: Result) -> Figure:
    """One panel per kind of work and size."""
    keys = distinct(result, "vary")
    figure, panels = figures.grid(len(WORKS), len(keys), sharey="row")
    for i, work in enumerate(WORKS):
        for j, key in enumerate(keys):
            cells = list(select(result, work=work, vary=key))
            figures.lines(panels[i][j], cells, "size", STYLES)
            panels[i][j].tick_params(axis="x", labelrotation=45)
            panels[i][j].set(xlabel=key, ylabel=f"{work}\nseconds" if j == 0 else "")
    figures.legend(figure, panels)
    return figure
