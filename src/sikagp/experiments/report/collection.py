"""What runs left behind, grouped by table, data, row and scale."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sikagp.experiments.cell import FAILURE, RECORD
from sikagp.experiments.recipe import SCALES


@dataclass(frozen=True)
class Run:
    """One record and the folder that it was found in."""

    record: Mapping[str, Any]
    folder: Path

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Recipe as run."""
        return self.record["recipe"]

    @property
    def results(self) -> Mapping[str, Any]:
        """Metrics, history and names of figures."""
        return self.record["results"]

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Rows of the table that the run fills, with their metrics."""
        several = self.results.get("rows")
        yield from several.items() if several else [(self.recipe["row"], self.results)]


@dataclass(frozen=True)
class Group:
    """Runs of one row that differ by their seed.

    Attributes:
        data: name of the data.
        row: name of the row.
        scale: at which they ran.
        recipe: of the first.
        metrics: numbers of each run that has them.
        histories: numbers of every epoch, for each run; None where one was not finite.
        runs: how many there are.
    """

    data: str
    row: str
    scale: str
    recipe: Mapping[str, Any]
    metrics: Mapping[str, Sequence[float]]
    histories: Sequence[Sequence[Mapping[str, float | None]]]
    runs: int

    def mean(self, metric: str) -> float | None:
        """Mean over the runs that have the metric."""
        values = self.metrics.get(metric)
        return statistics.fmean(values) if values else None

    def deviation(self, metric: str) -> float | None:
        """Standard deviation over runs, if there are at least two."""
        values = self.metrics.get(metric, ())
        return statistics.stdev(values) if len(values) > 1 else None


def collect(folder: Path) -> list[Run]:
    """Read all records below a folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; `sikagp reproduce` writes one")
    paths = sorted(folder.rglob(RECORD))
    return [Run(json.loads(path.read_text(encoding="utf-8")), path.parent) for path in paths]


def failures(folder: Path) -> dict[str, str]:
    """Last line of what went wrong, by cell, for those that have no record."""
    found = {}
    for path in sorted(folder.rglob(FAILURE)):
        if not (path.parent / RECORD).exists():
            lines = path.read_text(encoding="utf-8").strip().splitlines()
            found[path.parent.relative_to(folder).as_posix()] = lines[-1] if lines else ""
    return found


def group(runs: Sequence[Run], table: str) -> list[Group]:
    """Runs of one table, by data, row and scale, in the order of the recipes' names."""
    gathered: dict[tuple[str, str, str], list[tuple[Run, Mapping[str, Any]]]] = {}
    for run in runs:
        if run.recipe["table"] == table:
            for row, results in run.rows():
                key = (run.recipe["data"].get("name", ""), row, run.record["scale"])
                gathered.setdefault(key, []).append((run, results))
    ordered = sorted(gathered.items(), key=lambda item: (item[0][0], SCALES.index(item[0][2])))
    return [_group(*key, members) for key, members in ordered]


def _group(
    data: str, row: str, scale: str, members: Sequence[tuple[Run, Mapping[str, Any]]]
) -> Group:
    metrics: dict[str, list[float]] = {}
    for _, results in members:
        for name, value in results.items():
            if isinstance(value, int | float):
                metrics.setdefault(name, []).append(value)
    histories = [run.results["history"] for run, _ in members if run.results.get("history")]
    return Group(data, row, scale, members[0][0].recipe, metrics, histories, len(members))
