"""How long epochs take, and signs of life from those that take long."""

import logging
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

# Seconds between two lines about one run.
PERIOD = 60.0
logger = logging.getLogger(__name__)


class EpochTimer(Callback):
    """Seconds that each epoch spends on training rows; survives a resumed run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self.start = time.perf_counter()
        self.seconds = [*self.seconds[: trainer.current_epoch], 0.0]

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        """Note the time so far; validation comes after the last batch."""
        self.seconds[-1] = time.perf_counter() - self.start

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a run stopped."""
        self.seconds = list(state_dict["seconds"])


class EpochLog(Callback):
    """Logs how far a run is, at most once a minute: for those who see no progress bar."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log number and loss of the epoch, if it is time."""
        if time.monotonic() - self.last >= PERIOD:
            self.last = time.monotonic()
            epoch, loss = trainer.current_epoch + 1, float(trainer.callback_metrics["loss"])
            logger.info("epoch %d of %d: loss %.4f", epoch, trainer.max_epochs, loss)
