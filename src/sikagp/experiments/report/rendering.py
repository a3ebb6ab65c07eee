"""Writing the report: one HTML page that needs nothing else, and Markdown."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from sikagp.experiments.paper import Published, load_paper
from sikagp.experiments.report.collection import Group, Run, collect, failures, group
from sikagp.experiments.report.pictures import draw_curves
from sikagp.experiments.report.tables import TableView, build_table
from sikagp.plots.drawing import as_uri


@dataclass(frozen=True)
class Picture:
    """A figure: its caption, its content, and where its file lies."""

    caption: str
    uri: str
    path: str
    notes: str = ""


@dataclass(frozen=True)
class Chapter:
    """A table or figure of the paper with everything that belongs to it."""

    published: Published
    table: TableView | None
    pictures: Sequence[Picture]
    differences: Mapping[str, Sequence[str]]


def write_report(folder: Path) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.md`` into a folder of runs; returns their paths."""
    runs, failed = collect(folder), failures(folder)
    if not runs and not failed:
        raise FileNotFoundError(f"{folder} holds no runs; `sikagp reproduce` writes some")
    content = {
        "chapters": _chapters(runs, folder),
        "missing": _missing(runs),
        "failures": failed,
        "origins": _origins(runs),
        "runs": len(runs),
        "scales": sorted({run.record["scale"] for run in runs}),
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    paths = folder / "report.html", folder / "report.md"
    for path in paths:
        page = environment.get_template(f"{path.name}.j2").render(content)
        path.write_text(page + "\n", encoding="utf-8")
    return paths


def _chapters(runs: Sequence[Run], folder: Path) -> list[Chapter]:
    paper = load_paper()
    chapters = []
    for published in paper.results.values():
        own = [run for run in runs if run.recipe["table"] == published.source]
        if not own:
            continue
        groups = group(runs, published.source)
        table = None if published.is_figure else build_table(published, groups, paper)
        # The pictures of shared runs belong to the table that their recipes name.
        pictures = [] if published.runs_of else _all_pictures(own, groups, folder)
        texts = {run.recipe["differs"]: [run.recipe["row"]] for run in own if run.recipe["differs"]}
        chapters.append(Chapter(published, table, pictures, table.differences if table else texts))
    return chapters


def _all_pictures(runs: Sequence[Run], groups: Sequence[Group], folder: Path) -> list[Picture]:
    """Pictures that runs left, and their learning curves."""
    pictures = [picture for run in _first_seeds(runs) for picture in _pictures(run, folder)]
    curves = draw_curves(groups)
    if curves is not None:
        path = folder / f"curves-{runs[0].recipe['table']}.png"
        path.write_bytes(curves)
        pictures.append(Picture("Learning curves, one run each", as_uri(curves), path.name))
    return pictures


def _first_seeds(runs: Sequence[Run]) -> list[Run]:
    """One run of each recipe and scale: pictures of further seeds look alike."""
    first: dict[tuple[str, str], Run] = {}
    for run in runs:
        first.setdefault((run.recipe["name"], run.record["scale"]), run)
    return list(first.values())


def _pictures(run: Run, folder: Path) -> list[Picture]:
    caption = f"{run.recipe['name']}, scale {run.record['scale']}, seed {run.record['seed']}"
    return [
        Picture(
            caption,
            as_uri((run.folder / name).read_bytes()),
            os.path.relpath(run.folder / name, folder),
            run.results.get("notes") or "",
        )
        for name in run.results.get("figures", ())
    ]


def _missing(runs: Sequence[Run]) -> list[Published]:
    """Tables and figures that no run belongs to."""
    present = {run.recipe["table"] for run in runs}
    return [entry for entry in load_paper().results.values() if entry.source not in present]


def _origins(runs: Sequence[Run]) -> list[tuple[int, str]]:
    """Machines, versions and commits with the number of runs they have."""
    return [(count, text) for text, count in Counter(map(_origin, runs)).most_common()]


def _origin(run: Run) -> str:
    machine, git = run.record["machine"], run.record["git"]
    memory = machine.get("memory_bytes")
    parts: list[Any] = [
        machine.get("accelerator"),
        machine["processor"],
        f"{machine['threads']} of {machine['cores']} cores",
        f"{memory / 2**30:.0f} GiB" if memory else None,
        f"Python {machine['python']}",
        *(f"{name} {version}" for name, version in run.record["versions"].items() if version),
    ]
    if git["commit"]:
        parts.append(f"commit {git['commit'][:10]}{' with changes' if git['modified'] else ''}")
    return ", ".join(part for part in parts if part)
