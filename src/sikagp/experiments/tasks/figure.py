"""Figures that need no data: the method of the recipe names the one to draw."""

from typing import Any

import torch
from matplotlib import rc_context

from sikagp.experiments.cell import Cell
from sikagp.experiments.figures.basis import draw_basis
from sikagp.experiments.figures.indexing import draw_indexing
from sikagp.experiments.figures.one_dimensional import draw_one_dimensional
from sikagp.experiments.figures.style import STYLE
from sikagp.validation import check_choice


def run(cell: Cell) -> dict[str, Any]:
    """Draw a figure into the cell's folder; returns its name and what was measured."""
    name = check_choice("method", cell.recipe.method, FIGURES)
    with rc_context(STYLE), torch.random.fork_rng(devices=[]):
        figure, measured = FIGURES[name](cell)
        figure.savefig(cell.folder / f"{name}.png")
    return {"figures": [f"{name}.png"], "rows": measured}


FIGURES = {
    "basis": lambda cell: (draw_basis(**cell.recipe.options), {}),
    "indexing": lambda cell: (draw_indexing(**cell.recipe.options), {}),
    "one-dimensional": lambda cell: draw_one_dimensional(**cell.recipe.options, seed=cell.seed + 1),
}
