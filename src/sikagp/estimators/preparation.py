"""From the user's rows to rows that a model can be trained on: merged, standardised, checked."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing import StandardScaler

from sikagp._typing import Float, Shaped

MAX_FEATURES = 20_000
# The square of a larger number may overflow.
LARGEST = 1e150


class Rows(NamedTuple):
    """Distinct rows and how much each of them counts; ``y`` holds numbers or class indices."""

    x: Float[np.ndarray, "rows features"]
    y: Shaped[np.ndarray, "rows *targets"]
    weight: Float[np.ndarray, " rows"]


class Split(NamedTuple):
    """All rows, those to learn from, and those to calibrate with and to choose by."""

    rows: Rows
    learned: Rows
    held_out: Rows


def hold_out(rows: Rows, count: int) -> Split:
    """Set ``count`` rows aside: a fixed choice, for which their former order does not matter.

    If none are set aside, all rows are used for everything.
    """
    if not count:
        return Split(rows, rows, rows)
    order = np.random.RandomState(0).permutation(len(rows.x))
    parts = np.sort(order[count:]), np.sort(order[:count])
    return Split(rows, *(Rows(*(values[part] for values in rows)) for part in parts))


def merge_rows(
    x: Float[np.ndarray, "rows features"],
    y: Shaped[np.ndarray, "rows *targets"],
    weight: Shaped[np.ndarray, " rows"] | None,
) -> Rows:
    """Merge equal rows into one with the sum of their weights, and put them in a fixed order.

    Repeating a row is then the same as doubling its weight, a weight of zero the same as leaving
    it out, and the order of rows does not matter, all to the last bit.
    """
    weight = np.ones(len(x)) if weight is None else weight.astype(float)
    counted = weight > 0
    if not counted.any():
        raise ValueError("all sample weights are zero: there is nothing to fit")
    x, y, weight = x[counted], y[counted], weight[counted]
    # Adding zero turns -0.0 into 0.0, which must not differ as bytes.
    joined = np.ascontiguousarray(np.column_stack([x, y]), dtype=np.float64) + 0.0
    keys = joined.view(np.dtype((np.void, joined.dtype.itemsize * joined.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return Rows(x[first], y[first], np.bincount(inverse.ravel(), weight))


@dataclasses.dataclass(frozen=True)
class Standardiser:
    """Affine map to zero mean and unit variance, column by column; constants map to zero."""

    mean: Float[np.ndarray, " columns"]
    scale: Float[np.ndarray, " columns"]

    @classmethod
    def fit(
        cls, values: Float[np.ndarray, "rows columns"], weight: Float[np.ndarray, " rows"]
    ) -> "Standardiser":
        """Take weighted mean and deviation of every column."""
        size = np.abs(values).max(0)
        if size.max() > LARGEST:
            raise ValueError(
                f"numbers must not exceed {LARGEST:g} in size, column {size.argmax()} holds "
                f"{size.max():g}; rescale it"
            )
        scaler = StandardScaler().fit(values, sample_weight=weight)
        return cls(scaler.mean_, scaler.scale_)

    def __call__(
        self, values: Float[np.ndarray, "rows columns"]
    ) -> Float[np.ndarray, "rows columns"]:
        """Standardise every column."""
        return (values - self.mean) / self.scale

    def get_config(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Standardiser":
        """Build it from what :meth:`get_config` returned."""
        return cls(np.array(config["mean"]), np.array(config["scale"]))


def check_features(count: int, *, pairs: bool = False) -> None:
    """Refuse so many features that weights and tables would not fit in memory."""
    grids = count**2 if pairs else count
    if grids > MAX_FEATURES:
        terms = f"{count} features with {grids} terms" if pairs else f"{count} features"
        raise ValueError(
            f"got {terms}, at most {MAX_FEATURES} are supported: every one has a grid of its own; "
            "select or project features first, for example with PCA in a pipeline"
        )
