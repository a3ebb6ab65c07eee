"""Tables of the report: the paper's rows and ours, metric by metric, as texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sikagp.experiments.paper import Metric, Paper, Published
from sikagp.experiments.report.collection import Group

ABSENT = "-"


@dataclass(frozen=True)
class Entry:
    """Our number and the paper's, and whether ours is the best of its column."""

    ours: str
    paper: str
    best: bool = False


@dataclass(frozen=True)
class Line:
    """One row: who, at which scale, how many runs, and one entry per column."""

    row: str
    scale: str
    runs: int
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Section:
    """Rows for one set of data."""

    data: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Column:
    """Title, direction, and whether the paper has this column."""

    title: str
    better: str
    in_paper: bool


@dataclass(frozen=True)
class TableView:
    """A table of the paper, ready to be written."""

    published: Published
    columns: Sequence[Column]
    sections: Sequence[Section]
    differences: Mapping[str, Sequence[str]]


def build_table(published: Published, groups: Sequence[Group], paper: Paper) -> TableView:
    """Put the paper's rows and ours side by side; columns that nobody fills are left out."""
    names = list(published.metrics)
    names += [n for n in published.extra if any(g.mean(n) is not None for g in groups)]
    columns = [
        Column(paper.metrics[n].title, paper.metrics[n].better, n in published.metrics)
        for n in names
    ]
    data = [*published.rows, *(g.data for g in groups if g.data not in published.rows)]
    sections = [
        _section(d, published, [g for g in groups if g.data == d], names, paper)
        for d in dict.fromkeys(data)
    ]
    differences: dict[str, list[str]] = {}
    for each in groups:
        text = str(each.recipe.get("differs", ""))
        if text:
            label = f"{each.data}: {each.row}" if each.data else each.row
            rows = differences.setdefault(text, [])
            rows += [] if label in rows else [label]
    return TableView(published, columns, sections, differences)


def _section(
    data: str, published: Published, groups: Sequence[Group], names: Sequence[str], paper: Paper
) -> Section:
    rows = published.rows.get(data, {})
    lines = []
    for row in _order(list(rows), [g.row for g in groups]):
        ours = [g for g in groups if g.row == row]
        lines += [
            _line(g, rows.get(row, g.recipe["published"]), groups, names, paper) for g in ours
        ]
        if not ours:
            entries = [Entry(ABSENT, show_published(rows[row].get(n))) for n in names]
            lines.append(Line(row, "", 0, entries))
    return Section(data, lines)


def _order(published: Sequence[str], ours: Sequence[str]) -> list[str]:
    """The paper's rows, each followed by its variants such as "DGP-SIKA (ours)", then the rest."""
    ordered = []
    for row in published:
        ordered += [row, *(name for name in ours if name.startswith(f"{row} ("))]
    return list(dict.fromkeys([*ordered, *ours]))


def _line(
    group: Group,
    published: Mapping[str, Any],
    rivals: Sequence[Group],
    names: Sequence[str],
    paper: Paper,
) -> Line:
    entries = []
    for name in names:
        metric = paper.metrics[name]
        best = group.mean(name) is not None and group.mean(name) == _best(
            name, metric, group, rivals
        )
        entries.append(Entry(show(group, name, metric), show_published(published.get(name)), best))
    return Line(group.row, group.scale, group.runs, entries)


def _best(name: str, metric: Metric, group: Group, rivals: Sequence[Group]) -> float | None:
    """Best mean among rows that ran at the same scale, where there is a better and a worse."""
    values = [rival.mean(name) for rival in rivals if rival.scale == group.scale]
    known = [value for value in values if value is not None]
    if len(known) < 2 or not metric.better:
        return None
    return max(known) if metric.better == "higher" else min(known)


def show(group: Group, name: str, metric: Metric) -> str:
    """Mean and standard deviation of our runs."""
    mean, deviation = group.mean(name), group.deviation(name)
    if mean is None:
        return ABSENT
    text = f"{mean * metric.factor:.{metric.digits}f}"
    return text if deviation is None else f"{text} ± {deviation * metric.factor:.{metric.digits}f}"


def show_published(value: Any) -> str:
    """A published number, its deviation if it has one, as many digits as were printed."""
    if value is None:
        return ABSENT
    if isinstance(value, list | tuple):
        return " ± ".join(_plain(part) for part in value)
    return value if isinstance(value, str) else _plain(value)


def _plain(value: float) -> str:
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"
