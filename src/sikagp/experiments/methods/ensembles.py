"""Deep ensembles: a method several times, from different seeds and perhaps with other options."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.experiments.methods.base import FitReport, Method, Prediction, tensors
from sikagp.mixtures import GaussianMixture, concatenate
from sikagp.training.data import Rows

_SEED_STEP = 1000


class OnColumns:
    """A method that sees some columns of a table only.

    Args:
        method: untrained, for as many features as there are columns.
        columns: first column, and the one after the last.
    """

    def __init__(self, method: Method, columns: Sequence[int]) -> None:
        self.method, self.columns = method, slice(*columns)

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Train the method on these columns."""
        held_out = None if validation is None else self._part(validation)
        return self.method.fit(
            self._part(train), held_out, seed=seed, folder=folder, progress=progress
        )

    def predict(self, x: Float[Tensor, "rows features"]) -> Prediction:
        """Predict by these columns."""
        return self.method.predict(x[:, self.columns])

    def _part(self, rows: Rows) -> Rows:
        x, y = tensors(rows)
        return x[:, self.columns], y


class Ensemble:
    """An equally weighted mixture of members.

    Args:
        members: untrained methods.
    """

    def __init__(self, members: Sequence[Method]) -> None:
        self.members = list(members)

    def fit(
        self,
        train: Rows,
        validation: Rows | None,
        *,
        seed: int,
        folder: Path | None = None,
        progress: bool = False,
    ) -> FitReport:
        """Train one member after the other; times add up, the history is the first one's."""
        reports = [
            member.fit(
                train,
                validation,
                seed=seed + _SEED_STEP * i,
                folder=None if folder is None else Path(folder) / f"member{i}",
                progress=progress,
            )
            for i, member in enumerate(self.members)
        ]
        first, seconds = reports[0], sum(report.seconds for report in reports)
        return FitReport(seconds, first.epochs, first.history)

    def predict(self, x: Float[Tensor, "rows *features"]) -> Prediction:
        """All members' components, or all members' draws."""
        parts = [member.predict(x) for member in self.members]
        draws = [part for part in parts if isinstance(part, Tensor)]
        if draws:
            return torch.cat(draws)
        return concatenate([part for part in parts if isinstance(part, GaussianMixture)], 0)
