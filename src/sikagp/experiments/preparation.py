"""Tables made ready for learning: inputs and targets scaled by the rows that are learned from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, StandardScaler
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.experiments.data import Table
from sikagp.validation import check_choice

Rows = tuple[Float[Tensor, "_ features"], Float[Tensor, " _"]]
_NORMAL_REACH = 3.0
_MAX_QUANTILES = 1000


def _signed_log(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.log1p(np.abs(x))


def _clip(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -_NORMAL_REACH, _NORMAL_REACH)


# Views of the inputs: standardised, by ranks as if normal, and with long tails pulled in.
VIEWS: dict[str, Callable[[int], Any]] = {
    "standard": lambda rows: StandardScaler(),
    "normal": lambda rows: make_pipeline(
        QuantileTransformer(
            n_quantiles=min(_MAX_QUANTILES, rows), output_distribution="normal", subsample=None
        ),
        FunctionTransformer(_clip),
    ),
    "signed-log": lambda rows: make_pipeline(
        StandardScaler(), FunctionTransformer(_signed_log), StandardScaler()
    ),
}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The section ``data`` of a recipe for a table.

    Attributes:
        name: of the table.
        inputs: views of the inputs, side by side: ``"standard"``, ``"normal"`` (ranks mapped to a
            normal distribution), ``"signed-log"``.
        validation: share of the training rows that is held out; 0 trains on all of them.
        rows: largest number of training rows, for quick looks.
        calibrate: whether the width of predictions is fitted on the held-out rows.
    """

    name: str
    inputs: Sequence[str] = ("standard",)
    validation: float = 0.1
    rows: int | None = None
    calibrate: bool = False

    def __post_init__(self) -> None:
        for view in self.inputs:
            check_choice("inputs", view, VIEWS)
        if not self.inputs or not 0 <= self.validation < 1:
            raise ValueError(
                "expected at least one view of the inputs and a validation share in [0, 1), "
                f"got {list(self.inputs)} and {self.validation}"
            )
        if self.calibrate and not self.validation:
            raise ValueError("calibrate needs held-out rows, but validation is 0")


@dataclass(frozen=True)
class Prepared:
    """Standardised rows of one split.

    Attributes:
        train: rows to learn from.
        validation: held-out rows, if any.
        test: rows to predict.
        scale: deviation of the training targets: raw units are this many standardised ones.
    """

    train: Rows
    validation: Rows | None
    test: Rows
    scale: float


def prepare(table: Table, options: TableOptions, *, seed: int) -> Prepared:
    """Split, scale and hold out; the split is the standard one with the number of the seed."""
    learned, tested = table.split(seed % table.num_splits)
    order = torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed))
    learned = learned[order][: options.rows]
    inputs = FeatureUnion([(view, VIEWS[view](len(learned))) for view in options.inputs])
    inputs.fit(table.x[learned].numpy())
    center, scale = float(table.y[learned].mean()), float(table.y[learned].std(correction=0))

    def rows(index: Int[Tensor, " chosen"]) -> Rows:
        x = torch.from_numpy(inputs.transform(table.x[index].numpy()))
        return x.float(), ((table.y[index] - center) / scale).float()

    held_out = math.ceil(options.validation * len(learned))
    return Prepared(
        rows(learned[held_out:]),
        rows(learned[:held_out]) if held_out else None,
        rows(tested),
        scale,
    )
