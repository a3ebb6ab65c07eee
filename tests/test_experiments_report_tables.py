"""Tables of the report row by row: order, best entries, digits; what is collected and drawn."""

import json
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.figure
import pytest

from sikagp.experiments.paper import Metric, Paper, Published, load_paper
from sikagp.experiments.report import pictures, rendering
from sikagp.experiments.report.collection import Group, Run, collect, failures, group
from sikagp.experiments.report.tables import _order, build_table, show, show_published

PAPER = Paper(
    metrics={
        "accuracy": Metric("accuracy (%)", "higher", 1, 100.0),
        "nll": Metric("NLL", "lower", 3),
        "seconds": Metric("seconds"),
    },
    results={},
    setting={},
)
TABLE = Published(
    "images",
    "Table 1",
    "made up",
    {},
    metrics=("accuracy", "nll"),
    extra=("seconds",),
    rows={"digits": {"GP": {"accuracy": [97.5, 0.25], "nll": 0.125}}},
)


def group_of(
    row: str, *, data: str = "digits", scale: str = "cpu", histories=(), **metrics
) -> Group:
    recipe = {"published": {}, "differs": "", "row": row}
    return Group(data, row, scale, recipe, metrics, histories, 1)


def lines(*groups: Group) -> dict[tuple[str, str], list]:
    (section,) = build_table(TABLE, groups, PAPER).sections
    return {(line.row, line.scale): line.entries for line in section.lines}


def best(entries: dict) -> list[list[tuple[str, str]]]:
    return [[key for key, row in entries.items() if row[i].best] for i in range(2)]


def test_the_best_is_the_highest_or_the_lowest_of_its_scale():
    found = lines(
        group_of("A", accuracy=[0.9], nll=[0.5]),
        group_of("B", accuracy=[0.8], nll=[0.4]),
        group_of("C", scale="smoke", accuracy=[0.95], nll=[0.1]),
    )
    assert best(found) == [[("A", "cpu")], [("B", "cpu")]]
    assert not any(entry.best for entry in found[("GP", "")])


def test_a_metric_without_direction_has_no_best():
    found = lines(group_of("A", seconds=[1.0]), group_of("B", seconds=[2.0]))
    assert [entry.ours for entry in found[("A", "cpu")]] == ["-", "-", "1.00"]
    assert not any(entry.best for row in found.values() for entry in row)


def test_columns_beyond_the_papers_need_a_number():
    without = build_table(TABLE, [group_of("A", accuracy=[0.9])], PAPER)
    assert [(c.title, c.in_paper) for c in without.columns] == [
        ("accuracy (%)", True),
        ("NLL", True),
    ]
    filled = build_table(TABLE, [group_of("A", seconds=[0.5])], PAPER)
    assert [c.title for c in filled.columns][2:] == ["seconds"]
    assert not filled.columns[2].in_paper


def test_numbers_are_scaled_and_have_deviations_over_seeds():
    one, several = group_of("A", accuracy=[0.9]), group_of("A", accuracy=[0.90, 0.92, 0.94])
    metric = PAPER.metrics["accuracy"]
    assert show(one, "accuracy", metric) == "90.0"
    assert show(several, "accuracy", metric) == "92.0 ± 2.0"
    assert show(one, "nll", PAPER.metrics["nll"]) == "-"


def test_rows_follow_the_paper_with_variants_behind_their_own():
    ours = ["C", "B (ours)", "A", "A (best)", "AB"]
    assert _order(["A", "B"], ours) == ["A", "A (best)", "B", "B (ours)", "C", "AB"]


def test_published_numbers_of_a_recipe_fill_rows_that_the_paper_lacks():
    other = replace(
        group_of("SNGP", accuracy=[0.9]), recipe={"published": {"accuracy": 96.6}, "differs": ""}
    )
    found = lines(other)
    assert found[("SNGP", "cpu")][0].paper == "96.60"
    assert found[("GP", "")][0].paper == "97.50 ± 0.25"
    assert found[("GP", "")][1].paper == "0.125"


def test_data_of_the_paper_come_first_and_each_once():
    groups = [group_of("A", data=name, accuracy=[0.9]) for name in ("letters", "digits", "letters")]
    table = build_table(TABLE, groups, PAPER)
    assert [section.data for section in table.sections] == ["digits", "letters"]


def test_differences_name_every_row_once():
    recipe = {"published": {}, "differs": "Fewer epochs."}
    groups = [
        replace(group_of(row, scale=scale), recipe=recipe)
        for row, scale in (("A", "cpu"), ("A", "smoke"), ("B", "cpu"))
    ]
    groups += [replace(groups[0], data="")]
    assert build_table(TABLE, groups, PAPER).differences == {
        "Fewer epochs.": ["digits: A", "digits: B", "A"]
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.5, "0.50"), (0.1234, "0.1234"), ([1, 0.5], "1.00 ± 0.50"), ("12 h", "12 h")],
)
def test_published_values_as_printed(value, text):
    assert show_published(value) == text


def record(table: str = "uci", data: str = "gas", row: str = "A", scale: str = "cpu", **results):
    recipe = {"name": f"{data}/{row}", "table": table, "row": row, "data": {"name": data}}
    return {"recipe": {**recipe, "differs": ""}, "scale": scale, "seed": 0, "results": results}


