"""Choosing settings: every combination of a recipe's grid is run and compared by validation scores.

Rows of one table have grids of the same size, so that no system gets more care than another. Test
scores of these runs are never shown.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sikagp.experiments.cell import Cell
from sikagp.experiments.recipe import Recipe, RecipeError
from sikagp.experiments.tasks import Best, load_criteria


@dataclass(frozen=True)
class Setting:
    """One combination.

    Attributes:
        recipe: name of its recipe.
        values: what the combination sets, as a text.
        scores: validation scores, means over seeds.
        rank: mean over the criteria of the rank among the recipe's settings; 1 is best.
        chosen: whether this is the first setting with the best rank.
    """

    recipe: str
    values: str
    scores: Mapping[str, float]
    rank: float
    chosen: bool


def variants(recipe: Recipe, scale: str) -> list[Recipe]:
    """The recipe at a scale with each combination of its grid, named after what it sets."""
    axes = [
        (section, key, values)
        for section, keys in recipe.grid.items()
        for key, values in keys.items()
    ]
    found = []
    for combination in itertools.product(*(values for _, _, values in axes)):
        variant, names = recipe.at(scale), []
        for (section, key, _), value in zip(axes, combination, strict=True):
            variant = variant.changed({section: {key: value}})
            names.append(f"{key} {value}")
        name = f"{recipe.name}/{', '.join(names)}"
        found.append(replace(variant, name=name, scales={scale: {}}))
    return found


def with_grid(recipes: Sequence[Recipe], scale: str) -> list[Recipe]:
    """Recipes that have a grid, the scale, and scores of validation rows."""
    found = [
        recipe
        for recipe in recipes
        if recipe.grid and scale in recipe.scales and load_criteria(recipe.experiment)
    ]
    if not found:
        names = ", ".join(recipe.name for recipe in recipes)
        raise RecipeError(f"nothing to choose at scale {scale!r}: no grid in {names}")
    return found


def compare(cells: Sequence[Cell]) -> list[Setting]:
    """Settings of all recipes from the finished runs of their variants."""
    runs: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        recipe, _, values = cell.recipe.name.rpartition("/")
        runs.setdefault(recipe, {}).setdefault(values, []).append(cell)
    return [setting for recipe, settings in runs.items() for setting in _ranked(recipe, settings)]


def as_markdown(settings: Sequence[Setting]) -> str:
    """Return a table of the settings, those chosen in bold."""
    names = list(dict.fromkeys(name for setting in settings for name in setting.scores))
    titles = [name.removeprefix("validation_").replace("_", " ") for name in names]
    lines = [["recipe", "setting", *titles, "mean rank"], ["---"] * (len(names) + 3)]
    for setting in settings:
        values = f"**{setting.values}**" if setting.chosen else setting.values
        scores = [f"{setting.scores[name]:.4f}" if name in setting.scores else "" for name in names]
        lines.append([setting.recipe, values, *scores, f"{setting.rank:.2f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _ranked(recipe: str, settings: Mapping[str, Sequence[Cell]]) -> list[Setting]:
    criteria = load_criteria(next(iter(settings.values()))[0].recipe.experiment)
    scores = {values: _scores(cells, criteria) for values, cells in settings.items()}
    ranks = {
        values: statistics.fmean(
            _rank(own[name], [other[name] for other in scores.values()], best)
            for name, best in criteria.items()
        )
        for values, own in scores.items()
    }
    chosen = min(ranks, key=ranks.__getitem__)
    return [
        Setting(recipe, values, scores[values], ranks[values], values == chosen)
        for values in settings
    ]


def _scores(cells: Sequence[Cell], criteria: Mapping[str, Best]) -> dict[str, float]:
    records = [cell.finished() for cell in cells]
    results = [record["results"] for record in records if record is not None]
    if len(results) < len(cells):
        raise RecipeError(f"{cells[0].recipe.name} has not finished")
    return {name: statistics.fmean(found[name] for found in results) for name in criteria}


def _rank(value: float, values: Sequence[float], best: Best) -> int:
    better = [v < value if best == "lowest" else v > value for v in values]
    return 1 + sum(better)
