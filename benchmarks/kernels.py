"""What do smoother kernels cost, and does the grid's level matter?

Cached prediction of mean and variance, 256 rows, 128 features, 10 outputs, every kernel and level
side by side. A kernel of state size s has s weights per node, and reads 2 s numbers for the mean of
an output and s (2 s + 1) for its variance.
"""

from matplotlib.figure import Figure

from benchmarks import figures, workloads
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, make_cell
from benchmarks.tables import Table, format_seconds

# What is promised: times over Laplace's at the same level, and fine over coarse of one kernel.
MOST_OVER_LAPLACE = {"laplace": 1.0, "matern32": 2.5, "matern52": 4.0}
MOST_OVER_COARSE = 1.6
COARSE, FINE = 4, 10
LENGTHSCALES = (0.5, 0.05)


def cases(settings: Settings) -> list[Case]:
    """Lengthscales for which a coarse cell is short and long."""
    return [{"B": 256, "D": 128, "O": 10, "lengthscale": scale} for scale in LENGTHSCALES]


def measure(case: Case, settings: Settings) -> Cell:
    """Time all kernels at both levels in turn."""
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
    header = ["lengthscale", "kernel", f"L={COARSE}", f"L={FINE}", f"L={FINE} / L={COARSE}",
              "at most", f"/ Laplace, L={COARSE}", f"/ Laplace, L={FINE}", "at most"]  # fmt: skip
    rows = []
    for cell in result["cells"]:
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
    return [Table("Cached prediction, B=256 D=128 O=10", header, rows)]


def draw(result: Result) -> Figure:
    """Seconds of every kernel and level."""
    figure, panels = figures.grid(1, len(result["cells"]), size=(9.0, 2.6))
    for ax, cell in zip(panels[0], result["cells"], strict=True):
        pairs = [(f"{kernel}, L={level}", value[place])
                 for kernel, value in cell["values"].items()
                 for level, place in ((COARSE, "coarse"), (FINE, "fine"))]  # fmt: skip
        names, seconds = [name for name, _ in pairs], [value for _, value in pairs]
        colours = [figures.SKY, figures.BLUE] * len(cell["values"])
        figures.dots(ax, names, seconds, list(map(format_seconds, seconds)), colours)
        ax.set(xlabel="seconds", title=f"lengthscale {cell['case']['lengthscale']:g}")
    return figure
