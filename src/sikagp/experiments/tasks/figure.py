"""Figures that need no data: the method of the recipe names the one to draw."""

import importlib
from typing import Any

import torch
from matplotlib import rc_context

from sikagp.experiments.cell import Cell
from sikagp.experiments.figures.style import STYLE
from sikagp.validation import check_choice

# Modules with a function ``draw(seed=..., **options)`` that returns a figure and what it measured.
FIGURES = {
    "basis": "sikagp.experiments.figures.basis",
    "indexing": "sikagp.experiments.figures.indexing",
    "one-dimensional": "sikagp.experiments.figures.one_dimensional",
}


def run(cell: Cell) -> dict[str, Any]:
    """Draw a figure into the cell's folder; returns its name and what was measured."""
    name = check_choice("method", cell.recipe.method, FIGURES)
    module = importlib.import_module(FIGURES[name])
    with rc_context(STYLE), torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        figure, measured = module.draw(seed=cell.seed, **cell.recipe.options)
        figure.savefig(cell.folder / f"{name}.png")
    return {"figures": [f"{name}.png"], "rows": measured}
