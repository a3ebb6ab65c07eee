"""From images to what a method learns from: pictures for a live backbone, or cached features."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sikagp._typing import Float, Int
from sikagp.experiments.backbones import build_backbone
from sikagp.experiments.data import Images
from sikagp.experiments.images.augmentation import ImageRows, Normalisation, batch_generator
from sikagp.experiments.images.features import CHANGES, FeatureCache
from sikagp.training.data import TensorRows
from sikagp.validation import check_choice

_PREPARED_BY = 5000


class LiveInputs:
    """Pictures, for a backbone that is trained with the head.

    Args:
        backbone: its name.
        normalise: from bytes to what it expects.
        augmented: whether training pictures are shifted and mirrored.
        examples: training images, for backbones that look at some before training.
    """

    def __init__(
        self, backbone: str, normalise: Normalisation, *, augmented: bool, examples: Images
    ) -> None:
        self.normalise, self.augmented = normalise, augmented
        self.num_features = int(build_backbone(backbone).num_features)  # type: ignore[arg-type]
        some = examples.pixels[:_PREPARED_BY]

        def make() -> nn.Module:
            module = build_backbone(backbone)
            if hasattr(module, "prepare"):
                module.prepare(normalise(some))  # type: ignore[operator]
            return module

        self.method_options: Mapping[str, Callable[[], nn.Module]] = {"backbone": make}

    def train(self, images: Images, rows: Int[Tensor, " rows"], *, seed: int) -> TensorRows:
        """Pictures and labels of some rows, augmented batch by batch."""
        pixels, labels = images.pixels[rows], images.labels[rows]
        return ImageRows(pixels, labels, self.normalise, augmented=self.augmented, seed=seed)

    def predict(self, images: Images) -> Float[Tensor, "rows channels height width"]:
        """Normalised pictures."""
        return self.normalise(images.pixels)


class FrozenInputs:
    """Cached features of a backbone that stays as it is.

    Args:
        backbone: the trained module.
        normalise: from bytes to what it expects.
        views: how many versions of each training picture there are, all but one changed.
        change: how, ``"augmented"`` or ``"distorted"``.
        folder: where features are kept, by default in the user's cache.
        device: where the backbone runs.
    """

    method_options: Mapping[str, Any] = {}

    def __init__(
        self,
        backbone: nn.Module,
        normalise: Normalisation,
        *,
        views: int,
        change: str = "augmented",
        folder: Path | None = None,
        device: str = "cpu",
    ) -> None:
        self.cache = FeatureCache(backbone, normalise, folder=folder, device=device)
        self.num_features = int(backbone.num_features)  # type: ignore[arg-type]
        self.views, self.change = views, check_choice("change", change, CHANGES)

    def train(self, images: Images, rows: Int[Tensor, " rows"], *, seed: int) -> TensorRows:
        """Features and labels of some rows; each batch picks one view of every row."""
        features = [
            self.cache(images.pixels, view=view, change=self.change)[rows]
            for view in range(self.views)
        ]
        return ViewRows(torch.stack(features, dim=1), images.labels[rows], seed=seed)

    def predict(self, images: Images) -> Float[Tensor, "rows features"]:
        """Features of the pictures as they are."""
        return self.cache(images.pixels)


class ViewRows(TensorRows):
    """Rows that exist in several views, of which every batch picks one at random."""

    def __init__(
        self,
        views: Float[Tensor, "rows views features"],
        labels: Int[Tensor, " rows"],
        *,
        seed: int,
    ) -> None:
        super().__init__(views, labels)
        self.seed = seed

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        features, label = self.__getitems__([index])
        return features[0], label[0]

    def __getitems__(self, index: list[int]) -> tuple[Tensor, ...]:
        views, labels = super().__getitems__(index)
        generator = batch_generator(self.seed, index)
        pick = torch.randint(views.shape[1], (len(views),), generator=generator)
        return views[torch.arange(len(views)), pick], labels
