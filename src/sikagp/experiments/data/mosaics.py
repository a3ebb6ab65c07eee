"""Image sets kept as one large lossless picture: 100 x 100 tiles of 32 x 32 pixels."""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from sikagp._typing import Shaped, UInt8
from sikagp.experiments.data.errors import DataError
from sikagp.experiments.data.location import find
from sikagp.experiments.data.sources import Source

DERIVED_SVHN = "svhn_derived/svhn_test_first10k.webp"
_SVHN_LABELS = "svhn_derived/svhn_test_first10k_labels.npz"
_CIFAR10_LABELS = "cifar10/labels.npz"
_SIDE, _TILE = 100, 32
_ROWS = _SIDE * _SIDE


def read_tiles(path: Path) -> UInt8[np.ndarray, "10000 3 32 32"]:
    """Tiles of a mosaic, row by row, as (10000, 3, 32, 32) bytes."""
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if pixels.shape != (_SIDE * _TILE, _SIDE * _TILE, 3):
        raise DataError(f"{path}: expected {_SIDE * _TILE} pixels squared, got {pixels.shape[:2]}")
    tiles = pixels.reshape(_SIDE, _TILE, _SIDE, _TILE, 3)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(_ROWS, 3, _TILE, _TILE)


def mosaic_records(batch: str, source: Source) -> UInt8[np.ndarray, "10000 3073"] | None:
    """Records of shape (10000, 3073) of a CIFAR-10 batch, from its mosaic if a folder has it.

    The result is checked against the hash of the official file.
    """
    mosaic, labels = find(f"cifar10/{batch}.webp"), find(_CIFAR10_LABELS)
    if mosaic is None or labels is None:
        return None
    with np.load(labels, allow_pickle=False) as content:
        train = content["y_train"].reshape(-1, _ROWS)
        y = content["y_test"] if batch == "test_batch" else train[int(batch[-1]) - 1]
    pixels = read_tiles(mosaic).reshape(_ROWS, -1)
    records = np.concatenate([y[:, None].astype(np.uint8), pixels], axis=1)
    if f"sha256:{hashlib.sha256(records.tobytes()).hexdigest()}" != source.hash:
        raise DataError(f"{mosaic} and {labels} do not give the official {source.path}; delete one")
    return records


def read_derived_svhn() -> tuple[UInt8[np.ndarray, "10000 3 32 32"], Shaped[np.ndarray, " 10000"]]:
    """Pixels and labels of house-number digits that were cut out of the full test images."""
    mosaic, labels = find(DERIVED_SVHN), find(_SVHN_LABELS)
    if mosaic is None or labels is None:
        raise DataError(f"{DERIVED_SVHN} needs {_SVHN_LABELS} beside it")
    with np.load(labels, allow_pickle=False) as content:
        return read_tiles(mosaic), content["y"]
