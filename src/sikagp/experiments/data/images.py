"""Image data: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN, as bytes and labels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sikagp._typing import Int, UInt8
from sikagp.experiments.data.formats import read_idx, read_records, records_to_images
from sikagp.experiments.data.location import find
from sikagp.experiments.data.mosaics import DERIVED_SVHN, mosaic_records, read_derived_svhn
from sikagp.experiments.data.retrieval import obtain, obtain_member
from sikagp.experiments.data.sources import CIFAR10, CIFAR100, FASHION_MNIST, MNIST, SVHN, Source
from sikagp.validation import check_choice

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Images:
    """One split of an image set.

    Attributes:
        pixels: values from 0 to 255.
        labels: class numbers.
        num_classes: how many classes there are.
        origin: which release the pixels come from.
    """

    pixels: UInt8[Tensor, "rows channels height width"]
    labels: Int[Tensor, " rows"]
    num_classes: int
    origin: str

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int | None) -> "Images":
        """Return the first images, or all of them."""
        return replace(self, pixels=self.pixels[:count], labels=self.labels[:count])

    def cut(self, count: int) -> tuple["Images", "Images"]:
        """Return the first images, and the others; there must be some of these."""
        if not 0 <= count < len(self):
            raise ValueError(f"cannot set {count} of {len(self)} images aside and keep some")
        return self.first(count), self.pick(torch.arange(count, len(self)))

    def pick(self, rows: Int[Tensor, " rows"]) -> "Images":
        """Return the images with these numbers."""
        return replace(self, pixels=self.pixels[rows], labels=self.labels[rows])

    def with_pixels(self, pixels: UInt8[Tensor, "rows channels height width"]) -> "Images":
        """Return other pixels with the same labels."""
        return replace(self, pixels=pixels)


def mnist(split: str) -> Images:
    """Handwritten digits, 28 x 28: 60000 for training, 10000 for testing."""
    return _idx_images(MNIST, split)


def fashion_mnist(split: str) -> Images:
    """Articles of clothing in the form of MNIST."""
    return _idx_images(FASHION_MNIST, split)


def cifar10(split: str) -> Images:
    """Ten kinds of things, 32 x 32 in colour: 50000 for training, 10000 for testing.

    Read from the binary release or, where a data folder has those instead, from lossless mosaics
    of it, whose content is checked against the release as well.
    """
    prefix = "data_batch" if check_choice("split", split, SPLITS) == "train" else "test_batch"
    names = [name for name in CIFAR10.members if Path(name).name.startswith(prefix)]
    records = [_cifar10_batch(name) for name in names]
    return _images(*records_to_images(np.concatenate(records), label_bytes=1), 10, "binary release")


def cifar100(split: str) -> Images:
    """One hundred kinds of things, 32 x 32 in colour; fine labels of the binary release."""
    name = f"cifar-100-binary/{check_choice('split', split, SPLITS)}.bin"
    records = read_records(obtain_member(CIFAR100, name), label_bytes=2)
    return _images(*records_to_images(records, label_bytes=2), 100, "binary release")


def svhn(split: str) -> Images:
    """House numbers, cropped digits 32 x 32 in colour.

    Where no data folder has the official test file, but one has 10000 digits that were cut out of
    the full images, these are taken; ``origin`` says so.
    """
    source = SVHN[check_choice("split", split, SPLITS)]
    if split == "test" and find(source.path) is None and find(DERIVED_SVHN):
        return _images(*read_derived_svhn(), 10, "first 10000 test digits, cut out and resized")
    return _images(*_read_mat(obtain(source)), 10, "cropped digits, format 2")


def _images(pixels: np.ndarray, labels: np.ndarray, num_classes: int, origin: str) -> Images:
    return Images(
        torch.from_numpy(np.ascontiguousarray(pixels)),
        torch.from_numpy(labels.astype(np.int64)),
        num_classes,
        origin,
    )


def _idx_images(sources: Mapping[str, tuple[Source, Source]], split: str) -> Images:
    pixels, labels = sources[check_choice("split", split, SPLITS)]
    values = read_idx(obtain(pixels), dimensions=3)[:, None]
    return _images(values, read_idx(obtain(labels), dimensions=1), 10, "idx files")


def _cifar10_batch(name: str) -> np.ndarray:
    """Records of one batch, from its binary file or from its mosaic."""
    source = CIFAR10.members[name]
    if find(source.path) is None:
        records = mosaic_records(Path(name).stem, source)
        if records is not None:
            return records
    return read_records(obtain_member(CIFAR10, name), label_bytes=1)


def _read_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (rows, 3, 32, 32) and labels, where the file writes 10 for the digit 0."""
    from scipy.io import loadmat

    content = loadmat(path, variable_names=("X", "y"))
    return content["X"].transpose(3, 2, 0, 1), content["y"].ravel() % 10
