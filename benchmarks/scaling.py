"""How do time and sizes scale: rows N, features D, outputs O, nodes M, samples S, threads?

One size grows, the others stay. The exponent is the slope of log time against log size over the
upper half of the range; 0 means that the size costs nothing, 1 that time is proportional to it.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from matplotlib.figure import Figure

from benchmarks import figures, workloads
from benchmarks.cpu_levels import PREDICTION
from benchmarks.harness import Settings, compare
from benchmarks.results import Case, Cell, Result, distinct, make_cell, median, select
from benchmarks.tables import Table, format_seconds

TRAINING, SAMPLING = "training step", "sampling"
BASE = {"N": 256, "D": 128, "O": 10, "L": 7, "S": 1, "threads": 0}
RANGES = {
    "N": (16, 64, 256, 1024, 4096, 16384),
    "D": (8, 32, 128, 384, 768),
    "O": (1, 10, 100, 1000, 10_000),
    "M": tuple(2**level + 1 for level in (4, 6, 8, 10, 12, 14)),
    "S": (1, 10, 100, 1000),
    "threads": (1, 2),
}
QUICK = {"N": (64, 1024), "D": (32, 256), "O": (1, 100), "M": (17, 1025), "S": (1, 100)}
# With so many outputs the tables of 128 features would fill the memory.
FEWER_FEATURES = {"O": {"D": 16}}


def cases(settings: Settings) -> list[Case]:
    """Return the base case with one size changed at a time."""
    found = []
    for key, sizes in (QUICK if settings.quick else RANGES).items():
        for size in sizes:
            change = {"L": (size - 1).bit_length() - 1} if key == "M" else {key: size}
            sizes_now = BASE | {"threads": settings.threads} | FEWER_FEATURES.get(key, {}) | change
            found.append({"vary": key, "size": size} | sizes_now)
    return found


def measure(case: Case, settings: Settings) -> Cell:
    """Time prediction, sampling and training step at one size."""
    layer = workloads.make_layer(case["D"], case["O"], case["L"], settings)
    x = workloads.make_rows(case["N"], case["D"], settings)
    calls: dict[str, Callable[[], object]] = {}
    ready = workloads.with_plan(layer, "auto").eval()
    if case["vary"] == "S":
        draw_samples = workloads.without_gradients(lambda: ready.sample(x, case["S"]))
        calls[SAMPLING] = draw_samples
    else:
        calls[PREDICTION] = workloads.without_gradients(lambda: ready(x))
        calls[TRAINING] = workloads.own_step(layer, x, "auto")
    with _threads(case["threads"]):
        return make_cell(case, compare(calls, settings, limited=False))


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log seconds against log size over the upper half of the range."""
    start = (len(sizes) - 1) // 2
    x = [math.log(size) for size in sizes[start:]]
    y = [math.log(value) for value in seconds[start:]]
    return statistics.linear_regression(x, y).slope


def curves(result: Result) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """Sizes and seconds for every size that varies and every kind of work."""
    found = {}
    for key in distinct(result, "vary"):
        cells = list(select(result, vary=key))
        for name in cells[0]["alternatives"]:
            sizes = [cell["case"]["size"] for cell in cells]
            found[key, name] = sizes, [median(cell, name) for cell in cells]
    return found


def tables(result: Result) -> list[Table]:
    """Range, times at its ends, and exponent."""
    rows = []
    for (key, name), (sizes, seconds) in curves(result).items():
        slope = f"{exponent(sizes, seconds):.2f}" if len(sizes) > 1 else "-"
        ends = [format_seconds(seconds[0]), format_seconds(seconds[-1])]
        rows.append([key, name, f"{sizes[0]} to {sizes[-1]}", *ends, slope])
    header = ["size", "work", "range", "time at first", "time at last", "exponent"]
    note = "Other sizes: N = 256, D = 128 (16 where O varies), O = 10, L = 7."
    return [Table("Time of one call", header, rows, note)]


def draw(result: Result) -> Figure:
    """One panel per size."""
    keys = distinct(result, "vary")
    columns = min(3, len(keys))
    figure, panels = figures.grid(math.ceil(len(keys) / columns), columns)
    flat = [ax for row in panels for ax in row]
    styles = {PREDICTION: figures.BLUE, TRAINING: figures.VERMILLION, SAMPLING: figures.GREEN}
    for ax, key in zip(flat, keys, strict=False):
        shown = {name: (styles[name], "-") for k, name in curves(result) if k == key}
        figures.lines(ax, list(select(result, vary=key)), "size", shown, log_x=key != "threads")
        ax.set(xlabel=key, ylabel="seconds")
    for ax in flat[len(keys) :]:
        ax.remove()
    figures.legend(figure, [flat[: len(keys)]])
    return figure
