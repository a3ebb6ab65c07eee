"""Tables: what columns mean, what is refused and where, and the way to a saved model and back."""

import gzip
import json
import logging

import numpy as np
import pandas as pd
import pytest

from sikagp.tabular.columns import CategoryColumn, NumberColumn, Schema
from sikagp.tabular.evaluation import evaluate
from sikagp.tabular.files import TableError, read_table, write_table
from sikagp.tabular.model import TabularModel, guess_task
from sikagp.tabular.workflow import fit_table

QUICK = {"max_epochs": 2, "hidden": ()}


def people(rows: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(0)
    age = random.integers(20, 80, rows)
    city = random.choice(["Oslo", "Rome"], rows)
    pay = 10 * age + 100 * (city == "Rome") + random.normal(size=rows)
    return pd.DataFrame({"age": age.astype(str), "city": city, "pay": pay.round(3).astype(str)})


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet"])
def test_tables_survive_a_round_trip(tmp_path, name):
    table = people()
    write_table(table, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), table, check_dtype=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_byte_order_mark_of_spreadsheets_is_no_part_of_a_name(tmp_path):
    (tmp_path / "a.csv").write_bytes("\ufeffx,y\r\n1,ö\r\n".encode())
    assert read_table(tmp_path / "a.csv").to_dict("records") == [{"x": "1", "y": "ö"}]


def test_a_separator_after_the_last_cell_adds_no_column(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2,\n3,4,\n")
    assert read_table(tmp_path / "a.csv").to_dict("list") == {"x": ["1", "3"], "y": ["2", "4"]}


def test_quoted_names_do_not_tell_the_separator(tmp_path):
    (tmp_path / "a.csv").write_text('"income; net; yearly",y\n1,2\n')
    assert read_table(tmp_path / "a.csv").to_dict("records") == [
        {"income; net; yearly": "1", "y": "2"}
    ]


def test_quoted_cells_may_hold_separators_and_lines(tmp_path):
    (tmp_path / "a.csv").write_text('x,y\n"1, or ""2""","a\nb"\n')
    assert read_table(tmp_path / "a.csv").to_dict("records") == [{"x": '1, or "2"', "y": "a\nb"}]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found(tmp_path, separator):
    path = tmp_path / "a.txt"
    path.write_text(f'"x"{separator}y\n1{separator}2\n')
    assert read_table(path).to_dict("records") == [{"x": "1", "y": "2"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"x", "must end in"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"x,y\n", "no rows"),
        ("a.csv", b"x,x\n1,2\n", "more than one column 'x'"),
        ("a.csv", b"x,y\n1,2\n1,2,3\n", "line 3"),
        ("a.csv", b"My table\nx,y\n1,2\n", "more cells than the header has names, which is 1"),
        ("a.csv", b"x,y\n1,2,3\n4,5,6\n", "more cells than the header has names, which is 2"),
        ("a.csv", b"1,2,2\n3,4,5\n", "its first line must name the columns"),
        ("a.parquet", b"x,y\n1,2\n", "(?i)parquet"),
        ("a.csv", b"x,y\n\xff\xfe,2\n", "byte 0xff is not UTF-8; save the file"),
        ("a.csv.gz", gzip.compress(b"x,y\n1,2\n", mtime=0)[:-9], "not a table of text"),
        ("a.csv.gz", b"x,y\n1,2\n", "not a table of text"),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)
    with pytest.raises(TableError, match="there is no file"):
        read_table(tmp_path / "absent.csv")


def test_columns_become_features():
    table = pd.DataFrame(
        {"size": ["1", None, "3", "8"], "kind": ["a", "b", "a", None], "empty": [None] * 4}
    )
    schema = Schema.infer(table)
    assert schema.columns == (NumberColumn("size", 3.0, True), CategoryColumn("kind", ("a", "b")))
    encoded = schema.encode(table)
    assert list(encoded) == ["size", "size is missing", "kind = a", "kind = b"]
    expected = [[1, 0, 1, 0], [3, 1, 0, 1], [3, 0, 1, 0], [8, 0, 0, 0]]
    np.testing.assert_array_equal(encoded, expected)
    assert Schema.from_config(json.loads(json.dumps(schema.get_config()))) == schema


def test_codes_can_be_categories():
    table = pd.DataFrame({"zip": ["1", "2", "1"]})
    assert Schema.infer(table).features == ["zip"]
    assert Schema.infer(table, categorical=["zip"]).features == ["zip = 1", "zip = 2"]


def test_a_cell_that_does_not_fit_is_named():
    cells = [str(i) for i in range(40)]
    cells[16] = "many"
    with pytest.raises(
        TableError, match=r"column 'n', row 17: expected a finite number, got 'many'"
    ):
        Schema.infer(pd.DataFrame({"n": cells}))
    schema = Schema.infer(pd.DataFrame({"n": ["1", "2"]}))
    for bad in ("many", "inf"):
        with pytest.raises(TableError, match=f"column 'n', row 2: .* got '{bad}'"):
            schema.encode(pd.DataFrame({"n": ["1", bad]}))


def test_missing_values_can_be_refused():
    schema = Schema.infer(pd.DataFrame({"n": ["1", "2"], "k": ["a", "b"]}), missing="refuse")
    with pytest.raises(TableError, match=r"column 'n', row 2: the value is missing \(1 such row\)"):
        schema.encode(pd.DataFrame({"n": ["1", None], "k": ["a", "b"]}))
    with pytest.raises(TableError, match="column 'k', row 1: the value is missing"):
        schema.encode(pd.DataFrame({"n": ["1", "2"], "k": [None, "b"]}))


def test_an_unknown_category_counts_as_none(caplog):
    schema = Schema.infer(pd.DataFrame({"k": ["a", "b"]}))
    with caplog.at_level(logging.WARNING):
        encoded = schema.encode(pd.DataFrame({"k": ["b", "c"]}))
    np.testing.assert_array_equal(encoded, [[0, 1], [0, 0]])
    assert "row 2: 'c' was not seen in training" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(schema.encode(pd.DataFrame({"k": ["a", None]})), [[1, 0], [0, 0]])
    assert not caplog.text  # a missing category is none that training lacked


@pytest.mark.parametrize("text", ["$1,234", "1,5", "12 %", "€ 3"])
def test_numbers_in_fancy_dress_are_told_from_texts(text):
    cells = [f"{i}{text}" if text[0].isdigit() else text + str(i) for i in range(60)]
    with pytest.raises(TableError, match=r"write them plainly, as in 1234\.5"):
        Schema.infer(pd.DataFrame({"n": cells}))


@pytest.mark.parametrize("kind", ["datetime64[ns]", "datetime64[ns, UTC]", "timedelta64[ns]"])
def test_times_are_no_numbers(kind):
    # pandas would make them nanoseconds, and a missing one the year 1677
    when = pd.Series([1, 2, 3], name="when").astype(kind)
    with pytest.raises(TableError, match=r"column 'when' holds times, .* days since a start"):
        Schema.infer(pd.DataFrame({"when": when}))
    with pytest.raises(TableError, match="column 'when' holds times"):
        guess_task(when)


@pytest.mark.parametrize("text", ["2024-01-{:02}", "{:02}.01.2024", "1/{:02}/24 12:00"])
def test_dates_are_told_from_texts(text):
    with pytest.raises(TableError, match="turn dates into numbers"):
        Schema.infer(pd.DataFrame({"n": [text.format(i) for i in range(60)]}))


def test_a_mixture_of_numbers_and_texts_is_noticed(caplog):
    cells = [*map(str, range(10)), *"abcdefghij"]
    with caplog.at_level(logging.WARNING):
        schema = Schema.infer(pd.DataFrame({"n": cells, "k": list("ab") * 10, "c": cells}))
        Schema.infer(pd.DataFrame({"c": cells}), categorical=["c"])
    assert [record.args for record in caplog.records] == [("n",), ("c",)]
    assert len(schema.columns[0].categories) == 20


def test_a_long_list_of_columns_is_cut_short():
    table = pd.DataFrame({f"x{i}": ["1"] for i in range(25)})
    with pytest.raises(TableError, match=r"'x18', 'x19' and 5 more; did you mean 'x7'\?$"):
        Schema.infer(table, categorical=["X7"])


def test_a_column_that_counts_the_rows_is_noticed(caplog):
    with caplog.at_level(logging.WARNING):
        Schema.infer(pd.DataFrame({"id": ["7", "8", "9"], "n": ["7", "9", "8"]}))
    assert [record.args for record in caplog.records] == [("id",)]


def test_schemas_refuse_what_makes_no_sense():
    with pytest.raises(TableError, match="'id' has 60 different texts"):
        Schema.infer(pd.DataFrame({"id": [f"row{i}" for i in range(60)]}))
    with pytest.raises(TableError, match="no column to predict from"):
        Schema.infer(pd.DataFrame({"a": [None, None]}))
    with pytest.raises(TableError, match=r"missing columns: 'b'; the table has 'a'$"):
        Schema.infer(pd.DataFrame({"a": ["1"]}), categorical=["b"])
    with pytest.raises(TableError, match=r"did you mean 'price'\?"):
        Schema.infer(pd.DataFrame({"price": ["1"]}), categorical=["prize"])
    with pytest.raises(ValueError, match="'impute', 'refuse'"):
        Schema.infer(pd.DataFrame({"a": ["1"]}), missing="ignore")


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["a", "b"], "classification"),
        (["0", "1", "1"], "classification"),
        ([True, False], "classification"),
        (["0.5", "1", "1"], "regression"),
        ([str(i) for i in range(30)], "regression"),
    ],
)
def test_the_task_follows_from_the_target(cells, task):
    assert guess_task(pd.Series(cells)) == task


