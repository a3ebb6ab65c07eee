"""Deep ensembles: the same method several times, from different seeds."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sikagp._typing import Float
from sikagp.experiments.methods.base import FitReport, Method, Prediction
from sikagp.mixtures import GaussianMixture, concatenate
from sikagp.training.data import Rows
from sikagp.validation import check_count

_SEED_STEP = 1000


class Ensemble:
    """An equally weighted mixture of members.

    Args:
        make_member: makes an untrained member.
        members: how many of them.
    """

    def __init__(self, make_member: Callable[[], Method], members: int) -> None:
        self.members = [make_member() for _ in range(check_count("members", members))]

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
