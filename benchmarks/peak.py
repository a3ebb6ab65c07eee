"""Peak memory of a call, measured in two independent ways.

``allocated_peak`` follows torch's allocations through the profiler; loops compiled by Numba work on
torch's memory. ``resident_peak`` asks the operating system, in a process of its own that has done
nothing else: ``python -m benchmarks.peak`` runs one training step there and prints its peak.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import Call, Settings
from benchmarks.results import ROOT
from benchmarks.workloads import make_layer, make_rows
from sikagp import SIKALayer

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


def training_step(layer: SIKALayer, num_rows: int, num_samples: int, settings: Settings) -> Call:
    """Forward pass, Gaussian log likelihood of samples, KL divergence, backward pass."""
    x = make_rows(num_rows, layer.in_features, settings).requires_grad_()
    y = torch.randn(num_rows, layer.out_features, device=settings.device)

    def step() -> None:
        samples = layer(x).rsample((num_samples,))
        (0.5 * (samples - y).square().mean(0).sum() + layer.kl_divergence()).backward()
        x.grad = None

    return step


def allocated_peak(run: Call, settings: Settings) -> int:
    """Bytes held at the worst moment of a call beyond those held before it."""
    if settings.device.startswith("cuda"):
        before = torch.cuda.memory_allocated(settings.device)
        torch.cuda.reset_peak_memory_stats(settings.device)
        run()
        return torch.cuda.max_memory_allocated(settings.device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    events = record.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == "[memory]"]
    total = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


def resident_peak(case: dict[str, int], settings: Settings) -> int | None:
    """Bytes that a training step adds to a process's resident memory; None where unknown."""
    if not CLEAR.exists() or settings.device != "cpu":
        return None
    command = [sys.executable, "-m", "benchmarks.peak", json.dumps(case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _kilobytes(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def _measure_resident(case: dict[str, int]) -> int:
    """Load and compile everything with a tiny layer, then run one step of the real one."""
    settings = Settings(threads=torch.get_num_threads())
    training_step(make_layer(2, 2, 2, settings, plan="table"), 4, 2, settings)()
    layer = make_layer(case["D"], case["O"], case["L"], settings)
    step = training_step(layer, case["B"], case["S"], settings)
    CLEAR.write_text(RESET_PEAK)
    before = _kilobytes("VmRSS")
    step()
    return 1024 * (_kilobytes("VmHWM") - before)


if __name__ == "__main__":
    print(_measure_resident(json.loads(sys.argv[1])))
