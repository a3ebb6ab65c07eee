"""Running cells: finished ones are left alone, killed ones go on, several run at the same time.

A cell's folder is locked while it runs, and its record is written whole at the end; so whatever
dies leaves either no record or a complete one, and nobody else's folder changes.
"""

import json
import logging
import math
import os
import shlex
import shutil
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from enum import StrEnum
from multiprocessing import get_context
from typing import Any

import torch

from sikagp.experiments.cell import FAILURE, LOCK, RECORD, STARTED, Cell
from sikagp.experiments.environment import describe_git, describe_machine, describe_versions
from sikagp.experiments.files import locked, write_whole
from sikagp.experiments.tasks import load_task
from sikagp.precision import flush_denormals

FORMAT = 1
logger = logging.getLogger(__name__)


class Status(StrEnum):
    """How a cell ended."""

    RAN = "ran"
    PRESENT = "already there"
    BUSY = "running elsewhere"
    FAILED = "failed"


def run_cell(cell: Cell) -> Status:
    """Run one cell unless its record is there or another process has it."""
    with locked(cell.folder / LOCK, wait=False) as mine:
        if not mine:
            return Status.BUSY
        if cell.finished():
            return Status.PRESENT
        resumed = _prepare(cell)
        start, began = time.perf_counter(), datetime.now(UTC)
        try:
            results = load_task(cell.recipe.experiment)(cell)
        except Exception as error:
            write_whole(cell.folder / FAILURE, traceback.format_exc())
            logger.error("%s failed: %s (see %s)", cell.label, error, cell.folder / FAILURE)
            return Status.FAILED
        seconds = time.perf_counter() - start
        record = {
            "format": FORMAT,
            **cell.description(),
            "results": _json_values(results),
            "started": began.isoformat(timespec="seconds"),
            "seconds": seconds,
            "resumed": resumed,
            "versions": describe_versions(),
            "machine": describe_machine(cell.device),
            "git": describe_git(),
            "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        }
        write_whole(cell.folder / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n")
        (cell.folder / FAILURE).unlink(missing_ok=True)
        return Status.RAN


def run_cells(cells: Sequence[Cell], *, jobs: int = 1) -> dict[str, Status]:
    """Run cells, several at a time if asked; returns how each ended, by label.

    Those that build on another recipe wait until all others have ended.
    """
    ended: dict[str, Status] = {}
    for waits in (False, True):
        wave = [cell for cell in cells if bool(cell.recipe.builds_on) is waits]
        for cell, status in _statuses(wave, jobs):
            ended[cell.label] = status
            logger.info("[%d/%d] %s: %s", len(ended), len(cells), cell.label, status)
    return ended


def _statuses(cells: Sequence[Cell], jobs: int) -> Iterable[tuple[Cell, Status]]:
    if jobs == 1:
        for cell in cells:
            yield cell, run_cell(cell)
        return
    threads = max(1, torch.get_num_threads() // jobs)
    # Fresh processes: a forked one would inherit locks of torch's threads.
    with ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=_start_process,
        initargs=(threads,),
    ) as pool:
        waiting = {pool.submit(run_cell, cell): cell for cell in cells}
        for done in as_completed(waiting):
            yield waiting[done], _status(waiting[done], done)


def _start_process(num_threads: int) -> None:
    flush_denormals()
    torch.set_num_threads(num_threads)


def _status(cell: Cell, done: Future[Status]) -> Status:
    """How a cell ended in another process, which may have been killed."""
    try:
        return done.result()
    except BrokenProcessPool:
        logger.error(
            "%s is not finished: a process was killed, perhaps for want of memory; the same "
            "command goes on from here",
            cell.label,
        )
        return Status.FAILED


def _prepare(cell: Cell) -> bool:
    """Make the folder ready; returns whether an earlier run of the same recipe goes on."""
    if cell.started():
        return True
    for path in cell.folder.iterdir():
        if path.name != LOCK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_whole(cell.folder / STARTED, json.dumps(cell.description(), indent=1) + "\n")
    return False


def _json_values(value: Any) -> Any:
    """Mappings, sequences, numbers and texts as JSON has them; what is no number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _json_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json_values(part) for part in value]
    if isinstance(value, torch.Tensor):
        return _json_values(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
