"""The two binary formats of image sets: idx files, and CIFAR's records."""

import gzip
from pathlib import Path

import numpy as np

from sikagp._typing import UInt8
from sikagp.experiments.data.errors import DataError

_UNSIGNED_BYTE = 8
_PIXELS = 3 * 32 * 32


def read_idx(path: Path, *, dimensions: int) -> UInt8[np.ndarray, "*sizes"]:
    """Array of a gzipped idx file: 0, 0, type, number of dimensions, its shape, then the bytes."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be decompressed: {error}") from error
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]):
        raise DataError(f"{path}: expected an idx file of {dimensions} dimensions of bytes")
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    if len(content) - start != shape.prod():
        raise DataError(
            f"{path}: expected {shape.prod()} bytes for shape {tuple(shape)}, "
            f"got {len(content) - start}"
        )
    return np.frombuffer(content[start:], np.uint8).reshape(shape).copy()


def read_records(path: Path, *, label_bytes: int) -> UInt8[np.ndarray, "rows length"]:
    """Records of a CIFAR file, of shape (rows, length): label bytes, then 3072 of pixels."""
    content = np.fromfile(path, np.uint8)
    length = label_bytes + _PIXELS
    if len(content) == 0 or len(content) % length:
        raise DataError(
            f"{path}: expected records of {length} bytes, got {len(content)} bytes in total"
        )
    return content.reshape(-1, length)


def records_to_images(
    records: UInt8[np.ndarray, "rows length"], *, label_bytes: int
) -> tuple[UInt8[np.ndarray, "rows 3 32 32"], UInt8[np.ndarray, " rows"]]:
    """Pixels of shape (rows, 3, 32, 32) and the last, finest label of every record."""
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label_bytes - 1]
