"""Sharing a compiled loop between threads: as many as ``torch.get_num_threads()`` says.

Loops release the interpreter's lock. Where torch runs on GNU OpenMP, they run on torch's own
threads: those wait in a busy loop for a while after each of torch's operations, and a second pool
would have to fight them for the cores. Elsewhere, and in a process that was forked, ordinary
threads do the work.
"""

import ctypes
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

# Handing work to a thread costs some 70 microseconds; below this many operations, of a tenth of a
# nanosecond each, it does not pay.
_WORTH_A_THREAD = 2_000_000

_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_home = os.getpid()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def _forget_pool() -> None:
    global _pool, _pool_size
    _pool, _pool_size = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _get_pool(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < size:
        _pool, _pool_size = ThreadPoolExecutor(size, thread_name_prefix="sikagp"), size
    return _pool


@cache
def _gnu_openmp() -> ctypes.CDLL | None:
    """Return the OpenMP library that torch has loaded, if it is GNU's."""
    for path in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        try:
            library = ctypes.CDLL(str(path))
            library.GOMP_parallel.argtypes = [_Body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            library.GOMP_parallel.restype = None
        except (OSError, AttributeError):
            continue
        return library
    return None


def share(loop: Callable[..., Any], count: int, operations: int, *arguments: Any) -> None:
    """Run ``loop(start, stop, *arguments)`` over ``range(count)``, split if it is worth it."""
    threads = min(torch.get_num_threads(), count, 1 + operations // _WORTH_A_THREAD)
    if threads <= 1:
        loop(0, count, *arguments)
        return
    bounds = [count * i // threads for i in range(threads + 1)]
    parts = list(itertools.pairwise(bounds))
    openmp = _gnu_openmp() if os.getpid() == _home else None
    if openmp is not None:
        _on_torch_threads(openmp, loop, parts, arguments)
    else:
        _on_own_threads(loop, parts, arguments)


def _on_own_threads(loop: Callable[..., Any], parts: list, arguments: tuple[Any, ...]) -> None:
    pool = _get_pool(len(parts) - 1)
    others = [pool.submit(loop, *part, *arguments) for part in parts[1:]]
    loop(*parts[0], *arguments)
    for other in others:
        other.result()


def _on_torch_threads(
    openmp: ctypes.CDLL, loop: Callable[..., Any], parts: list, arguments: tuple[Any, ...]
) -> None:
    waiting, errors = list(parts), []

    def body(_: Any) -> None:
        # There may be fewer threads than parts, so each takes parts until none is left.
        while waiting:
            try:
                part = waiting.pop()
            except IndexError:
                return
            try:
                loop(*part, *arguments)
            except BaseException as error:
                errors.append(error)

    openmp.GOMP_parallel(_Body(body), None, len(parts), 0)
    if errors:
        raise errors[0]
