"""Files that several processes share: locks that die with their owner, writes that are whole."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from sikagp.writing import write_whole

__all__ = ["locked", "write_whole"]


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