@pytest.mark.parametrize("target", ["pay", "city"])
def test_fit_writes_a_model_that_predicts_the_same(tmp_path, target):
    table = people()
    out = tmp_path / "model"
    summary = fit_table(table, target, out, **QUICK)
    assert sorted(path.name for path in out.iterdir()) == [
        *("estimator", "metrics.json", "report.html", "table.json")
    ]
    assert json.loads((out / "metrics.json").read_text()) == summary
    assert "data:image/png" in (out / "report.html").read_text()
    model = TabularModel.load(out)
    again = TabularModel.fit(table, target, random_state=0, **QUICK)
    pd.testing.assert_frame_equal(model.predict(table), again.predict(table))
    # the target may be absent, and columns may come in another order
    shuffled = table.drop(columns=target)[[*table.columns.drop(target)][::-1]]
    pd.testing.assert_frame_equal(model.predict(shuffled), model.predict(table))


def test_the_model_that_is_scored_has_not_seen_the_test_rows(tmp_path, monkeypatch):
    scored = {}

    def look(model, train, test):
        scored.update(model=model, train=train, test=test)
        return evaluate(model, train, test)

    monkeypatch.setattr("sikagp.tabular.workflow.evaluate", look)
    table = people()
    fit_table(table, "pay", tmp_path / "model", **QUICK)
    rows = [set(scored[part].itertuples(index=False)) for part in ("train", "test")]
    assert [len(part) for part in rows] == [48, 12]
    assert rows[0] | rows[1] == set(table.itertuples(index=False))
    schema = Schema.infer(table.drop(columns="pay"))
    again = TabularModel.fit(scored["train"], "pay", schema=schema, random_state=0, **QUICK)
    pd.testing.assert_frame_equal(scored["model"].predict(table), again.predict(table))


