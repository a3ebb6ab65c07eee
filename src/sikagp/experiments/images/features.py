"""Features of a frozen backbone, computed once and kept on disk."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float, UInt8
from sikagp.experiments.data.location import cache_folder
from sikagp.experiments.images.augmentation import Normalisation, augment
from sikagp.experiments.images.distortions import distort
from sikagp.experiments.keeping import hash_tensors, keep

CHANGES = {"augmented": augment, "distorted": distort}
_BATCH = 64  # small enough for activations to stay in the processor's cache


class FeatureCache:
    """Features of images under one backbone and one normalisation.

    Args:
        backbone: in evaluation mode; from (rows, channels, height, width) to (rows, features).
        normalise: from bytes to what the backbone expects.
        folder: where files are kept; by default in the user's cache.
        device: where the backbone runs.
    """

    def __init__(
        self,
        backbone: nn.Module,
        normalise: Normalisation,
        *,
        folder: Path | None = None,
        device: str = "cpu",
    ) -> None:
        self.backbone, self.normalise = backbone.eval().to(device), normalise
        self.folder = cache_folder() / "features" if folder is None else folder
        self.device = device
        self._weights = hash_tensors(backbone.state_dict().values())

    def __call__(
        self,
        pixels: UInt8[Tensor, "rows channels height width"],
        *,
        view: int = 0,
        change: str = "augmented",
    ) -> Float[Tensor, "rows features"]:
        """Features of images as they are (view 0), or of their change with that number."""
        kept = keep(
            self.folder,
            self._describe(pixels, view, change),
            lambda: {"features": self._compute(pixels, view, change)},
        )
        return kept["features"]

    def _describe(self, pixels: Tensor, view: int, change: str) -> dict[str, Any]:
        """Everything that the features depend on."""
        return {
            "backbone": type(self.backbone).__name__,
            "weights": self._weights,
            "pixels": hash_tensors([pixels]),
            "mean": list(self.normalise.mean),
            "deviation": list(self.normalise.deviation),
            "view": f"{change} {view}" if view else 0,
        }

    @torch.no_grad()
    def _compute(self, pixels: Tensor, view: int, change: str) -> Float[Tensor, "rows features"]:
        if view:
            pixels = CHANGES[change](pixels, torch.Generator().manual_seed(view))
        batches = (self.normalise(batch).to(self.device) for batch in pixels.split(_BATCH))
        return torch.cat([self.backbone(batch).cpu() for batch in batches]).contiguous()
