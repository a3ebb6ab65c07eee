"""Cells: a recipe at one scale with one seed, and the folder where it leaves its results."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sikagp.experiments.recipe import Recipe

RECORD, STARTED, FAILURE, LOCK = "record.json", "recipe.json", "failure.txt", ".lock"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        recipe: with the values of the scale put in.
        scale: its name.
        seed: of everything random; tables with standard splits take the one of that number.
        folder: where the run keeps checkpoints, figures and its record.
        device: ``"cpu"`` or ``"cuda"``.
        progress: whether to show progress bars.
    """

    recipe: Recipe
    scale: str
    seed: int
    folder: Path
    device: str = "cpu"
    progress: bool = False

    @property
    def label(self) -> str:
        """Name in messages."""
        return f"{self.recipe.name} {self.scale} {self.seed}"

    def description(self) -> dict[str, Any]:
        """What was asked for, as JSON values; a run with another description is another run."""
        return {
            "recipe": self.recipe.as_values(),
            "scale": self.scale,
            "seed": self.seed,
            "device": self.device,
        }

    def finished(self) -> dict[str, Any] | None:
        """Record of an earlier run of the same recipe, if there is one."""
        record = _read(self.folder / RECORD)
        wanted = self.description()
        if record is None or any(record.get(key) != wanted[key] for key in wanted):
            return None
        return record

    def started(self) -> bool:
        """Whether an earlier run of the same recipe began."""
        return _read(self.folder / STARTED) == self.description()


def plan(
    recipes: Iterable[Recipe],
    scale: str,
    folder: Path,
    *,
    seeds: int | None = None,
    device: str = "cpu",
    progress: bool = False,
) -> list[Cell]:
    """Cells of all recipes that have the scale; seeds 0, 1, ... as many as the recipe says."""
    return [
        Cell(
            recipe.at(scale),
            scale,
            seed,
            folder / recipe.name / scale / str(seed),
            device,
            progress,
        )
        for recipe in recipes
        if scale in recipe.scales
        for seed in range(seeds or recipe.num_seeds(scale))
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
