"""Tables, as plain text for the terminal and as Markdown for the documentation."""

import math
from collections.abc import Sequence
from typing import NamedTuple

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


class Table(NamedTuple):
    """A heading, the names of the columns, and rows of strings."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def to_text(self) -> str:
        """Align columns with spaces, numbers to the right."""
        lines = [list(self.header), *map(list, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = "  ".join("-" * width for width in widths)
        body = [_align(line, widths) for line in lines]
        note = [self.note] if self.note else []
        return "\n".join([self.title, body[0], rule, *body[1:], *note])

    def to_markdown(self) -> str:
        """Return a table in GitHub's format, under its title in bold."""
        numeric = [_is_numeric([row[i] for row in self.rows]) for i in range(len(self.header))]
        rule = ["---:" if is_number else "---" for is_number in numeric]
        lines = [self.header, rule, *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        note = f"\n\n{self.note}" if self.note else ""
        return f"**{self.title}**\n\n{body}{note}"


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(line, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
    return "  ".join(cells).rstrip()


def _is_numeric(column: Sequence[str]) -> bool:
    return all(text == "-" or text[:1].isdigit() for text in column)


def format_seconds(seconds: float) -> str:
    """Three digits and a unit; a dash for NaN."""
    if math.isnan(seconds):
        return "-"
    scale, unit = next((pair for pair in UNITS if seconds >= pair[0]), UNITS[-1])
    return f"{_digits(seconds / scale)} {unit}"


def format_ratio(value: float) -> str:
    """Three digits and an x; a dash for NaN."""
    return "-" if math.isnan(value) else f"{_digits(value)}x"


def format_share(value: float) -> str:
    """A percentage with two digits; a dash for NaN."""
    return "-" if math.isnan(value) else f"{100 * value:.2g}%"


def format_bytes(number: float) -> str:
    """Three digits and a unit of 1000 bytes each."""
    if math.isnan(number):
        return "-"
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{_digits(number)} {unit}"
        number /= 1000
    return f"{_digits(number)} GB"


def _digits(value: float) -> str:
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}"
