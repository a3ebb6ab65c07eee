"""What a benchmark leaves behind: one JSON file with the numbers and where they come from."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Comparison, Settings

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
        "versions": {library: _version(library) for library in LIBRARIES},
        "git": describe_git(),
        "cells": [],
    }


def describe_machine(device: str) -> dict[str, Any]:
    """Processor, cores, memory and, where one is used, the accelerator."""
    machine = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": sys.version.split()[0],
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        machine["memory_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.startswith("cuda"):
        machine["accelerator"] = torch.cuda.get_device_name(device)
    return machine


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def describe_git() -> dict[str, Any]:
    """Commit that was measured, and whether files had changed since."""
    commit, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return {"commit": commit, "modified": bool(status) if status is not None else None}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


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
