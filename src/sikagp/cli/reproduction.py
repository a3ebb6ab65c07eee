"""The commands ``sikagp reproduce`` and ``sikagp report``; heavy imports wait until they run."""

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sikagp.experiments.recipe import Recipe

DEFAULT_FOLDER = Path("build/reproduce")


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure (see --list), or the path of a recipe.")
    ] = None,
    scale: Annotated[str, typer.Option(help="smoke (seconds), cpu, or paper.")] = "cpu",
    seeds: Annotated[int | None, typer.Option(help="Seeds per row; default: the recipe's.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder of results.")] = DEFAULT_FOLDER,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    show: Annotated[bool, typer.Option("--list", help="List what there is, and stop.")] = False,
) -> None:
    """Run what the paper shows; runs that are finished are not repeated."""
    from sikagp.experiments.listing import as_text
    from sikagp.experiments.recipe import RecipeError, load_recipes

    recipes = load_recipes()
    if show:
        typer.echo(as_text(recipes))
        return
    if name is None:
        raise typer.BadParameter("name a table, a figure or a recipe; --list shows them")
    try:
        _run(recipes, name, scale, seeds=seeds, device=device, out=out, jobs=jobs)
    except RecipeError as error:
        raise typer.BadParameter(str(error)) from error


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of results.")] = DEFAULT_FOLDER,
) -> None:
    """Write report.html and report.md about the runs in a folder."""
    from sikagp.experiments.report import write_report

    try:
        paths = write_report(folder)
    except FileNotFoundError as error:
        raise typer.BadParameter(str(error)) from error
    for path in paths:
        typer.echo(path)


def _run(
    recipes: "Sequence[Recipe]",
    name: str,
    scale: str,
    *,
    seeds: int | None,
    device: str,
    out: Path,
    jobs: int,
) -> None:
    from sikagp.experiments.cell import plan
    from sikagp.experiments.recipe import RecipeError, select
    from sikagp.experiments.runner import Status, run_cells

    progress = jobs == 1 and sys.stderr.isatty()
    chosen = select(recipes, name)
    cells = plan(chosen, scale, out, seeds=seeds, device=device, progress=progress)
    if not cells:
        known = sorted({scale for recipe in chosen for scale in recipe.scales})
        raise RecipeError(f"{name} has no scale {scale!r}; there are: {', '.join(known)}")
    with _messages():
        ended = run_cells(cells, jobs=jobs)
    counts = {status: list(ended.values()).count(status) for status in Status}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    typer.echo(f"{summary}; results are in {out}, see `sikagp report {out}`")
    if counts[Status.FAILED]:
        raise typer.Exit(1)


@contextlib.contextmanager
def _messages() -> Iterator[None]:
    """Show what the runner logs, while the block runs."""
    logger = logging.getLogger("sikagp.experiments")
    handler, level = logging.StreamHandler(sys.stderr), logger.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
