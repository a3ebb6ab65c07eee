"""Running benchmarks: progress on standard error, results in a folder, tables on standard output.

Results are written after every case, so that an interrupted run keeps what it has.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import torch

from benchmarks import figures, harness
from benchmarks.harness import Settings
from benchmarks.results import Case, Result, describe, load, new_result, save, skipped

NAMES = (
    "targets",
    "cpu_levels",
    "kernels",
    "depth",
    "heads",
    "epochs",
    "objectives",
    "gpytorch_peers",
    "scaling",
    "complexity",
    "latency",
    "memory",
)


def load_benchmark(name: str) -> ModuleType:
    """Import a benchmark by name."""
    if name not in NAMES:
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(NAMES)}")
    return importlib.import_module(f"benchmarks.{name}")


def question(benchmark: ModuleType) -> str:
    """Return the first line of a benchmark's docstring."""
    return (benchmark.__doc__ or "").strip().splitlines()[0]


def run(name: str, settings: Settings, folder: Path, *, resume: bool = False) -> Result:
    """Measure all cases of one benchmark, write its JSON file and its figure, print its tables.

    With ``resume``, cases that an interrupted run of the same commit has measured are kept.
    """
    benchmark = load_benchmark(name)
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    result = new_result(name, question(benchmark), settings)
    if resume:
        _restore(result, folder)
    todo: list[Case] = benchmark.cases(settings)
    done = [cell["case"] for cell in result["cells"]]
    start = harness.clock() - result["seconds"]
    for number, case in enumerate(todo, 1):
        if case in done:
            continue
        _progress(f"[{number}/{len(todo)}] {name}: {describe(case)} ({_since(start)})")
        result["cells"].append(benchmark.measure(case, settings))
        result["seconds"] = harness.clock() - start
        save(result, folder)
    result["complete"] = True
    path = save(result, folder)
    picture = path.with_suffix(".png")
    figures.save(benchmark.draw, result, picture)
    _progress(f"{name}: {len(todo)} cases in {_since(start)}", end="\n")
    show(benchmark, result)
    print(f"written: {path}, {picture}\n")
    return result


def _restore(result: Result, folder: Path) -> None:
    """Take over the cells of an unfinished record of the same commit, machine and settings."""
    path = folder / f"{result['benchmark']}.json"
    if not path.exists():
        return
    earlier = load(path)
    if all(earlier[key] == result[key] for key in ("git", "machine", "settings", "versions")):
        result["cells"], result["seconds"] = earlier["cells"], earlier["seconds"]


def show(benchmark: ModuleType, result: Result) -> None:
    """Print the tables of a benchmark and what was left out."""
    print(f"\n{question(benchmark)}\n")
    for table in benchmark.tables(result):
        print(table.to_text(), end="\n\n")
    for line in skipped(result["cells"]):
        print("left out:", line)


def _since(start: float) -> str:
    return f"{harness.clock() - start:.0f} s"


def _progress(text: str, end: str = "") -> None:
    """Overwrite the line on a terminal, write lines elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text[:150]}{end}")
    else:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()