def test_runs_are_grouped_by_data_then_scale():
    runs = [
        Run(record(data="protein", rmse=1.0), Path()),
        Run(record(scale="smoke", rmse=1.0), Path()),
        Run(record(scale="paper", rmse=1.0, note="text", flag=None), Path()),
        Run(record(scale="paper", rmse=3.0, history=[{"loss": 1.0}]), Path()),
        Run(record(table="images", rmse=9.0), Path()),
    ]
    found = group(runs, "uci")
    assert [(g.data, g.scale, g.runs) for g in found] == [
        ("gas", "paper", 2),
        ("gas", "smoke", 1),
        ("protein", "cpu", 1),
    ]
    assert found[0].metrics == {"rmse": [1.0, 3.0]}
    assert found[0].histories == [[{"loss": 1.0}]]
    assert found[0].mean("rmse") == 2
    assert found[0].deviation("rmse") == pytest.approx(2**0.5)
    assert found[1].deviation("rmse") is None
    assert found[0].mean("nll") is None


def test_a_run_may_fill_several_rows():
    runs = [Run(record(rows={"A": {"rmse": 1.0}, "B": {"rmse": 2.0}}), Path())]
    assert [(g.row, g.mean("rmse")) for g in group(runs, "uci")] == [("A", 1.0), ("B", 2.0)]


def test_failures_are_those_without_a_record(tmp_path):
    for name in ("bad", "mended"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "failure.txt").write_text("Traceback\nValueError: no\n")
    (tmp_path / "mended" / "record.json").write_text(json.dumps(record()))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "failure.txt").touch()
    assert failures(tmp_path) == {"bad": "ValueError: no", "empty": ""}
    assert [run.folder.name for run in collect(tmp_path)] == ["mended"]
    with pytest.raises(FileNotFoundError, match="is not a folder; `sikagp reproduce` writes one"):
        collect(tmp_path / "none")


def curve(history: list, number: int = 0):
    ax = matplotlib.figure.Figure().subplots()
    pictures._plot(ax, group_of("A", histories=[history]), number)
    return ax.get_lines()


def test_curves_show_held_out_rows_where_there_are_some():
    both = [{"loss": 3.0, "val_loss": 2.0}, {"loss": 1.0, "val_loss": 1.5}]
    (line,) = curve(both)
    assert line.get_xydata().tolist() == [[1, 2.0], [2, 1.5]]
    assert line.get_label() == "A, cpu"
    (line,) = curve([{"loss": 3.0}, {"loss": None}, {"loss": 1.0}])
    assert line.get_xydata().tolist() == [[1, 3.0], [3, 1.0]]
    assert line.get_label() == "A, cpu (training loss)"
    assert not curve([{"loss": None}, {"loss": None}])


def test_many_curves_are_told_apart():
    looks = {
        (line.get_color(), line.get_linestyle())
        for number in range(2 * len(pictures.PALETTE))
        for line in curve([{"loss": 1.0}], number)
    }
    assert len(looks) == 2 * len(pictures.PALETTE)


def test_one_epoch_makes_no_curve():
    assert pictures.draw_curves([group_of("A", histories=[[{"loss": 1.0}]])]) is None
    drawn = pictures.draw_curves([group_of("A", histories=[[{"loss": 1.0}, {"loss": 2.0}]])])
    assert drawn.startswith(b"\x89PNG")


def test_origins_are_counted_and_say_what_is_known():
    machine = {"processor": "Abacus", "threads": 1, "cores": 2, "python": "3.11"}
    plain = {"machine": machine, "versions": {"torch": "2.1", "numba": None}}
    clean = {**plain, "git": {"commit": "0123456789abcdef", "modified": False}}
    large = {**machine, "memory_bytes": 8 * 2**30, "accelerator": "Big GPU"}
    other = {**plain, "machine": large, "git": {"commit": None, "modified": None}}
    found = rendering._origins([Run(one, Path()) for one in (other, clean, clean)])
    assert found == [
        (2, "Abacus, 1 of 2 cores, Python 3.11, torch 2.1, commit 0123456789"),
        (1, "Big GPU, Abacus, 1 of 2 cores, 8 GiB, Python 3.11, torch 2.1"),
    ]


def test_what_nobody_ran_is_missing():
    runs = [Run(record("clinc150-ood"), Path())]
    missing = {published.name for published in rendering._missing(runs)}
    paper = load_paper().results
    filled = {name for name, published in paper.items() if published.source == "clinc150-ood"}
    assert len(filled) > 1
    assert missing == set(paper) - filled


def test_pictures_of_one_seed_of_each_recipe_and_scale():
    runs = [Run({**record(scale=scale), "seed": seed}, Path()) for scale in "ab" for seed in (0, 1)]
    chosen = rendering._first_seeds(runs)
    assert [(run.record["scale"], run.record["seed"]) for run in chosen] == [("a", 0), ("b", 0)]


def test_every_paper_table_has_titles_and_known_directions():
    for metric in load_paper().metrics.values():
        assert metric.better in ("", "higher", "lower")
        assert re.search(r"\w", metric.title)
