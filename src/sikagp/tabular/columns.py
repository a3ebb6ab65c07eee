"""What the columns of a table mean, and how they become the features of a model.

A column of numbers is one feature; where a number is missing the median stands in, and a second
feature says so if training rows lacked it too. A column of categories is one feature per category,
1 or 0; a category that was not seen in training is 0 everywhere.
"""

import dataclasses
import difflib
import logging
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sikagp._typing import Bool, Float
from sikagp.tabular.files import TableError
from sikagp.validation import check_choice

logger = logging.getLogger(__name__)

MAX_CATEGORIES = 50
# Columns that an error names at most.
MAX_NAMES = 20
# A column where fewer cells than this share are not numbers is a column of numbers with mistakes.
MISTAKES = 0.1
MISSING = ("impute", "refuse")
NO_DATES = "turn dates into numbers that may matter, such as the month or days since a start"
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}")
# Currencies, percent signs, blanks, and commas for thousands or decimals.
_DECORATION = re.compile(r"[$€£¥%,'\s]")


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """A column of numbers; ``median`` stands in for missing ones."""

    name: str
    median: float
    flag_missing: bool

    @property
    def features(self) -> list[str]:
        """Names of the features that the column becomes."""
        return [self.name, f"{self.name} is missing"] if self.flag_missing else [self.name]

    def encode(self, cells: pd.Series, missing: str) -> Float[np.ndarray, "rows features"]:
        """Turn cells into features of shape (rows, features)."""
        values = as_numbers(cells)
        absent = np.isnan(values)
        if absent.any():
            _check_missing(self.name, absent, missing)
        filled = np.where(absent, self.median, values)
        return np.column_stack([filled, absent] if self.flag_missing else [filled]).astype(float)


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """A column of texts that recur."""

    name: str
    categories: tuple[str, ...]

    @property
    def features(self) -> list[str]:
        """Names of the features that the column becomes."""
        return [f"{self.name} = {category}" for category in self.categories]

    def encode(self, cells: pd.Series, missing: str) -> Float[np.ndarray, "rows features"]:
        """Turn cells into features of shape (rows, features)."""
        absent = cells.isna().to_numpy()
        if absent.any():
            _check_missing(self.name, absent, missing)
        text = cells.astype(str).to_numpy()
        features = text[:, None] == np.array(self.categories, dtype=object)
        unseen = ~features.any(1) & ~absent
        if unseen.any():
            row = int(np.flatnonzero(unseen)[0])
            logger.warning(
                "column %r, row %d: %r was not seen in training (%s)",
                *(self.name, row + 1, text[row], count(unseen, "such row")),
            )
        return features.astype(float)


Column = NumberColumn | CategoryColumn
_KINDS: dict[str, type[Column]] = {"number": NumberColumn, "category": CategoryColumn}


@dataclasses.dataclass(frozen=True)
class Schema:
    """Columns in the order in which a model takes them."""

    columns: tuple[Column, ...]
    missing: str = "impute"

    @classmethod
    def infer(
        cls, table: pd.DataFrame, *, categorical: Collection[str] = (), missing: str = "impute"
    ) -> "Schema":
        """Decide for each column what it holds; columns without any value are left out.

        Args:
            table: rows without the target.
            categorical: columns to take as categories even if they look like numbers.
            missing: ``"impute"``, or ``"refuse"`` rows that lack a value.
        """
        check_choice("missing", missing, MISSING)
        check_columns(table, categorical)
        empty = [name for name in table if table[name].isna().all()]
        if empty:
            logger.warning("left out, for they are empty: %s", ", ".join(map(repr, empty)))
        names = [name for name in table if name not in empty]
        if not names:
            raise TableError("there is no column to predict from")
        columns = tuple(_infer(table[name], force=name in categorical) for name in names)
        return cls(columns, missing)

    @property
    def features(self) -> list[str]:
        """Names of all features."""
        return [feature for column in self.columns for feature in column.features]

    def encode(self, table: pd.DataFrame) -> pd.DataFrame:
        """Turn a table into numbers, one column per feature; further columns are ignored."""
        check_columns(table, [column.name for column in self.columns])
        parts = [column.encode(table[column.name], self.missing) for column in self.columns]
        return pd.DataFrame(np.concatenate(parts, axis=1), columns=self.features)

    def get_config(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        columns = [
            {
                "kind": next(kind for kind, known in _KINDS.items() if isinstance(column, known)),
                **dataclasses.asdict(column),
            }
            for column in self.columns
        ]
        return {"columns": columns, "missing": self.missing}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Schema":
        """Build it from what :meth:`get_config` returned."""
        columns = []
        for column in config["columns"]:
            fields = {key: value for key, value in column.items() if key != "kind"}
            if "categories" in fields:
                fields["categories"] = tuple(fields["categories"])
            columns.append(_KINDS[column["kind"]](**fields))
        return cls(tuple(columns), config["missing"])


def check_columns(table: pd.DataFrame, names: Collection[str]) -> None:
    """Refuse a table that lacks one of the columns."""
    absent = [name for name in names if name not in table]
    if absent:
        present = {str(name).lower(): name for name in table.columns}
        close = difflib.get_close_matches(str(absent[0]).lower(), present, 1)
        raise TableError(
            f"missing columns: {_some(absent)}; the table has {_some(table.columns)}"
            + (f"; did you mean {present[close[0]]!r}?" if close else "")
        )


def _some(names: Collection[str]) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(repr, list(names)[:MAX_NAMES])) + more


