"""How much memory does a training step take, as a multiple of the parameters?

One step is the forward pass, S samples, their Gaussian log likelihood, the KL divergence and the
backward pass. The peak counts everything held at the worst moment beyond the parameters: gradients
(once the parameters' size), tables, their gradients, and what batch and samples need. The bound is
6 times the parameters plus 32 floats per row and feature and 8 per sample, row and output.
"""

from matplotlib.figure import Figure

from benchmarks import figures, workloads
from benchmarks.harness import Settings
from benchmarks.peak import allocated_peak, resident_peak, training_step
from benchmarks.results import Case, Cell, Result, describe, make_cell
from benchmarks.tables import Table, format_bytes, format_ratio

SHAPES = (
    {"B": 128, "D": 128, "O": 10, "L": 7, "S": 1},
    {"B": 512, "D": 64, "O": 64, "L": 7, "S": 10},
    {"B": 128, "D": 512, "O": 100, "L": 7, "S": 10},
    {"B": 128, "D": 64, "O": 10, "L": 12, "S": 10},
    {"B": 4096, "D": 128, "O": 10, "L": 7, "S": 100},
)
PARAMETERS, PER_FEATURE, PER_SAMPLE = 6, 32, 8


def cases(settings: Settings) -> list[Case]:
    """Small and large tables, small and large batches."""
    return [{"B": 64, "D": 64, "O": 10, "L": 7, "S": 5}] if settings.quick else list(SHAPES)


def bound(case: Case, parameter_bytes: int) -> int:
    """Bytes that a step may take."""
    rows = case["B"]
    floats = PER_FEATURE * rows * case["D"] + PER_SAMPLE * case["S"] * rows * case["O"]
    return PARAMETERS * parameter_bytes + workloads.FLOAT_BYTES * floats


def measure(case: Case, settings: Settings) -> Cell:
    """Measure one step."""
    layer = workloads.make_layer(case["D"], case["O"], case["L"], settings)
    step = training_step(layer, case["B"], case["S"], settings)
    step()  # compiles
    layer.zero_grad()
    parameters = sum(p.numel() * p.element_size() for p in layer.parameters())
    values = {
        "parameters": parameters,
        "allocated": allocated_peak(step, settings),
        "resident": resident_peak(case, settings),
        "bound": bound(case, parameters),
    }
    return make_cell(case, values=values)


def tables(result: Result) -> list[Table]:
    """Return peaks in bytes and as multiples of the parameters."""
    rows = []
    for cell in result["cells"]:
        values = cell["values"]
        resident = values["resident"] if values["resident"] is not None else float("nan")
        rows.append(
            [describe(cell["case"]), format_bytes(values["parameters"])]
            + [format_bytes(values["allocated"]), format_bytes(resident)]
            + [format_ratio(values[key] / values["parameters"]) for key in ("allocated", "bound")]
        )
    header = ["layer", "parameters", "peak, allocated", "peak, resident", "multiple", "bound"]
    return [Table("Peak memory of a training step beyond the parameters", header, rows)]


def draw(result: Result) -> Figure:
    """Allocated peak and its bound as multiples of the parameters."""
    figure, ((ax,),) = figures.grid(1, 1, size=(6.5, 2.8))
    cells = result["cells"]
    for offset, key, colour in ((-0.2, "allocated", figures.BLUE), (0.2, "bound", figures.GREY)):
        heights = [cell["values"][key] / cell["values"]["parameters"] for cell in cells]
        places = [place + offset for place in range(len(cells))]
        marks = ax.barh(places, heights, height=0.38, color=colour, label=key)
        ax.bar_label(marks, fmt="%.1fx", fontsize=8, padding=2)
    ax.set_yticks(range(len(cells)), [describe(cell["case"]) for cell in cells], fontsize=8)
    ax.invert_yaxis()
    ax.set(xlabel="multiple of the parameters' bytes", title="peak memory of a training step")
    ax.grid(axis="y", visible=False)
    ax.set_xscale("log")
    ax.set_xlim(1, 2 * ax.get_xlim()[1])
    figures.legend(figure, [[ax]])
    return figure
