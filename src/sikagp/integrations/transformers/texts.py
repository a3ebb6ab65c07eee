"""Texts with their classes: read from a CSV file, and split."""

import csv
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sikagp._typing import Int

FEWEST = 3


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts with the numbers of their classes; -1 where a text belongs to none."""

    texts: Sequence[str]
    labels: Int[Tensor, " texts"]

    def known(self) -> "Texts":
        """Those that belong to a class."""
        return self.take((self.labels >= 0).nonzero().squeeze(-1))

    def take(self, index: Int[Tensor, " chosen"]) -> "Texts":
        """Some of the texts."""
        return Texts([self.texts[i] for i in index.tolist()], self.labels[index])

    def split(self, shares: Sequence[float], *, seed: int) -> list["Texts"]:
        """Random parts with about these shares of every class; what remains is the last part."""
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed))
        order = order[self.labels[order].argsort(stable=True)]
        place = torch.empty(len(order))
        for label in self.labels.unique():
            rows = order[self.labels[order] == label]
            place[rows] = (torch.arange(len(rows)) + 0.5) / len(rows)
        edges = torch.tensor(shares).cumsum(0)
        part = torch.bucketize(place, edges)
        return [self.take((part == i).nonzero().squeeze(-1)) for i in range(len(shares) + 1)]


def read_texts(
    path: Path, text_column: str, label_column: str, unknown_label: str | None = None
) -> tuple[Texts, list[str]]:
    """Texts of a CSV file with the numbers of their labels, and the labels' names."""
    try:
        rows = _read_rows(path, text_column, label_column)
    except UnicodeDecodeError as error:
        problem = f"byte {error.object[error.start]:#x} is not UTF-8"
        raise ValueError(f"{path} is not a table of text: {problem}") from None
    counts = Counter(label for _, label in rows)
    if unknown_label is not None and not counts[unknown_label]:
        raise ValueError(f"no text in {path} has the label {unknown_label!r}")
    names = sorted(set(counts) - {unknown_label})
    if "" in names:
        row = next(i for i, (_, label) in enumerate(rows, 1) if not label)
        raise ValueError(f"column {label_column!r}, row {row}: the label is missing")
    rare = [name for name in names if counts[name] < FEWEST]
    if len(names) < 2 or rare:
        raise ValueError(
            f"expected at least two labels with {FEWEST} texts each in {path}, "
            f"got {len(names)} labels" + (f", too few texts of {', '.join(rare)}" if rare else "")
        )
    number = {name: index for index, name in enumerate(names)}
    labels = torch.tensor([number.get(label, -1) for _, label in rows])
    return Texts([text for text, _ in rows], labels), names


def _read_rows(path: Path, text_column: str, label_column: str) -> list[tuple[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = {text_column, label_column} - set(reader.fieldnames or ())
        if missing:
            known = ", ".join(reader.fieldnames or ["none"])
            raise ValueError(
                f"no column {', '.join(sorted(missing))} in {path}; there are: {known}"
            )
        return [(row[text_column] or "", row[label_column] or "") for row in reader]
