"""Callbacks: what Lightning does not bring along. All of them survive a resumed run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn


class BestParameters(Callback):
    """Keeps the parameters of the epoch with the lowest ``val_loss``; :meth:`restore` sets them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start looking for the best parameters afresh."""
        self.score = math.inf
        self.epoch: int | None = None
        self.parameters: dict[str, Tensor] = {}

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the parameters if they are the best so far."""
        score = float(trainer.callback_metrics["val_loss"])
        if not trainer.sanity_checking and score < self.score:
            state = pl_module.state_dict()
            self.parameters = {name: value.detach().cpu().clone() for name, value in state.items()}
            self.score, self.epoch = score, trainer.current_epoch

    def restore(self, module: nn.Module) -> None:
        """Put the best parameters back, if any were seen."""
        if self.parameters:
            module.load_state_dict(self.parameters)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"score": self.score, "epoch": self.epoch, "parameters": self.parameters}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a run stopped."""
        self.score, self.epoch = state_dict["score"], state_dict["epoch"]
        self.parameters = state_dict["parameters"]


class History(Callback):
    """Collects the logged numbers of every epoch."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Append this epoch's numbers."""
        metrics = trainer.callback_metrics.items()
        self.epochs.append({name: float(value) for name, value in metrics})

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a run stopped."""
        self.epochs = list(state_dict["epochs"])


class TrainableSchedule(Callback):
    """Freezes and unfreezes parts of a backbone at given epochs.

    The state follows from the number of the epoch alone. With several processes it needs the
    strategy ``"ddp_find_unused_parameters_true"``, because frozen parameters have no gradient.
    """

    def __init__(self, parts: Mapping[int, str | int | Sequence[str]]) -> None:
        self.parts = dict(sorted(parts.items()))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Apply the latest entry that has been reached."""
        reached = [part for epoch, part in self.parts.items() if epoch <= trainer.current_epoch]
        model = getattr(pl_module, "model", pl_module)
        if not hasattr(model, "set_trainable"):
            raise TypeError(
                f"a schedule of trainable parts needs a model with set_trainable, "
                f"got {type(model).__name__}"
            )
        if reached:
            model.set_trainable(reached[-1])  # type: ignore[operator]
