"""Choosing settings: all combinations, compared by validation scores, the same number for all."""

import itertools
import math

import experiment_cells
import pytest
from experiment_cells import recipe
from typer.testing import CliRunner

from sikagp import cli
from sikagp.experiments import recipe as recipes
from sikagp.experiments.cell import plan
from sikagp.experiments.choosing import as_markdown, compare, variants, with_grid
from sikagp.experiments.recipe import RecipeError, load_recipes
from sikagp.experiments.runner import run_cells
from sikagp.experiments.tasks import load_criteria

GRID = {"options": {"level": [1, 2, 3]}, "training": {"learning_rate": [0.1, 0.2]}}
# By level: the first score is best at 3, the second at 2, the third at 2; ranks 2.7, 1.3, 2.
SCORES = {1: (3.0, 0.1, 0.5), 2: (2.0, 0.3, 0.9), 3: (1.0, 0.2, 0.4)}


def with_scores(cell) -> dict:
    loss, *rates = SCORES[cell.recipe.options["level"]]
    names = ("validation_auroc", "validation_auprc")
    worse = cell.recipe.training["learning_rate"] + cell.seed
    found = {name: rate - worse for name, rate in zip(names, rates, strict=True)}
    return {"validation_nll": loss + worse, **found, "nll": math.pi}


@pytest.fixture
def scored(monkeypatch):
    criteria = {
        "validation_nll": "lowest",
        "validation_auroc": "highest",
        "validation_auprc": "highest",
    }
    monkeypatch.setattr(experiment_cells, "CRITERIA", criteria, raising=False)
    monkeypatch.setattr(experiment_cells, "run", with_scores)


def mine(**changes):
    content = {"experiment": "moment", "grid": GRID, "scales": {"cpu": {"options": {"level": 9}}}}
    return recipe(**content | changes)


def test_every_combination_is_a_recipe_of_its_own():
    found = variants(mine(), "cpu")
    assert [(r.options["level"], r.training["learning_rate"]) for r in found] == list(
        itertools.product([1, 2, 3], [0.1, 0.2])
    )
    assert {r.options["hidden"][0] for r in found} == {2}
    assert found[0].name == "uci/gas/mine/level 1, learning_rate 0.1"
    assert len({r.name for r in found}) == 6


def test_the_best_mean_rank_is_chosen_and_test_scores_are_not_seen(tmp_path, scored):
    cells = plan(variants(mine(), "cpu"), "cpu", tmp_path, seeds=2)
    run_cells(cells)
    found = compare(cells)
    best = [setting for setting in found if setting.chosen]
    assert [setting.values for setting in best] == ["level 2, learning_rate 0.1"]
    assert best[0].scores["validation_nll"] == pytest.approx(2.0 + 0.1 + 0.5)
    # Third of six by the first score, after level 3 with both rates; first by the others.
    assert best[0].rank == pytest.approx((3 + 1 + 1) / 3)
    table = as_markdown(found)
    assert "| uci/gas/mine | **level 2, learning_rate 0.1** | 2.6000 |" in table
    assert "3.14" not in table
    assert len(table.splitlines()) == 8


def test_an_unfinished_run_is_not_compared(tmp_path, scored):
    cells = plan(variants(mine(), "cpu"), "cpu", tmp_path)
    run_cells(cells[:-1])
    with pytest.raises(RecipeError, match=r"level 3, learning_rate 0.2 has not finished"):
        compare(cells)


def test_only_recipes_with_a_grid_are_chosen(scored):
    plain = mine(grid={})
    assert with_grid([plain, mine()], "cpu") == [mine()]
    with pytest.raises(RecipeError, match="no grid in uci/gas/mine"):
        with_grid([plain], "cpu")
    with pytest.raises(RecipeError, match="nothing to choose at scale 'paper'"):
        with_grid([mine()], "paper")


def test_the_grid_is_no_part_of_a_run():
    assert mine().at("cpu") == mine(grid={}).at("cpu")
    assert "grid" not in mine().as_values()


def test_the_command_shows_the_table(tmp_path, monkeypatch, scored):
    monkeypatch.setattr(recipes, "load_recipes", lambda: [mine()])
    out = tmp_path / "choices"
    done = CliRunner().invoke(cli.build_app(), ["choose", "uci/gas", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "6 ran" in done.output
    assert "**level 2, learning_rate 0.1**" in done.output
    again = CliRunner().invoke(cli.build_app(), ["choose", "uci/gas", "--out", str(out)])
    assert "6 already there" in again.output
    wrong = CliRunner().invoke(cli.build_app(), ["choose", "mnist", "--out", str(out)])
    assert wrong.exit_code == 2
    assert "nothing is called" in wrong.output


def test_shipped_recipes_of_a_table_get_equal_care():
    tables: dict[str, set[int]] = {}
    for shipped in load_recipes():
        if not shipped.grid:
            continue
        assert load_criteria(shipped.experiment), shipped.name
        tables.setdefault(shipped.table, set()).add(len(variants(shipped, "cpu")))
    assert tables == {"clinc150-ood": {8}, "images": {6}}


def test_shipped_recipes_have_values_of_their_grids():
    for shipped in load_recipes():
        if shipped.grid:
            chosen = shipped.at("cpu")
            tried = [(one.data, one.options, one.training) for one in variants(shipped, "cpu")]
            assert (chosen.data, chosen.options, chosen.training) in tried, shipped.name
