"""What a benchmark leaves behind: one JSON file with the numbers and where they come from."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import Comparison, Settings
from sikagp.experiments.environment import describe_git, describe_machine, describe_versions

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("sikagp", "torch", "numba", "gpytorch", "numpy")

Case = dict[str, Any]
Cell = dict[str, Any]
Result = dict[str, Any]


def make_cell(
    case: Case,
    comparison: Comparison | None = None,
    *,
    baseline: str | None = None,
    values: dict[str, Any] | None = None,
) -> Cell:
    """Return one measured case as JSON values."""
    alternatives = comparison.summary(baseline) if comparison is not None else {}
    return {
        "case": case,
        "baseline": baseline,
        "alternatives": alternatives,
        "values": values or {},
    }


def new_result(name: str, question: str, settings: Settings) -> Result:
    """Start the record of one benchmark."""
    return {
        "benchmark": name,
        "question": question,
        "complete": False,
        "seconds": 0.0,
        "settings": asdict(settings),
        "machine": describe_machine(settings.device),
        "versions": describe_versions(LIBRARIES),
        "git": describe_git(ROOT),
        "cells": [],
    }


def save(result: Result, folder: Path) -> Path:
    """Write the record; an interrupted write leaves the older file intact."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['benchmark']}.json"
    draft = path.with_suffix(".json.part")
    draft.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    draft.replace(path)
    return path


def load(path: Path) -> Result:
    """Read a record."""
    return json.loads(path.read_text())


def select(result: Result, **wanted: Any) -> Iterator[Cell]:
    """Cells whose case has all these values."""
    for cell in result["cells"]:
        if all(cell["case"].get(key) == value for key, value in wanted.items()):
            yield cell


def distinct(result: Result, *keys: str) -> list[Any]:
    """Different values of one key (or tuples of several) over all cases, in order of appearance."""
    rows = [tuple(cell["case"].get(key) for key in keys) for cell in result["cells"]]
    unique = list(dict.fromkeys(rows))
    return [row[0] for row in unique] if len(keys) == 1 else unique


def median(cell: Cell, name: str) -> float:
    """Seconds per call, NaN if the alternative was left out."""
    return cell["alternatives"].get(name, {}).get("median", math.nan)


def ratio(cell: Cell, name: str) -> float:
    """Seconds as a multiple of the baseline's, NaN if either was left out."""
    return cell["alternatives"].get(name, {}).get("ratio", {}).get("median", math.nan)


def skipped(cells: Iterable[Cell]) -> list[str]:
    """Which alternatives were left out, and why."""
    return [
        f"{describe(cell['case'])}: {name} ({entry['skipped']})"
        for cell in cells
        for name, entry in cell["alternatives"].items()
        if "skipped" in entry
    ]


def describe(case: Case) -> str:
    """Return the case in words, such as ``work=prediction B=16``."""
    return " ".join(f"{key}={value}" for key, value in case.items())
