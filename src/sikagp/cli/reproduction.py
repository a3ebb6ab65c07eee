"""The commands ``reproduce``, ``choose`` and ``report``; heavy imports wait until they run."""

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sikagp.cli.refusals import check_folder, refusals
from sikagp.validation import check_choice

if TYPE_CHECKING:
    from sikagp.experiments.cell import Cell

DEFAULT_FOLDER = Path("build/reproduce")
DEVICES = ("cpu", "cuda")
Scale = Annotated[str, typer.Option(help="smoke (seconds), cpu, or paper.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Out = Annotated[Path, typer.Option(help="Folder of results.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time.")]


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="A table or figure (see --list), or recipes, as in uci/kin40k."),
    ] = None,
    scale: Scale = "cpu",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per row; default: the recipe's.")
    ] = None,
    device: Device = "cpu",
    out: Out = DEFAULT_FOLDER,
    jobs: Jobs = 1,
    show: Annotated[bool, typer.Option("--list", help="List what there is, and stop.")] = False,
) -> None:
    """Run what the paper shows; runs that are finished are not repeated."""
    from sikagp.experiments.cell import plan
    from sikagp.experiments.listing import as_text
    from sikagp.experiments.recipe import RecipeError, load_recipes, select

    recipes = load_recipes()
    if show:
        typer.echo(as_text(recipes))
        return
    if name is None:
        raise typer.BadParameter("name a table, a figure or a recipe; --list shows them")
    with refusals():
        _check_device(device)
        check_folder(out)
        chosen = select(recipes, name)
        cells = plan(chosen, scale, out, seeds=seeds, device=device, progress=_progress(jobs))
        if not cells:
            known = sorted({scale for recipe in chosen for scale in recipe.scales})
            raise RecipeError(f"{name} has no scale {scale!r}; there are: {', '.join(known)}")
    _run(cells, out, jobs)
    typer.echo(f"`sikagp report {out}` writes a page about them")


def choose(
    name: Annotated[str, typer.Argument(help="A table, or recipes, as in uci/kin40k.")],
    scale: Scale = "cpu",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per setting.")] = 1,
    device: Device = "cpu",
    out: Out = Path("build/choices"),
    jobs: Jobs = 1,
) -> None:
    """Run every setting of the recipes' grids and compare them by validation scores alone."""
    from sikagp.experiments.cell import plan
    from sikagp.experiments.choosing import as_markdown, compare, variants, with_grid
    from sikagp.experiments.recipe import load_recipes, select

    with refusals():
        _check_device(device)
        check_folder(out)
        recipes = with_grid(select(load_recipes(), name), scale)
        settings = [setting for recipe in recipes for setting in variants(recipe, scale)]
        cells = plan(settings, scale, out, seeds=seeds, device=device, progress=_progress(jobs))
    _run(cells, out, jobs)
    with refusals():
        typer.echo(as_markdown(compare(cells)))


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of results.")] = DEFAULT_FOLDER,
) -> None:
    """Write report.html and report.md about the runs in a folder."""
    from sikagp.experiments.report import write_report

    with refusals():
        paths = write_report(folder)
    for path in paths:
        typer.echo(path)


def _check_device(device: str) -> None:
    import torch

    if check_choice("device", device, DEVICES) == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' is not there: torch finds none on this machine")


def _progress(jobs: int) -> bool:
    return jobs == 1 and sys.stderr.isatty()


def _run(cells: "Sequence[Cell]", out: Path, jobs: int) -> None:
    """Run cells, say how they ended, and exit with 1 if one failed."""
    from sikagp.experiments.runner import Status, run_cells

    with _messages():
        ended = run_cells(cells, jobs=jobs)
    counts = {status: list(ended.values()).count(status) for status in Status}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    typer.echo(f"{summary}; results are in {out}")
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
