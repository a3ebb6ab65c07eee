"""Recipes say what to run, strictly; the shipped ones fit the paper and the code."""

from pathlib import Path

import pytest

from sikagp.experiments.listing import as_text, listing
from sikagp.experiments.paper import load_paper
from sikagp.experiments.preparation import TableOptions
from sikagp.experiments.recipe import RecipeError, load_recipe, load_recipes, select
from sikagp.experiments.tasks import TASKS, load_task
from sikagp.training import TrainingConfig

TEXT = """
table: uci
row: DGP-SIKA
experiment: regression
data: {name: gas}
method: deep-sika
options: {level: 7, hidden: [64, 64]}
training: {epochs: 100}
grid: {options: {level: [6, 7]}}
scales:
  paper: {}
  smoke: {data: {rows: 20}, options: {level: 2}, training: {epochs: 1}, seeds: 3}
"""


def write(folder: Path, text: str, name: str = "uci/gas/mine") -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_scales_change_some_values(tmp_path):
    recipe = load_recipe(write(tmp_path, TEXT), tmp_path)
    assert recipe.name == "uci/gas/mine"
    small = recipe.at("smoke")
    assert small.options == {"level": 2, "hidden": [64, 64]}
    assert small.data == {"name": "gas", "rows": 20}
    assert (small.training, recipe.num_seeds("smoke")) == ({"epochs": 1}, 3)
    assert recipe.at("paper").options == recipe.options
    with pytest.raises(RecipeError, match="no scale 'cpu'; there are: paper, smoke"):
        recipe.at("cpu")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("row: DGP-SIKA", "raw: DGP-SIKA", "uci/gas/mine: unknown raw; known: table, row"),
        ("row: DGP-SIKA", "", "row must be given"),
        ("table: uci", "table: [uci]", "table must be a str"),
        ("data: {name: gas}", "data: gas", "data must be a Mapping, got 'gas'"),
        ("paper: {}", "huge: {}", "scales: huge: unknown; known: paper, cpu, smoke"),
        ("seeds: 3", "seed: 3", "smoke: expected data, options, training or seeds, got .*seed"),
        ("seeds: 3", "seeds: 0", "seeds must be a positive integer, got 0"),
        ("data: {rows: 20}", "data: 20", "data must be a Mapping"),
        ("epochs: 100", "learning_rate: 1e-3", "'1e-3' is text; write numbers with a point"),
        ("level: 2", "level: 2e1", "'2e1' is text"),
        ("grid: {options: {level: [6, 7]}}", "grid: {levels: [6]}", "grid: expected data, options"),
        ("grid: {options: {level: [6, 7]}}", "grid: {options: [6]}", "options must be a Mapping"),
        ("level: [6, 7]", "level: 6", "level must be a list of values, got 6"),
        ("level: [6, 7]", "level: []", r"level must be a list of values, got \[\]"),
        ("level: [6, 7]", "level: [6e1]", "'6e1' is text"),
        ("table: uci", "table: {", "not YAML"),
        (TEXT, "- a list", "expected keys and values, got list"),
    ],
)
def test_what_nobody_understands_is_refused(tmp_path, old, new, problem):
    assert old in TEXT
    with pytest.raises(RecipeError, match=problem):
        load_recipe(write(tmp_path, TEXT.replace(old, new)), tmp_path)


def test_selection(tmp_path):
    for name in ("uci/gas/a", "uci/gas/b", "uci/gasoline/a"):
        write(tmp_path, TEXT, name)
    recipes = load_recipes(tmp_path)
    assert len(select(recipes, "uci")) == 3
    assert [r.name for r in select(recipes, "uci/gas")] == ["uci/gas/a", "uci/gas/b"]
    assert [r.name for r in select(recipes, "uci/gas/b")] == ["uci/gas/b"]
    with pytest.raises(RecipeError, match=r"nothing is called 'gas'; .* with recipes: uci"):
        select(recipes, "gas")


RECIPES = load_recipes()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_shipped_recipes(recipe):
    published = load_paper().results[recipe.table]
    assert recipe.experiment in TASKS
    assert recipe.differs or recipe.table == "basis"
    for scale in recipe.scales:
        resolved = recipe.at(scale)
        TrainingConfig(**resolved.training)
        if recipe.experiment == "regression":
            assert TableOptions(**resolved.data).name in published.rows
            assert recipe.name.split("/")[:2] == [recipe.table, recipe.data_name]


def test_the_papers_rows_have_recipes():
    rows = load_paper().results["uci"].rows
    shipped = {(recipe.data_name, recipe.row) for recipe in RECIPES if recipe.table == "uci"}
    assert {(data, row) for data in rows for row in rows[data]} <= shipped


def test_the_papers_recipe_is_the_papers():
    (recipe,) = select(RECIPES, "uci/gas/dgp-sika")
    training = recipe.at("paper").training
    wanted = {"epochs": 100, "batch_size": 512, "learning_rate": 1e-3, "weight_decay": 5e-4}
    assert {key: training[key] for key in wanted} == wanted
    assert recipe.options["hidden"] == [128, 128]
    assert recipe.options["num_samples"] == [10, 20]


def test_metrics_of_the_paper_are_described():
    paper = load_paper()
    for published in paper.results.values():
        assert {*published.metrics, *published.extra} <= set(paper.metrics)
        for rows in published.rows.values():
            assert all(set(row) <= set(published.metrics) for row in rows.values())


def test_the_listing_names_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("SIKAGP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = as_text(RECIPES)
    for number in range(1, 12):
        assert f"Table {number}:" in text
    for number in (*range(1, 8), "D.1"):
        assert f"Figure {number}:" in text
    entries = {entry.name: entry for entry in listing(RECIPES)}
    assert set(entries["uci"].absent) == {"gas", "kin40k", "parkinsons", "protein"}
    assert "to be downloaded: gas" in str(entries["uci"])
    (tmp_path / "uci/gas").mkdir(parents=True)
    for name in ("data", "test_mask"):
        (tmp_path / f"uci/gas/{name}.csv.gz").touch()
    assert "gas" not in {entry.name: entry for entry in listing(RECIPES)}["uci"].absent


def test_unknown_experiments():
    with pytest.raises(ValueError, match="experiment must be one of 'regression'"):
        load_task("magic")
