"""A training run in a process of its own, for the tests of resuming and of several processes.

Usage: ``training_run.py resume FOLDER KILL`` or ``training_run.py ddp FOLDER DEVICES``.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from gpytorch.likelihoods import GaussianLikelihood
from lightning.pytorch import Callback
from torch import nn

from sikagp import SIKALayer
from sikagp.models import DeepGP
from sikagp.training import FitResult, TrainingConfig, fit

QUIET = {"enable_progress_bar": False, "accelerator": "cpu"}


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return x, torch.sin(6 * x.sum(-1))


class Kill(Callback):
    """Ends the process without warning, in the middle of a step or of writing a checkpoint."""

    def __init__(self, moment: str) -> None:
        self.moment = moment

    def on_after_backward(self, trainer, pl_module):
        if self.moment == "step" and trainer.global_step == 13:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        if self.moment == "save" and trainer.current_epoch == 3:
            os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)


def train_deep(folder: Path, moment: str = "never") -> tuple[nn.Module, FitResult]:
    """Sampling, warm-up, a schedule, held-out rows and running statistics: all must be resumed."""
    torch.manual_seed(0)
    model, likelihood = DeepGP((2, 3, 1), level=2, num_samples=2).double(), GaussianLikelihood()
    config = TrainingConfig(
        epochs=6, batch_size=16, validation=0.2, patience=5, kl_warmup=0.5, learning_rate=0.05
    )
    result = fit(
        model,
        likelihood.double(),
        rows(),
        config,
        folder=folder,
        callbacks=[Kill(moment)],
        trainer_options=QUIET,
    )
    return nn.ModuleList([model, likelihood]), result


class Backend(Callback):
    """Notes how processes talk to each other."""

    name: str | None = None

    def on_train_start(self, trainer, pl_module):
        if torch.distributed.is_initialized():
            self.name = f"{torch.distributed.get_backend()} x {trainer.world_size}"


def train_shared(devices: int, *callbacks: Callback) -> tuple[nn.Module, FitResult]:
    """One layer with a closed-form expectation: no draws, so processes can be compared."""
    torch.manual_seed(0)
    model, likelihood = SIKALayer(2, 1, level=2, dtype=torch.float64), GaussianLikelihood()
    config = TrainingConfig(epochs=3, batch_size=20)
    strategy = "ddp" if devices > 1 else "auto"
    options = {**QUIET, "devices": devices, "strategy": strategy}
    result = fit(
        model, likelihood.double(), rows(), config, callbacks=callbacks, trainer_options=options
    )
    return nn.ModuleList([model, likelihood]), result


def main() -> None:
    """Run as the command line says and save the outcome."""
    torch.set_num_threads(1)
    kind, folder, argument = sys.argv[1:]
    backend = Backend()
    if kind == "resume":
        trained, result = train_deep(Path(folder) / "run", argument)
    else:
        trained, result = train_shared(int(argument), backend)
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        outcome = {
            "parameters": trained.state_dict(),
            "history": result.history,
            "backend": backend.name,
        }
        torch.save(outcome, Path(folder) / "outcome.pt")


if __name__ == "__main__":
    main()
