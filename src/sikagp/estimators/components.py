"""What each feature of an additive model does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sikagp._typing import Float
from sikagp.estimators.base import SIKAEstimator
from sikagp.estimators.preparation import Rows, Standardiser
from sikagp.layers import SIKALayer
from sikagp.models import DeepGP
from sikagp.models.architecture import part_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID_POINTS = 200


class Component(NamedTuple):
    """Effect of one feature: values of the feature, mean and variance there, shape (points,)."""

    grid: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class AdditiveEstimator(SIKAEstimator):
    """Effects of an additive model, in units of the target; logits or probits of a classifier.

    Effects are centred: each averages to zero over the training rows.
    """

    _output: Standardiser
    _ranges: np.ndarray
    _offsets: Any
    _importances: np.ndarray | None

    def component(self, d: int | str, grid: Any = None, *, output: int = 0) -> Component:
        """Effect of feature ``d`` (number or name) with its variance.

        Args:
            d: the feature.
            grid: values of the feature in the user's units, shape (points,); by default evenly
                spaced over the training data.
            output: which target or class.
        """
        models, d = self._additive_models(), self._feature_index(d)
        if not 0 <= output < models[0].out_features:
            raise ValueError(f"output must be below {models[0].out_features}, got {output}")
        if grid is None:
            grid = np.linspace(self._ranges[0, d], self._ranges[1, d], GRID_POINTS)
        grid = np.asarray(grid, dtype=np.float64).reshape(-1)
        if not len(grid) or not np.isfinite(grid).all():
            raise ValueError("grid must hold finite numbers, at least one")
        unit = (grid - self._input.mean[d]) / self._input.scale[d]
        mean, variance = self._effects(models, torch.from_numpy(unit), d)
        scale = self._output.scale[output] if hasattr(self, "_output") else 1.0
        center, spread = mean[:, output].numpy(), variance[:, output].numpy()
        return Component(grid, (center - self._offsets[d, output]) * scale, spread * scale**2)

    def plot_components(
        self,
        features: Sequence[int | str] | None = None,
        *,
        output: int = 0,
        level: float = 0.95,
        axes: Sequence["Axes"] | None = None,
    ) -> list["Axes"]:
        """Draw the effects of all or some features, one panel each (needs matplotlib)."""
        from sikagp import plots

        chosen = range(self.n_features_in_) if features is None else features
        parts = [self.component(d, output=output) for d in chosen]
        columns = (np.stack(column, axis=1) for column in zip(*parts, strict=True))
        names = getattr(self, "feature_names_in_", [f"x{d}" for d in range(self.n_features_in_)])
        names = [str(names[self._feature_index(d)]) for d in chosen]
        return plots.plot_components(*columns, level=level, names=names, axes=axes)

    @property
    def feature_importances_(self) -> Float[np.ndarray, " features"]:
        """Variance of each feature's learned effect over the training rows, as shares of one."""
        check_is_fitted(self)
        if self._importances is None:
            raise AttributeError(
                "importances of single features exist in an additive model only; fit with "
                "hidden=(), or use sklearn.inspection.permutation_importance"
            )
        return self._importances

    def _finish(self, rows: Rows) -> None:
        """Note range, average and variance of every feature's effect over the training rows."""
        self._ranges = np.stack([rows.x.min(0), rows.x.max(0)])
        self._offsets, self._importances = None, None
        if self.hidden_:
            return
        models, unit = self._additive_models(), torch.from_numpy(self._input(rows.x))
        share = rows.weight / rows.weight.sum()
        offsets, spread = [], []
        for d in range(unit.shape[1]):
            mean = self._effects(models, unit[:, d], d)[0].numpy()
            offsets.append(share @ mean)
            spread.append((share @ (mean - offsets[-1]) ** 2).sum())
        self._offsets = np.stack(offsets)
        total = sum(spread)
        self._importances = np.array(spread) / total if total > 0 else np.zeros(len(spread))

    def _additive_models(self) -> list[DeepGP]:
        check_is_fitted(self)
        if self.hidden_:
            raise ValueError(
                "effects of single features exist in an additive model only; fit with hidden=()"
            )
        return [member.model for member in self._members]  # type: ignore[misc]

    def _feature_index(self, d: int | str) -> int:
        if isinstance(d, str):
            names = list(getattr(self, "feature_names_in_", []))
            if d not in names:
                raise ValueError(f"no feature is called {d!r}; names are {names}")
            return names.index(d)
        if not -self.n_features_in_ <= d < self.n_features_in_:
            raise ValueError(f"d must be below {self.n_features_in_}, got {d}")
        return int(d) % self.n_features_in_

    @staticmethod
    def _effects(models: list[DeepGP], unit: Tensor, d: int) -> tuple[Tensor, Tensor]:
        """Mean and variance over the members, shape (points, outputs) each."""
        moments = [_effect(model, unit, d) for model in models]
        means = torch.stack([mean for mean, _ in moments])
        within = torch.stack([variance for _, variance in moments]).mean(0)
        return means.mean(0), within + means.var(0, correction=0)


@torch.no_grad()
def _effect(model: DeepGP, unit: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """``sqrt(v_d) phi(x) . w_d`` under q, plus a trend, at points of shape (points,)."""
    layer: SIKALayer = model.layers[0]  # type: ignore[assignment]
    marginals = part_of(layer, [d], bias=False)(unit.unsqueeze(-1))
    trend = 0.0 if model.trend is None else torch.outer(unit, model.trend.weight[:, d])
    return marginals.mean + trend, marginals.variance
