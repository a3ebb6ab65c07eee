"""Shape hints are checked while tests run: the hook must come before the package is imported."""

import os
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import settings


def load_loops() -> None:
    """Load the compiled loops past the hook: Numba takes plain functions only."""
    folder = Path(find_spec("sikagp").origin).parent / "ops" / "loops"
    names = "tools cells vectors softplus states interpolation values covariances moments"
    for name in f"{names} divergence weights prediction points trees".split():
        spec = spec_from_file_location(f"sikagp.ops.loops.{name}", folder / f"{name}.py")
        sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])


assert "sikagp" not in sys.modules, "sikagp was imported before its shape hints could be checked"
load_loops()
jaxtyping.install_import_hook("sikagp", "hints.check")

with warnings.catch_warnings():  # importing it warns of torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch  # noqa: F401

# Some virtual machines announce instructions for blocks of bfloat16 and kill whoever uses them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
torch.set_num_threads(1)
settings.register_profile(
    "sikagp", deadline=None, derandomize=True, max_examples=40, database=None, print_blob=False
)
settings.load_profile("sikagp")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
    # Estimators without a random state take theirs from here.
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def keep_denormals() -> Iterator[None]:
    """Undo what a test does to numbers below 1e-38."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Turn the shape hints off, so that the library's own checks meet the bad input."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
