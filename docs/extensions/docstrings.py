"""What autodoc has to know about this package's docstrings and members.

Docstrings speak of shapes such as (*batch, outputs), whose stars start no emphasis, and set their
equations apart by indentation alone. Fields of named tuples stand in the signature already, and
scikit-learn adds methods that only its own guide explains.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from sphinx.application import Sphinx

LITERAL = re.compile(r"(``.*?``|`[^`]*`)")
ROUTING = re.compile(r"set_\w+_request")
MARKUP = re.compile(r"(?<![\w*])\*(?=\w)|\|")


def escape(line: str) -> str:
    """Escape the stars of shapes and the bars of absolute values, but not in literals or LaTeX."""
    if "\\" in line or line.lstrip().startswith((">>>", "..", "+")):
        return line
    parts = LITERAL.split(line)
    parts[::2] = [MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def prepare(lines: Iterable[str]) -> Iterator[str]:
    """Escape prose, and turn blocks that are indented after a blank line into literal ones."""
    equation, before, paragraph = False, "", ""
    for line in lines:
        indented = line.startswith("    ")
        if indented and not before.strip() and not paragraph.startswith(".."):
            if not equation:
                yield from ("::", "")
            equation = True
        elif line.strip() and not indented:
            equation, paragraph = False, line
        yield line if equation else escape(line)
        before = line


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Prepare a docstring in place."""
    lines[:] = prepare(lines)


def is_noise(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out fields of named tuples and what scikit-learn adds; None means no opinion."""
    field = type(obj).__name__ == "_tuplegetter"
    return True if field or ROUTING.fullmatch(name) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Run before napoleon turns sections into fields."""
    app.connect("autodoc-process-docstring", process, priority=100)
    app.connect("autodoc-skip-member", is_noise)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
