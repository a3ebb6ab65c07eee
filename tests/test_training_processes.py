"""Runs that are killed and resumed, and runs that are shared between processes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import assert_close
from training_run import QUIET, rows, train_deep, train_shared

from sikagp import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.training import TrainingConfig, fit

SCRIPT = Path(__file__).with_name("training_run.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("moment", ["step", "save"])
def test_a_killed_run_ends_as_if_it_had_never_stopped(tmp_path, moment):
    killed = run("resume", str(tmp_path), moment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    epochs = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["epoch"]
    assert epochs == {"step": 3, "save": 2}[moment]
    resumed, second = train_deep(tmp_path / "run")
    whole, first = train_deep(tmp_path / "other")
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert second == first


def test_a_finished_run_is_not_repeated(tmp_path):
    trained, first = train_deep(tmp_path)
    again, second = train_deep(tmp_path)
    assert first == second
    assert all(map(torch.equal, trained.state_dict().values(), again.state_dict().values()))


def test_checkpoints_of_another_run_are_refused(tmp_path):
    model = SIKALayer(2, 1, level=2, dtype=torch.float64)
    likelihood = build_likelihood("gaussian", 1).double()
    fit(model, likelihood, rows(), TrainingConfig(epochs=1), folder=tmp_path, trainer_options=QUIET)
    other = TrainingConfig(epochs=2)
    with pytest.raises(ValueError, match="other options: epochs changed"):
        fit(model, likelihood, rows(), other, folder=tmp_path, trainer_options=QUIET)
    x, y = rows()
    same = TrainingConfig(epochs=1)
    with pytest.raises(ValueError, match="other options: num_rows changed"):
        fit(model, likelihood, (x[1:], y[1:]), same, folder=tmp_path, trainer_options=QUIET)


def test_two_processes_do_the_work_of_one(tmp_path):
    completed = run("ddp", str(tmp_path), "2")
    assert completed.returncode == 0, completed.stderr
    outcome = torch.load(tmp_path / "outcome.pt", weights_only=True)
    assert outcome["backend"] == "gloo x 2"
    alone, result = train_shared(1)
    for name, value in alone.state_dict().items():
        assert_close(outcome["parameters"][name], value)
    for shared, single in zip(outcome["history"], result.history, strict=True):
        assert shared["loss"] == pytest.approx(single["loss"], rel=1e-6)
