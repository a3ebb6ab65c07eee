"""Names of code on the pages exist, and the table of equations leaves none out."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
DOTTED = re.compile(r"`(?:sikagp\.)?([a-z_]+(?:\.\w+)+)(?:\(\))?`")
PUBLIC = re.compile(r"`(SIKA\w+|Deep\w+|Gauss\w+|\w*Domain|\w*Brownian\w*)(\.\w+)?`")


def resolve(name: str) -> Any:
    """Import the object that a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise ModuleNotFoundError(name)


def names(page: str) -> Iterator[str]:
    """Full names of the library's objects that a page mentions in backquotes."""
    text = (DOCS / page).read_text(encoding="utf-8")
    modules = {path.stem for path in (DOCS.parent / "src" / "sikagp").iterdir()}
    for name in DOTTED.findall(text):
        if name.split(".")[0] in modules:
            yield f"sikagp.{name}"
    for name, rest in PUBLIC.findall(text):
        yield f"sikagp.{name}{rest}"


@pytest.mark.parametrize("page", ["equations.md", "architecture.md", "pictures.md", "extending.md"])
def test_named_objects_exist(page: str) -> None:
    found = set(names(page))
    assert found
    for name in found:
        resolve(name)


def test_the_check_notices_a_wrong_name() -> None:
    with pytest.raises(AttributeError):
        resolve("sikagp.grid.no_such_function")


def numbered(kind: str) -> set[int]:
    """Numbers of equations, figures or tables in the first column of the equations page."""
    rows = (DOCS / "equations.md").read_text(encoding="utf-8").splitlines()
    firsts = [row.split("|")[1] for row in rows if row.startswith("| ")]
    lists = re.findall(rf"{kind} (\d+(?:, \d+)*)", "\n".join(firsts))
    return {int(number) for numbers in lists for number in numbers.split(",")}


@pytest.mark.parametrize(("kind", "count"), [("Eq\\.", 43), ("Figure", 7), ("Tables?", 7)])
def test_no_numbered_item_of_the_paper_is_left_out(kind: str, count: int) -> None:
    assert numbered(kind) == set(range(1, count + 1))
