"""What can be run: every table and figure of the paper, its recipes, scales, data and cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from sikagp.experiments.data.presence import is_present
from sikagp.experiments.paper import load_paper
from sikagp.experiments.recipe import SCALES, Recipe


@dataclass(frozen=True)
class Listed:
    """One table or figure.

    Attributes:
        name: for the command line.
        in_paper: the paper's name.
        title: what it shows.
        recipes: how many there are.
        scales: scales that at least one of them has, with what they cost.
        absent: names of data that are not on this machine.
    """

    name: str
    in_paper: str
    title: str
    recipes: int
    scales: Sequence[str]
    absent: Sequence[str]

    def __str__(self) -> str:
        head = f"{self.name:16} {self.in_paper}: {self.title}"
        if not self.recipes:
            return f"{head}\n{'':16} no recipe yet"
        plural = "recipe" if self.recipes == 1 else "recipes"
        line = f"{self.recipes} {plural}; {', '.join(self.scales)}"
        if self.absent:
            line += f"; not on this machine, to be downloaded: {', '.join(self.absent)}"
        return f"{head}\n{'':16} {line}"


def listing(recipes: Sequence[Recipe]) -> list[Listed]:
    """List the paper's tables, then its figures."""
    found = []
    for name, published in load_paper().results.items():
        own = [recipe for recipe in recipes if recipe.table == published.source]
        scales = [scale for scale in SCALES if any(scale in recipe.scales for recipe in own)]
        costs = [f"{scale} ({published.cost.get(scale, 'seconds')})" for scale in scales]
        data = dict.fromkeys(recipe.data_name for recipe in own if recipe.data_name)
        absent = [item for item in data if not is_present(item)]
        found.append(Listed(name, published.in_paper, published.title, len(own), costs, absent))
    return found


def as_text(recipes: Sequence[Recipe]) -> str:
    """Return the listing for a terminal; parts of the paper without results come last."""
    setting = [f"{name}: {text}" for name, text in load_paper().setting.items()]
    return "\n".join([*map(str, listing(recipes)), "", "Without results of their own:", *setting])
