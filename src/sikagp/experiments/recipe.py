"""Recipes: one YAML file per row of a table, with everything that a run needs to know.

The file ``recipes/uci/kin40k/svgp.yaml`` holds the recipe ``uci/kin40k/svgp``. Its sections
``data``, ``options`` and ``training`` are those of the paper; a scale changes some of their values.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

RECIPES = Path(__file__).parent / "recipes"
SCALES = ("paper", "cpu", "smoke")
SECTIONS = ("data", "options", "training")
_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


class RecipeError(ValueError):
    """A recipe says something that nobody understands."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to run for one row.

    Attributes:
        name: path of the file below the folder of recipes, without its ending.
        table: name of the paper's table or figure, as in ``paper.yaml``.
        row: name of the row; those of the paper's rows are the paper's.
        experiment: kind of experiment, as in :data:`sikagp.experiments.tasks.TASKS`.
        data: which data, under ``name``, and options of the experiment about them.
        method: which system, or which figure or benchmark.
        options: options of the method.
        training: options of :class:`sikagp.training.TrainingConfig`.
        scales: for each scale the values that differ, by section, and how many ``seeds``.
        published: numbers from elsewhere, shown where the paper has none for this row.
        differs: what differs from the paper's protocol, and why.
        grid: by section and key, values that ``sikagp choose`` compares; no part of a run.
    """

    name: str
    table: str
    row: str
    experiment: str
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    method: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scales: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    published: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    differs: str = ""
    grid: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def data_name(self) -> str:
        """Name of the data, empty where the experiment needs none."""
        return str(self.data.get("name", ""))

    @property
    def builds_on(self) -> str:
        """Name of the recipe whose trained network this one takes over, empty where none is."""
        name = str(self.data.get("frozen", ""))
        return name if "/" in name else ""

    def at(self, scale: str) -> "Recipe":
        """Return the recipe with a scale's values put in; no scales and no grid are left."""
        if scale not in self.scales:
            known = ", ".join(self.scales) or "none"
            raise RecipeError(f"{self.name}: no scale {scale!r}; there are: {known}")
        return dataclasses.replace(self.changed(self.scales[scale]), scales={}, grid={})

    def changed(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with some values of its sections replaced."""
        data, options, training = (
            {**getattr(self, name), **changes.get(name, {})} for name in SECTIONS
        )
        return dataclasses.replace(self, data=data, options=options, training=training)

    def num_seeds(self, scale: str) -> int:
        """How many seeds a scale runs unless told otherwise."""
        return int(self.scales[scale].get("seeds", 1))

    def as_values(self) -> dict[str, Any]:
        """Return the content as JSON values; keys are strings then."""
        values = dataclasses.asdict(self)
        del values["grid"]
        return {key: _plain(value) for key, value in values.items()}


def load_recipe(path: Path, folder: Path = RECIPES) -> Recipe:
    """Read and check one file."""
    name = path.relative_to(folder).with_suffix("").as_posix()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RecipeError(f"{name}: not YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{name}: expected keys and values, got {type(content).__name__}")
    _check_keys(name, content)
    recipe = Recipe(name=name, **content)
    _check_values(recipe)
    return recipe


def load_recipes(folder: Path = RECIPES) -> list[Recipe]:
    """Read all recipes below a folder, in alphabetical order."""
    return [load_recipe(path, folder) for path in sorted(folder.rglob("*.yaml"))]


def select(recipes: Iterable[Recipe], name: str) -> list[Recipe]:
    """Recipes of a table or figure, or whose name is or starts with the given path."""
    recipes = list(recipes)
    chosen = [r for r in recipes if r.table == name or f"{r.name}/".startswith(f"{name}/")]
    if not chosen:
        known = ", ".join(sorted({recipe.table for recipe in recipes}))
        raise RecipeError(f"nothing is called {name!r}; tables and figures with recipes: {known}")
    return chosen


def _check_keys(name: str, content: Mapping[Any, Any]) -> None:
    fields = {field.name: field for field in dataclasses.fields(Recipe) if field.name != "name"}
    unknown = [str(key) for key in content if key not in fields]
    if unknown:
        raise RecipeError(f"{name}: unknown {', '.join(unknown)}; known: {', '.join(fields)}")
    missing = [key for key in ("table", "row", "experiment", "scales") if not content.get(key)]
    if missing:
        raise RecipeError(f"{name}: {', '.join(missing)} must be given")
    for key, value in content.items():
        expected = str if fields[key].type is str else Mapping
        if not isinstance(value, expected):
            raise RecipeError(f"{name}: {key} must be a {expected.__name__}, got {value!r}")


def _check_values(recipe: Recipe) -> None:
    for scale, changes in recipe.scales.items():
        where = f"{recipe.name}: scales: {scale}"
        if scale not in SCALES:
            raise RecipeError(f"{where}: unknown; known: {', '.join(SCALES)}")
        if not isinstance(changes, Mapping) or set(changes) - {*SECTIONS, "seeds"}:
            raise RecipeError(
                f"{where}: expected {', '.join(SECTIONS)} or seeds, got {_keys(changes)}"
            )
        for section in set(changes) & set(SECTIONS):
            if not isinstance(changes[section], Mapping):
                raise RecipeError(f"{where}: {section} must be a Mapping")
        seeds = changes.get("seeds", 1)
        if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
            raise RecipeError(f"{where}: seeds must be a positive integer, got {seeds!r}")
    _check_grid(recipe)
    _check_numbers(
        recipe.name, [getattr(recipe, section) for section in (*SECTIONS, "scales", "grid")]
    )


def _check_grid(recipe: Recipe) -> None:
    where = f"{recipe.name}: grid"
    if set(recipe.grid) - set(SECTIONS):
        raise RecipeError(f"{where}: expected {', '.join(SECTIONS)}, got {_keys(recipe.grid)}")
    for section, keys in recipe.grid.items():
        if not isinstance(keys, Mapping):
            raise RecipeError(f"{where}: {section} must be a Mapping, got {keys!r}")
        for key, values in keys.items():
            if not isinstance(values, list) or not values:
                raise RecipeError(f"{where}: {key} must be a list of values, got {values!r}")


def _check_numbers(name: str, value: Any) -> None:
    """YAML reads 1e-3 as text; only 1.0e-3 is a number."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        raise RecipeError(f"{name}: {value!r} is text; write numbers with a point, as in 1.0e-3")
    for part in value.values() if isinstance(value, Mapping) else ():
        _check_numbers(name, part)
    for part in value if isinstance(value, list | tuple) else ():
        _check_numbers(name, part)


def _keys(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, Mapping) else repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
