"""Tables of any content: what is written is read again, and what is encoded are numbers."""

import json
import string
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sikagp.tabular.columns import (
    MAX_CATEGORIES,
    CategoryColumn,
    NumberColumn,
    Schema,
    as_numbers,
    looks_numeric,
)
from sikagp.tabular.files import TableError, read_table, write_table
from sikagp.tabular.model import guess_task, target_values

# Letters, separators, quotes, line ends and signs from beyond ASCII; blanks only inside.
words = st.text(alphabet=string.ascii_letters + ",;|\t\"'\n éß漢0", min_size=1, max_size=8).map(
    lambda text: f"w{text}w"
)
numbers = st.floats(-1e100, 1e100, allow_nan=False).map(lambda value: value + 0.0)


@given(names=st.lists(words, min_size=1, max_size=4, unique=True), data=st.data())
def test_any_text_survives_a_file(tmp_path_factory: pytest.TempPathFactory, names, data):
    names = [name.replace("\n", " ") for name in names]
    if len(set(names)) < len(names):
        return
    cells = st.lists(words, min_size=len(names), max_size=len(names))
    rows = data.draw(st.lists(cells, min_size=1, max_size=5))
    path = tmp_path_factory.mktemp("any") / "a.csv"
    table = pd.DataFrame([[*row, "x"] for row in rows], columns=[*names, "last"])
    write_table(table, path)
    pd.testing.assert_frame_equal(read_table(path), table, check_dtype=False)


@given(values=st.lists(numbers, min_size=1, max_size=20))
def test_numbers_survive_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, values):
    path = tmp_path_factory.mktemp("numbers") / "a.csv"
    write_table(pd.DataFrame({"x": values, "y": 1.0}), path)
    np.testing.assert_array_equal(as_numbers(read_table(path)["x"]), values)


@given(
    values=st.lists(st.none() | numbers, min_size=3, max_size=30),
    kinds=st.lists(st.none() | st.sampled_from("abc"), min_size=3, max_size=30),
)
def test_columns_become_finite_numbers_that_can_be_read_back(values, kinds):
    size = min(len(values), len(kinds))
    table = pd.DataFrame(
        {
            "n": [None if v is None else repr(v) for v in values[:size]],
            "k": pd.Series(kinds[:size], dtype=object),
            "one": ["1"] * size,
        }
    )
    schema = Schema.infer(table)
    encoded = schema.encode(table)
    assert list(encoded) == schema.features
    assert np.isfinite(encoded.to_numpy()).all()
    again = Schema.from_config(json.loads(json.dumps(schema.get_config())))
    pd.testing.assert_frame_equal(again.encode(table), encoded)
    for column in schema.columns:
        if isinstance(column, NumberColumn):
            given_there = table[column.name].notna()
            np.testing.assert_array_equal(
                encoded[column.name][given_there], as_numbers(table[column.name][given_there])
            )
            assert (encoded[column.name][~given_there] == column.median).all()
        else:
            marks = encoded[column.features].to_numpy()
            np.testing.assert_array_equal(marks.sum(1), table[column.name].notna())
            chosen = [column.categories[i] for i in marks.argmax(1)]
            there = table[column.name].notna().to_numpy()
            assert list(np.array(chosen)[there]) == list(table[column.name][there])


@pytest.mark.parametrize(("wrong", "numeric"), [(0, True), (9, True), (10, False), (50, False)])
def test_fewer_than_a_tenth_are_mistakes_more_are_texts(wrong, numeric):
    cells = pd.Series([*["oops"] * wrong, *map(str, range(100 - wrong))])
    assert looks_numeric(cells) is numeric


@pytest.mark.parametrize("size", [MAX_CATEGORIES, MAX_CATEGORIES + 1])
def test_as_many_categories_as_allowed_and_no_more(size):
    table = pd.DataFrame({"k": [f"c{i:03}" for i in range(size)]})
    if size > MAX_CATEGORIES:
        with pytest.raises(TableError, match=f"'k' has {size} different texts"):
            Schema.infer(table)
    else:
        assert isinstance(Schema.infer(table).columns[0], CategoryColumn)
        assert Schema.infer(table).features[-1] == f"k = c{size - 1:03}"


@pytest.mark.parametrize(("values", "task"), [(10, "classification"), (11, "regression")])
def test_up_to_ten_whole_numbers_are_labels(values, task):
    assert guess_task(pd.Series([str(i) for i in range(values)])) == task
    assert guess_task(pd.Series([f"{i}.5" for i in range(values)])) == "regression"


def test_targets_are_numbers_or_texts():
    target = pd.Series(["1", "2.50", "-3e2"], name="y")
    np.testing.assert_array_equal(target_values(target, "regression"), [1, 2.5, -300])
    np.testing.assert_array_equal(target_values(target, "classification"), target)
    np.testing.assert_array_equal(
        target_values(pd.Series([True, False]), "classification"), ["True", "False"]
    )


def test_a_missing_target_is_counted_and_the_first_is_named():
    target = pd.Series(["1", None, "3", None], name="y")
    for task in ("regression", "classification"):
        with pytest.raises(TableError, match=r"column 'y', row 2: .* \(2 such rows\)"):
            target_values(target, task)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_tables_are_replaced_whole(tmp_path: Path, ending: str):
    path = tmp_path / f"table{ending}"
    for value in ("old", "new"):
        write_table(pd.DataFrame({"x": [value], "y": ["1"]}), path)
    assert read_table(path)["x"].tolist() == ["new"]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
