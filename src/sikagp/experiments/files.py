"""Files that several processes share: locks that die with their owner, writes that are whole."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file while the block runs; yields whether it was obtained.

    The system drops the lock when its owner ends, however it ends, so there are no stale ones.

    Args:
        path: lock file; it is created, and stays.
        wait: whether to wait for another owner; otherwise the block runs at once, with False.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is either absent (or as before) or complete, whenever a kill comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with scratch.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
