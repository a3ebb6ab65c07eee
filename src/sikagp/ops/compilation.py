"""Running compiled loops: compile on first use, then share between threads."""

import logging
import threading
from typing import Any

from sikagp.ops.loops.tools import Loop
from sikagp.ops.threads import share

_log = logging.getLogger("sikagp")
_SECONDS_BEFORE_NOTICE = 2.0
_compiled: set[tuple[Loop, int, Any]] = set()


def run_compiled(loop: Loop, count: int, operations: int, state: tuple, *arguments: Any) -> None:
    """Share a loop between threads, after compiling it if need be."""
    last = arguments[-1]
    key = loop, len(state), (last[0] if isinstance(last, tuple) else last).dtype
    if key not in _compiled:
        _compile(loop, state, *arguments)
        _compiled.add(key)
    share(loop, count, operations, state, *arguments)


def _compile(loop: Loop, *arguments: Any) -> None:
    """Compile a loop by running it over nothing, with a notice if that takes long."""
    message = "compiling %s for this machine (once; later processes load it from disk) ..."
    name = getattr(loop, "__name__", str(loop))
    timer = threading.Timer(_SECONDS_BEFORE_NOTICE, _log.warning, (message, name))
    timer.daemon = True
    timer.start()
    try:
        loop(0, 0, *arguments)
    finally:
        timer.cancel()
