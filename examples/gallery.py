"""What the short examples share: ``--quick`` for a brief run, ``--out`` for their figures."""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure

_parser = argparse.ArgumentParser()
_parser.add_argument("--quick", action="store_true", help="train briefly, to see that it runs")
_parser.add_argument("--out", type=Path, default=Path("build/examples"))
OPTIONS = _parser.parse_args()


def budget(full: int, quick: int) -> int:
    """Return how much to train: ``full``, or ``quick`` in a brief run."""
    return quick if OPTIONS.quick else full


def save(figure: Figure, name: str) -> None:
    """Write a figure and say where."""
    OPTIONS.out.mkdir(parents=True, exist_ok=True)
    path = OPTIONS.out / f"{name}.png"
    figure.savefig(path, dpi=110)
    print(f"Figure: {path}")
