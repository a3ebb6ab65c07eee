"""Kinds of experiments. Each is a module with a function ``run(cell)`` that returns its results.

A kind whose settings can be chosen has ``CRITERIA`` too: for each score of validation rows whether
the lowest or the highest is best.

Results are a mapping with string keys. Numbers are metrics; besides them there may be

- ``history``: numbers of every epoch, a list of mappings;
- ``figures``: names of pictures that the run wrote into the cell's folder;
- ``rows``: for an experiment that fills several rows of a table, metrics by name of the row;
- ``notes``: a text for the report.
"""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal

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

Best = Literal["lowest", "highest"]


def load_task(name: str) -> Callable[[Cell], Mapping[str, Any]]:
    """Return the function that runs a kind of experiment."""
    return _load(name).run


def load_criteria(name: str) -> Mapping[str, Best]:
    """Return the validation scores that choose settings of a kind, and which value is best."""
    return getattr(_load(name), "CRITERIA", {})


def _load(name: str) -> ModuleType:
    return importlib.import_module(TASKS[check_choice("experiment", name, TASKS)])
