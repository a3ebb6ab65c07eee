"""Normalisation, and augmentation of whole batches.

What happens to a row depends on the seed and on the rows it shares a batch with, never on a hidden
random state: a run that is resumed, or loads batches in other processes, sees the same pictures.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sikagp._typing import Float, Int, UInt8
from sikagp.training.data import TensorRows


@dataclass(frozen=True)
class Normalisation:
    """Mean and deviation of every channel, of values between 0 and 1."""

    mean: Sequence[float]
    deviation: Sequence[float]

    def __call__(
        self, pixels: UInt8[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows channels height width"]:
        """Bytes to standardised numbers."""
        mean = torch.tensor(self.mean).view(-1, 1, 1)
        deviation = torch.tensor(self.deviation).view(-1, 1, 1)
        return (pixels.float() / 255 - mean) / deviation


NORMALISATIONS = {
    "mnist": Normalisation((0.1307,), (0.3081,)),
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "imagenet": Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def random_crops(
    pixels: UInt8[Tensor, "rows channels height width"],
    offset: Int[Tensor, "rows 2"],
    *,
    padding: int,
) -> UInt8[Tensor, "rows channels height width"]:
    """Cut pictures of the same size out of pictures with a black border.

    Offsets lie between 0 and twice the padding; at the padding itself nothing moves.
    """
    rows, _, height, width = pixels.shape
    padded = F.pad(pixels, (padding,) * 4)
    y = offset[:, :1] + torch.arange(height)
    x = offset[:, 1:] + torch.arange(width)
    row = torch.arange(rows).view(-1, 1, 1)
    return padded[row, :, y.unsqueeze(2), x.unsqueeze(1)].permute(0, 3, 1, 2)


def augment(
    pixels: UInt8[Tensor, "rows channels height width"],
    generator: torch.Generator,
    *,
    padding: int = 4,
) -> UInt8[Tensor, "rows channels height width"]:
    """Shift every picture by up to ``padding`` pixels, and mirror every second one."""
    offset = torch.randint(2 * padding + 1, (len(pixels), 2), generator=generator)
    moved = random_crops(pixels, offset, padding=padding)
    mirrored = torch.rand(len(pixels), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, moved.flip(3), moved)


class ImageRows(TensorRows):
    """Rows of bytes and labels that come as normalised and, if asked, augmented batches."""

    def __init__(
        self,
        pixels: UInt8[Tensor, "rows channels height width"],
        labels: Int[Tensor, " rows"],
        normalise: Normalisation,
        *,
        augmented: bool,
        seed: int,
    ) -> None:
        super().__init__(pixels, labels)
        self.normalise, self.augmented, self.seed = normalise, augmented, seed

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        pixels, label = self.__getitems__([index])
        return pixels[0], label[0]

    def __getitems__(self, index: list[int]) -> tuple[Tensor, ...]:
        pixels, labels = super().__getitems__(index)
        if self.augmented:
            pixels = augment(pixels, batch_generator(self.seed, index))
        return self.normalise(pixels), labels


def batch_generator(seed: int, index: Sequence[int]) -> torch.Generator:
    """Generator that belongs to a seed and the rows of a batch, in their order."""
    digest = hashlib.blake2b(np.array([seed, *index], np.int64).tobytes(), digest_size=7)
    return torch.Generator().manual_seed(int.from_bytes(digest.digest(), "little"))
