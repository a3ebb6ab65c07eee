"""Small experiments for tests: data made up, cells that can be killed."""

import os
import signal
import sys
from pathlib import Path

import torch
from helpers import tenth_of_the_smallest

from sikagp.experiments.cell import Cell
from sikagp.experiments.data import Table
from sikagp.experiments.recipe import Recipe
from sikagp.experiments.runner import run_cell
from sikagp.experiments.tasks import TASKS, regression
from sikagp.training.module import VariationalModule


def made_up(name: str = "made-up", rows: int = 200) -> Table:
    """A table in raw units: targets with deviation 5, inputs far from standard."""
    generator = torch.Generator().manual_seed(0)
    x = 10 + 3 * torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    y = 5 * torch.sin(x.sum(-1)) + 0.5 * torch.randn(rows, generator=generator, dtype=x.dtype)
    return Table(name, x, y, torch.nn.functional.one_hot(torch.arange(rows) % 10).bool())


def recipe(name: str = "uci/gas/mine", **changes) -> Recipe:
    content = {
        "table": "uci",
        "row": "DGP-SIKA",
        "experiment": "regression",
        "data": {"name": "gas"},
        "method": "deep-sika",
        "options": {"hidden": [2], "level": 2, "num_samples": [1, 4]},
        "training": {"epochs": 4, "batch_size": 64},
        "scales": {"smoke": {}, "cpu": {}},
        "differs": "Made up.",
    }
    return Recipe(name=name, **{**content, **changes})


class PortableCell(Cell):
    """A cell that takes this module, and so its task, along to other processes."""


def cell(folder: Path, seed: int = 0, **changes) -> Cell:
    return PortableCell(recipe(**changes).at("smoke"), "smoke", seed, folder / "cell" / str(seed))


def run(cell: Cell) -> dict:
    """A task without training that notes that it ran, and fails or dies if it is told to."""
    with (cell.folder / "seen.txt").open("a") as file:
        file.write("run\n")
    if cell.recipe.method == "fail":
        raise ValueError("as told")
    if cell.recipe.method == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.recipe.method == "tiny":
        return {"value": tenth_of_the_smallest()}
    if cell.recipe.method == "threads":
        return {"value": torch.get_num_threads()}
    return {"value": float(cell.seed), "nothing": float("nan")}


def main() -> None:
    """Run a regression cell in the folder that is given, and die in its third epoch."""
    torch.set_num_threads(1)
    regression.uci = made_up
    start = VariationalModule.on_train_batch_start

    def die(module, batch, index):
        if module.current_epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        start(module, batch, index)

    VariationalModule.on_train_batch_start = die
    run_cell(cell(Path(sys.argv[1])))


TASKS["moment"] = "experiment_cells"

if __name__ == "__main__":
    main()
