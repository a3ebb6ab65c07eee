"""How does the time of one layer grow with the dyadic level, against dense and sparse baselines?

The paper's figure of inference times: B rows, S samples, D features, here with 10 and 128 outputs,
and the training step beside prediction.
"""

import dataclasses

from matplotlib.figure import Figure

from benchmarks import figures, workloads
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, distinct, make_cell, median, select, skipped
from benchmarks.tables import Table, format_seconds

SHAPES = ((16, 10, 128), (16, 100, 128), (128, 10, 128), (16, 10, 512))
PREDICTION, TRAINING = "prediction", "training step"
LARGEST = 2**27  # weights of a layer; with twice as many all ways side by side need 20 GB
BASELINE = workloads.LOCAL
STYLES = {
    workloads.NETWORK: (figures.PURPLE, "-"),
    workloads.SHARED: (figures.PURPLE, ":"),
    workloads.LOCAL: (figures.BLACK, "-"),
    workloads.PRODUCTS: (figures.GREY, "-"),
    workloads.GATHER: (figures.VERMILLION, "-"),
    workloads.SPARSE: (figures.ORANGE, "-"),
    workloads.UNCACHED: (figures.SKY, "-"),
    workloads.TABLE: (figures.GREEN, "-"),
    workloads.CACHED: (figures.BLUE, "-"),
}


def cases(settings: Settings) -> list[Case]:
    """Both kinds of work at every level, for all shapes and numbers of outputs."""
    shapes = SHAPES[:1] if settings.quick else SHAPES
    levels = (2, 7) if settings.quick else range(1, 13)
    return [
        {"work": work, "B": B, "S": S, "D": D, "O": O, "L": level}
        for work in (PREDICTION, TRAINING)
        for O in ((10,) if settings.quick else (10, 128))  # noqa: E741
        for B, S, D in shapes
        for level in levels
        if D * O << level <= LARGEST
    ]


def measure(case: Case, settings: Settings) -> Cell:
    """Time all alternatives for one layer."""
    layer = workloads.make_layer(case["D"], case["O"], case["L"], settings)
    x = workloads.make_rows(case["B"], case["D"], settings)
    prepare = workloads.predictions if case["work"] == PREDICTION else workloads.training_steps
    # There are two hundred cases; half the usual time for each will do, and no call may be long.
    settings = dataclasses.replace(settings, longest_call=0.5)
    comparison = compare(prepare(layer, x, case["S"]), settings, seconds=settings.seconds / 2)
    return make_cell(case, comparison, baseline=BASELINE)


def tables(result: Result) -> list[Table]:
    """One table per kind of work, at level 7 and at the finest."""
    return [_table(result, work) for work in distinct(result, "work")]


def _table(result: Result, work: str) -> Table:
    finest = max(distinct(result, "L"))
    cells = [cell for cell in select(result, work=work) if cell["case"]["L"] in (7, finest)]
    names = list(cells[0]["alternatives"]) if cells else []
    names = sorted(names, key=list(STYLES).index)
    keys = ("B", "S", "D", "O", "L")
    rows = [
        [*(str(cell["case"][key]) for key in keys)]
        + [format_seconds(median(cell, name)) for name in names]
        for cell in cells
    ]
    left_out = skipped(cells)
    note = f"A dash marks {len(left_out)} cases that were left out for memory or time."
    return Table(f"Time of one {work}", [*keys, *names], rows, note if left_out else "")


def draw(result: Result) -> Figure:
    """One panel per shape, number of outputs and kind of work; time against level."""
    rows = distinct(result, "work", "O")
    columns = distinct(result, "B", "S", "D")
    figure, panels = figures.grid(len(rows), len(columns), sharey="row")
    for i, (work, outputs) in enumerate(rows):
        for j, (B, S, D) in enumerate(columns):
            ax = panels[i][j]
            cells = list(select(result, work=work, O=outputs, B=B, S=S, D=D))
            figures.lines(ax, cells, "L", STYLES, log_x=False)
            if i == 0:
                ax.set_title(f"B={B}, S={S}, D={D}")
            if j == 0:
                ax.set_ylabel(f"{work}, {outputs} outputs\nseconds")
            if i == len(rows) - 1:
                ax.set_xlabel("level L")
    figures.legend(figure, panels)
    return figure
