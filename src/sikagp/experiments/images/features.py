"""Features of a frozen backbone, computed once and kept on disk.

The name of a file is a hash of the weights, the pixels and everything that is done to them, so
that it never needs to be invalidated; it is written whole, and several processes may share it.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from sikagp._typing import Float, UInt8
from sikagp.experiments.data.location import cache_folder
from sikagp.experiments.files import locked, write_whole
from sikagp.experiments.images.augmentation import Normalisation, augment

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
        self._weights = _hash_tensors(backbone.state_dict().values())

    def __call__(
        self, pixels: UInt8[Tensor, "rows channels height width"], *, view: int = 0
    ) -> Float[Tensor, "rows features"]:
        """Features of images as they are (view 0), or of their augmentation with that number."""
        path = self.folder / f"{self.key(pixels, view)}.safetensors"
        with locked(path.with_suffix(".lock")):
            if not path.is_file():
                write_whole(path, save({"features": self._compute(pixels, view)}))
        return load_file(path)["features"]

    def key(self, pixels: UInt8[Tensor, "rows channels height width"], view: int) -> str:
        """Hash of everything that the features depend on."""
        description = {
            "backbone": type(self.backbone).__name__,
            "weights": self._weights,
            "pixels": _hash_tensors([pixels]),
            "mean": list(self.normalise.mean),
            "deviation": list(self.normalise.deviation),
            "view": view,
        }
        return hashlib.sha256(json.dumps(description).encode()).hexdigest()[:32]

    @torch.no_grad()
    def _compute(self, pixels: Tensor, view: int) -> Float[Tensor, "rows features"]:
        if view:
            pixels = augment(pixels, torch.Generator().manual_seed(view))
        batches = (self.normalise(batch).to(self.device) for batch in pixels.split(_BATCH))
        return torch.cat([self.backbone(batch).cpu() for batch in batches]).contiguous()


def _hash_tensors(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
