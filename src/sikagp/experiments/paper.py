"""What the paper shows, read from ``paper.yaml``."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PAPER = Path(__file__).parent / "paper.yaml"


@dataclass(frozen=True)
class Metric:
    """How a number is shown: ours times ``factor``, with so many digits."""

    title: str
    better: str = ""
    digits: int = 2
    factor: float = 1.0


@dataclass(frozen=True)
class Published:
    """A table or a figure of the paper.

    Attributes:
        name: ours, for the command line.
        in_paper: the paper's, such as ``Table 2``.
        title: what it shows.
        cost: what running it takes, by scale.
        protocol: how the paper got its numbers, and what to know about them.
        metrics: columns of the paper.
        extra: further columns of ours.
        rows: numbers by data, by row, by metric; empty for figures.
        runs_of: another table whose runs fill this one too.
    """

    name: str
    in_paper: str
    title: str
    cost: Mapping[str, str]
    protocol: str = ""
    metrics: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    rows: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    runs_of: str = ""

    @property
    def source(self) -> str:
        """The table that recipes name to fill this one."""
        return self.runs_of or self.name

    @property
    def is_figure(self) -> bool:
        """Whether it is a picture."""
        return not self.metrics


@dataclass(frozen=True)
class Paper:
    """All of it."""

    metrics: Mapping[str, Metric]
    results: Mapping[str, Published]
    setting: Mapping[str, str]


@functools.cache
def load_paper() -> Paper:
    """Read the paper's numbers."""
    content = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    results = {}
    for name, entry in {**content["tables"], **content["figures"]}.items():
        columns: dict[str, Any] = {key: tuple(entry.get(key, ())) for key in ("metrics", "extra")}
        results[name] = Published(name, **{**entry, **columns})
    metrics = {name: Metric(**entry) for name, entry in content["metrics"].items()}
    return Paper(metrics, results, content["setting"])
