"""Files that are written whole: a kill at any moment leaves the file absent, as before, or new."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a scratch file beside the target, which takes its place if the block ends well.

    It has the target's ending, and stays in the target's folder: from another device the last step
    would be a copy, which can be cut short.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield scratch
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write text or bytes as a whole."""
    with replacing(path) as scratch:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
