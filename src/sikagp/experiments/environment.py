"""Where numbers come from: machine, versions, and the state of the source."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("sikagp", "torch", "numba", "gpytorch", "lightning", "scikit-learn", "numpy")


def describe_machine(device: str) -> dict[str, Any]:
    """Processor, cores, memory and, where one is used, the accelerator."""
    machine: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": sys.version.split()[0],
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        machine["memory_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.startswith("cuda"):
        machine["accelerator"] = torch.cuda.get_device_name(device)
    return machine


def describe_versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str | None]:
    """Installed versions, None where a library is absent."""
    return {library: _version(library) for library in libraries}


def describe_git(folder: Path = Path(__file__).parent) -> dict[str, Any]:
    """Commit of the repository that a folder belongs to, and whether files differ from it."""
    commit = _git(folder, "rev-parse", "HEAD")
    # A package installed into an ignored folder of some repository is not that repository's.
    if commit is None or not _git(folder, "ls-files", "."):
        return {"commit": None, "modified": None}
    return {"commit": commit, "modified": bool(_git(folder, "status", "--porcelain"))}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