def looks_numeric(cells: pd.Series) -> bool:
    """Whether a column holds numbers, perhaps with a few mistakes among them."""
    return not pd.api.types.is_bool_dtype(cells) and _share_of_texts(cells) < MISTAKES


def _share_of_texts(cells: pd.Series) -> float:
    """Share of the cells that are there and no numbers."""
    present = cells.dropna()
    return float(pd.to_numeric(present, errors="coerce").isna().mean()) if len(present) else 1.0


def as_numbers(cells: pd.Series) -> Float[np.ndarray, " rows"]:
    """Cells as numbers, NaN where missing; anything else is refused with its place."""
    if pd.api.types.is_datetime64_any_dtype(cells) or pd.api.types.is_timedelta64_dtype(cells):
        raise TableError(f"column {cells.name!r} holds times, expected numbers; {NO_DATES}")
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    wrong = (np.isnan(values) & cells.notna().to_numpy()) | np.isinf(values)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise TableError(
            f"column {cells.name!r}, row {row + 1}: expected a finite number, "
            f"got {cells.iloc[row]!r} ({count(wrong, 'such cell')})"
        )
    return values


def count(marks: Bool[np.ndarray, " rows"], what: str) -> str:
    """How many marks are set, in words."""
    number = int(marks.sum())
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def hint_at_numbers(text: str) -> str:
    """What to do about a text that is a number in the eyes of a human; empty for other texts."""
    plain = _DECORATION.sub("", text)
    if plain == text or pd.isna(pd.to_numeric(plain, errors="coerce")):
        return ""
    return "; if these are numbers, write them plainly, as in 1234.5"


def _hint_at_dates(text: str) -> str:
    """What to do about dates; empty for other texts."""
    return f"; {NO_DATES}" if _DATE.match(text) else ""


def _infer(cells: pd.Series, *, force: bool) -> Column:
    name = str(cells.name)
    if not force and looks_numeric(cells):
        values = as_numbers(cells)
        if len(values) > 2 and (np.diff(values) == 1).all():
            logger.warning("column %r only counts the rows; perhaps it should be dropped", name)
        return NumberColumn(name, float(np.nanmedian(values)), bool(np.isnan(values).any()))
    categories = sorted(cells.dropna().astype(str).unique())
    if len(categories) > MAX_CATEGORIES:
        raise TableError(
            f"column {name!r} has {len(categories)} different texts, such as {categories[0]!r}; at "
            f"most {MAX_CATEGORIES} make sense as categories: drop the column, or group its values"
            + hint_at_numbers(categories[0])
            + _hint_at_dates(categories[0])
        )
    if not force and _share_of_texts(cells) < 1 - MISTAKES:
        logger.warning("column %r holds numbers and texts; all are taken as categories", name)
    return CategoryColumn(name, tuple(categories))


def _check_missing(name: str, absent: Bool[np.ndarray, " rows"], missing: str) -> None:
    row, rows = int(np.flatnonzero(absent)[0]) + 1, count(absent, "such row")
    if missing == "refuse":
        raise TableError(f"column {name!r}, row {row}: the value is missing ({rows})")
    logger.info("column %r, row %d: missing value filled in (%s)", name, row, rows)
