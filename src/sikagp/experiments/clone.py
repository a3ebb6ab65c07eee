"""The benchmark suite, which is part of a clone of the repository and not of the package."""

import importlib
import sys
from pathlib import Path
from types import ModuleType


def find_clone() -> Path | None:
    """Folder of a clone: the current one, or the one that this package lies in."""
    candidates = (Path.cwd(), Path(__file__).resolve().parents[3])
    return next((root for root in candidates if (root / "benchmarks/harness.py").is_file()), None)


def load_suite(root: Path, module: str) -> ModuleType:
    """Import a module of a clone's benchmarks."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(f"benchmarks.{module}")