def test_predictions_say_what_they_are():
    table = people()
    regression = TabularModel.fit(table, "pay", **QUICK).predict(table, level=0.5)
    assert list(regression) == ["mean", "std", "lower", "upper"]
    inside = (regression["lower"] < regression["mean"]) & (regression["mean"] < regression["upper"])
    assert inside.all()
    labels = TabularModel.fit(table, "city", **QUICK).predict(table)
    assert list(labels) == ["label", "probability", "entropy", "P(Oslo)", "P(Rome)"]
    np.testing.assert_allclose(labels["P(Oslo)"] + labels["P(Rome)"], 1)
    p = labels["P(Oslo)"]
    np.testing.assert_allclose(labels["entropy"], -p * np.log(p) - (1 - p) * np.log(1 - p))


def test_targets_that_cannot_be_learned_are_refused(tmp_path):
    table = people()
    for change, message in (
        ({"pay": None}, "row 3: the target is missing"),
        ({"city": "Bern"}, "label 'Bern' occurs once"),
    ):
        column = next(iter(change))
        broken = table.copy()
        broken.loc[2, column] = change[column]
        with pytest.raises(TableError, match=message):
            fit_table(broken, column, tmp_path / "model", **QUICK)
    with pytest.raises(TableError, match="one label only"):
        fit_table(table.assign(city="Oslo"), "city", tmp_path / "model", **QUICK)
    with pytest.raises(TableError, match="at least 10 rows, got 4"):
        fit_table(table[:4], "pay", tmp_path / "model", **QUICK)
    with pytest.raises(TableError, match="missing columns: 'wage'"):
        fit_table(table, "wage", tmp_path / "model", **QUICK)
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_left_alone(tmp_path):
    with pytest.raises(TableError, match="exists already"):
        fit_table(people(), "pay", tmp_path, **QUICK)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch):
    def train(*_, **__):
        raise AssertionError("trained for nothing")

    monkeypatch.setattr(TabularModel, "fit", train)
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match=r"cannot write to .*file: File exists"):
        fit_table(people(), "pay", tmp_path / "file" / "model", **QUICK)


@pytest.mark.filterwarnings("error")
def test_names_in_any_script_can_be_reported(tmp_path):
    table = people().rename(columns={"age": "年龄"})
    fit_table(table, "pay", tmp_path / "model", **QUICK)
    assert "年龄" in (tmp_path / "model" / "report.html").read_text(encoding="utf-8")


def test_nothing_is_left_of_a_fit_that_fails(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sikagp.tabular.workflow.write_report", fail)
    with pytest.raises(KeyboardInterrupt):
        fit_table(people(), "pay", tmp_path / "model", **QUICK)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": "other"}'])
def test_folders_without_a_model_are_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "table.json").write_text(content)
    with pytest.raises(ValueError, match=r"table\.json"):
        TabularModel.load(tmp_path)
