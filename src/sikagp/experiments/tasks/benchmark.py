"""Time figures: the benchmark suite of a clone, run and kept in the cell's folder."""

from typing import Any

from sikagp.experiments.cell import Cell
from sikagp.experiments.clone import find_clone, load_suite


def run(cell: Cell) -> dict[str, Any]:
    """Run the benchmark that the recipe's method names."""
    root = find_clone()
    if root is None:
        raise RuntimeError("the benchmarks are not installed with the package: run in a clone")
    settings = load_suite(root, "harness").Settings(device=cell.device, **cell.recipe.options)
    name = cell.recipe.method
    result = load_suite(root, "runner").run(name, settings, cell.folder)
    benchmark = load_suite(root, name)
    # A benchmark that fills rows of a table of the paper says which.
    rows = benchmark.rows(result) if hasattr(benchmark, "rows") else {}
    tables = "\n\n".join(table.to_text() for table in benchmark.tables(result))
    return {"figures": [f"{name}.png"], "rows": rows, "notes": tables}
