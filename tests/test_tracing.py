"""torch.compile and torch.export of a layer give what the layer gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tracing_checks.py")


@pytest.mark.parametrize("subject", ["compile", "export"])
def test_tracing(subject):
    environment = {**os.environ, "SIKAGP_BACKEND": "reference"}  # needs no compilation of its own
    done = subprocess.run(
        [sys.executable, SCRIPT, subject], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
