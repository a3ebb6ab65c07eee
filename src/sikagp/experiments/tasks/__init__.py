"""Kinds of experiments. Each is a module with a function ``run(cell)`` that returns its results.

Results are a mapping with string keys. Numbers are metrics; besides them there may be

- ``history``: numbers of every epoch, a list of mappings;
- ``figures``: names of pictures that the run wrote into the cell's folder;
- ``rows``: for an experiment that fills several rows of a table, metrics by name of the row;
- ``notes``: a text for the report.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from sikagp.experiments.cell import Cell
from sikagp.validation import check_choice

# Imported when they run, so that one kind does not need the libraries of another.
TASKS = {
    "regression": "sikagp.experiments.tasks.regression",
    "images": "sikagp.experiments.tasks.images",
    "figure": "sikagp.experiments.tasks.figure",
    "text": "sikagp.experiments.tasks.text",
    "benchmark": "sikagp.experiments.tasks.benchmark",
}


def load_task(name: str) -> Callable[[Cell], Mapping[str, Any]]:
    """Return the function that runs a kind of experiment."""
    return importlib.import_module(TASKS[check_choice("experiment", name, TASKS)]).run
