"""Sharing a compiled loop between threads.

Loops release the interpreter's lock, so ordinary threads run them in parallel: as many as
``torch.get_num_threads()`` says, one of them the caller's own. The pool holds no locks or state of
an OpenMP runtime, belongs to one process, and is made anew after a fork.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

# Handing work to a thread costs tens of microseconds; below this many operations it does not pay.
_WORTH_A_THREAD = 200_000

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


def share(loop: Callable[..., Any], count: int, operations: int, *arrays: Any) -> None:
    """Run ``loop(start, stop, *arrays)`` over ``range(count)``, split evenly if it is worth it."""
    threads = min(torch.get_num_threads(), count, 1 + operations // _WORTH_A_THREAD)
    if threads <= 1:
        loop(0, count, *arrays)
        return
    bounds = [count * i // threads for i in range(threads + 1)]
    pool = _get_pool(threads - 1)
    others = [pool.submit(loop, bounds[i], bounds[i + 1], *arrays) for i in range(1, threads)]
    loop(0, bounds[1], *arrays)
    for other in others:
        other.result()
