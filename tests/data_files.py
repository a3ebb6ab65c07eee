"""Small files in the formats of the publishers, and the sources that describe them."""

import gzip
import hashlib
from pathlib import Path

import numpy as np

from sikagp.experiments.data import Source


def put(folder: Path, path: str, content: bytes) -> Source:
    """Write a file and return the source that describes it."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
    return Source(path, (), f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def idx(values: np.ndarray) -> bytes:
    """Bytes as MNIST's files have them."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return gzip.compress(header + values.astype(np.uint8).tobytes(), mtime=0)
