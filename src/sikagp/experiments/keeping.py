"""Tensors that are computed once and kept on disk.

The name of a file is a hash of everything that its tensors depend on, so it never has to be
invalidated. It is written whole, and of several processes that want it one computes while the
others wait.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from sikagp.experiments.files import locked, write_whole


def keep(
    folder: Path, description: Any, compute: Callable[[], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Return tensors by name, from the folder if they are there.

    Args:
        folder: where files are kept.
        description: JSON values that say everything that the tensors depend on.
        compute: makes the tensors where the folder has none of that description.
    """
    name = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:32]
    path = folder / f"{name}.safetensors"
    with locked(path.with_suffix(".lock")):
        if not path.is_file():
            write_whole(path, save(dict(compute())))
    return load_file(path)


def hash_tensors(tensors: Iterable[Tensor]) -> str:
    """Hash of types, shapes and contents."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
