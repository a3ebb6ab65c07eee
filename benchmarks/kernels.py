"""What do smoother kernels cost, and does the grid's level matter?

Cached prediction of mean and variance, 256 rows, 128 features, 10 outputs, every kernel and level
side by side. A kernel of state size s has s weights per node, and reads 2 s numbers for the mean of
an output and s (2 s + 1) for its variance.

And training steps (forward and backward pass of mean and variance) of two layers at level 7: of as
many nodes for every kernel, and at levels that give about the same number of weights.
"""

import itertools

from matplotlib.figure import Figure

from benchmarks import figures, workloads
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, make_cell, median, ratio, select
from benchmarks.tables import Table, format_seconds

# What is promised: times over Laplace's at the same level, and fine over coarse of one kernel.
MOST_OVER_LAPLACE = {"laplace": 1.0, "matern32": 2.5, "matern52": 4.0}
MOST_OVER_COARSE = 1.6
COARSE, FINE = 4, 10
LENGTHSCALES = (0.5, 0.05)
PREDICTION, TRAINING = "prediction", "training step"
# Levels below Laplace's that give about its number of weights.
COARSER = {"laplace": 0, "matern32": 1, "matern52": 2}
SAME_NODES, SAME_WEIGHTS = "as many nodes", "as many weights"
LEVEL = 7


def cases(settings: Settings) -> list[Case]:
    """Lengthscales for which a coarse cell is short and long; a small layer and a large one."""
    predictions = [
        {"work": PREDICTION, "B": 256, "D": 128, "O": 10, "lengthscale": scale}
        for scale in LENGTHSCALES
    ]
    sizes = ((128, 16, 1), (512, 64, 64))
    return predictions + [{"work": TRAINING, "B": B, "D": D, "O": out} for B, D, out in sizes]


def measure(case: Case, settings: Settings) -> Cell:
    """Time all kernels in turn."""
    return (measure_prediction if case["work"] == PREDICTION else measure_training)(case, settings)


def measure_training(case: Case, settings: Settings) -> Cell:
    """Time training steps of all kernels, with as many nodes and with as many weights."""
    x = workloads.make_rows(case["B"], case["D"], settings)
    calls = {}
    for kernel, coarser in COARSER.items():
        for meaning, level in ((SAME_NODES, LEVEL), (SAME_WEIGHTS, LEVEL - coarser)):
            layer = workloads.make_layer(case["D"], case["O"], level, settings, kernel=kernel)
            calls[f"{kernel}, {meaning}"] = workloads.own_step(layer, x, workloads.TABLE)
    comparison = compare(calls, settings, limited=False)
    return make_cell(case, comparison, baseline=f"laplace, {SAME_NODES}")


def measure_prediction(case: Case, settings: Settings) -> Cell:
    """Time predictions of all kernels at both levels."""
    x = workloads.make_rows(case["B"], case["D"], settings)
    calls = {}
    for kernel in MOST_OVER_LAPLACE:
        for level in (COARSE, FINE):
            options = {"kernel": kernel, "lengthscale": case["lengthscale"]}
            layer = workloads.make_layer(case["D"], case["O"], level, settings, **options).eval()
            calls[f"{kernel} L={level}"] = workloads.without_gradients(_call(layer, x))
    comparison = compare(calls, settings, limited=False)
    values = {}
    for kernel in MOST_OVER_LAPLACE:
        coarse, fine = f"{kernel} L={COARSE}", f"{kernel} L={FINE}"
        values[kernel] = {
            "coarse": comparison.seconds(coarse).median,
            "fine": comparison.seconds(fine).median,
            "fine over coarse": comparison.ratio(fine, coarse).median,
            "coarse over laplace": comparison.ratio(coarse, f"laplace L={COARSE}").median,
            "fine over laplace": comparison.ratio(fine, f"laplace L={FINE}").median,
        }
    return make_cell(case, comparison, values=values)


def _call(layer, x):
    return lambda: layer(x)


def tables(result: Result) -> list[Table]:
    """Times and ratios, with what is promised."""
    return [_prediction_table(result), _training_table(result)]


def _training_table(result: Result) -> Table:
    header = ["B", "D", "O", "kernel", SAME_NODES, "/ Laplace", SAME_WEIGHTS, "/ Laplace"]
    rows = []
    for cell in select(result, work=TRAINING):
        for kernel in COARSER:
            names = [f"{kernel}, {meaning}" for meaning in (SAME_NODES, SAME_WEIGHTS)]
            times = [(format_seconds(median(cell, n)), f"{ratio(cell, n):.2f}") for n in names]
            sizes = [str(cell["case"][name]) for name in ("B", "D", "O")]
            rows.append([*sizes, kernel, *itertools.chain.from_iterable(times)])
    return Table(f"Training step, Laplace at level {LEVEL}", header, rows)


def _prediction_table(result: Result) -> Table:
    header = ["lengthscale", "kernel", f"L={COARSE}", f"L={FINE}", f"L={FINE} / L={COARSE}",
              "at most", f"/ Laplace, L={COARSE}", f"/ Laplace, L={FINE}", "at most"]  # fmt: skip
    rows = []
    for cell in select(result, work=PREDICTION):
        for kernel, value in cell["values"].items():
            rows.append(
                [
                    f"{cell['case']['lengthscale']:g}",
                    kernel,
                    format_seconds(value["coarse"]),
                    format_seconds(value["fine"]),
                    f"{value['fine over coarse']:.2f}",
                    f"{MOST_OVER_COARSE:g}",
                    f"{value['coarse over laplace']:.2f}",
                    f"{value['fine over laplace']:.2f}",
                    f"{MOST_OVER_LAPLACE[kernel]:g}",
                ]
            )
    return Table("Cached prediction, B=256 D=128 O=10", header, rows)


def draw(result: Result) -> Figure:
    """Seconds of every kernel and level in prediction."""
    cells = list(select(result, work=PREDICTION))
    figure, panels = figures.grid(1, len(cells), size=(9.0, 2.6))
    for ax, cell in zip(panels[0], cells, strict=True):
        pairs = [(f"{kernel}, L={level}", value[place])
                 for kernel, value in cell["values"].items()
                 for level, place in ((COARSE, "coarse"), (FINE, "fine"))]  # fmt: skip
        names, seconds = [name for name, _ in pairs], [value for _, value in pairs]
        colours = [figures.SKY, figures.BLUE] * len(cell["values"])
        figures.dots(ax, names, seconds, list(map(format_seconds, seconds)), colours)
        ax.set(xlabel="seconds", title=f"lengthscale {cell['case']['lengthscale']:g}")
    return figure
