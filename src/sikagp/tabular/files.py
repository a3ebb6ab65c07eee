"""Reading and writing tables: CSV, perhaps compressed, and Parquet."""

import csv
import gzip
import os
import re
import warnings
from pathlib import Path

import pandas as pd

from sikagp.writing import replacing

SEPARATORS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"')
TEXT = (".csv", ".tsv", ".txt")


class TableError(ValueError):
    """A table that cannot be used; says where in the table, and what was expected."""


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table with a header; every cell of a CSV file comes as text.

    What is a number and what a category is decided later, where the row and the column of a cell
    that does not fit can be named.
    """
    path = Path(path)
    if not path.is_file():
        raise TableError(f"there is no file {path}")
    table = pd.read_parquet(path) if _kind(path) == ".parquet" else _read_text(path)
    table.columns = [str(name).strip() for name in table.columns]
    _check_distinct(path, list(table.columns))
    if table.empty:
        raise TableError(f"{path} has a header but no rows")
    return table.reset_index(drop=True)


def write_table(table: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table as CSV or Parquet, by the file's ending; all of it or nothing."""
    parquet = _kind(Path(path)) == ".parquet"
    with replacing(Path(path)) as scratch:
        if parquet:
            table.to_parquet(scratch, index=False)
        else:
            table.to_csv(scratch, index=False)


def _kind(path: Path) -> str:
    """Ending that names the format, whether or not the file is compressed."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    kind = endings[-1] if endings else ""
    if kind not in (*TEXT, ".parquet"):
        raise TableError(f"{path} must end in .csv, .tsv or .txt (perhaps .gz), or in .parquet")
    return kind


def _read_text(path: Path) -> pd.DataFrame:
    """Read cells as text; the separator is the one that the header has most of, unquoted."""
    try:
        # Spreadsheets begin a file with a mark that is no part of the first name.
        unpack = gzip.open if path.suffix == ".gz" else open
        with unpack(path, "rt", encoding="utf-8-sig") as file:
            header = file.readline()
            separator = max(SEPARATORS, key=_QUOTED.sub("", header).count)
            names = next(csv.reader([header], delimiter=separator), [])
            if not names:
                raise TableError(f"{path} is empty: expected a header and rows")
            _check_distinct(path, [name.strip() for name in names])
            file.seek(0)
            with warnings.catch_warnings():
                # Rows that are longer than the header would lose cells.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                return pd.read_csv(
                    file, sep=separator, dtype=str, skipinitialspace=True, index_col=False
                )
    except UnicodeDecodeError as error:
        problem = f"byte {error.object[error.start]:#x} is not UTF-8; save the file as UTF-8"
        raise TableError(f"{path} is not a table of text: {problem}") from None
    except pd.errors.ParserWarning:
        problem = f"rows have more cells than the header has names, which is {len(names)}"
        raise TableError(f"{path} is not a table of text: {problem}") from None
    except (EOFError, gzip.BadGzipFile, pd.errors.ParserError) as error:
        raise TableError(f"{path} is not a table of text: {str(error).strip()}") from None


def _check_distinct(path: Path, names: list[str]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(
            f"{path} has more than one column {repeated[0]!r}; its first line must name the columns"
        )
