"""Callbacks for the stock ``Trainer``: the weight of the KL divergence, and what is frozen when.

Both follow from the number of the step alone, so a resumed run goes on as it would have.
"""

from collections.abc import Sized
from typing import Any, cast

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sikagp.integrations.transformers.modeling import SIKAForSequenceClassification
from sikagp.objectives import warm_up
from sikagp.validation import check_count


def find_classifier(model: nn.Module) -> SIKAForSequenceClassification:
    """Return the classifier inside what peft, DDP or a compiler wrapped around it."""
    for module in model.modules():
        if isinstance(module, SIKAForSequenceClassification):
            return module
    raise TypeError(f"expected a SIKAForSequenceClassification, got a {type(model).__name__}")


class KLWarmup(TrainerCallback):
    """Raises the weight of the KL divergence linearly over the first steps.

    It also tells the model how many training rows there are, unless its configuration does.

    Args:
        fraction: share of all steps over which the weight rises from 0 to ``config.kl_weight``.
    """

    def __init__(self, fraction: float = 0.15) -> None:
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction must lie in [0, 1], got {fraction}")
        self.fraction = fraction

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Count the training rows."""
        config = find_classifier(kwargs["model"]).config
        if config.num_data is None:
            config.num_data = len(cast(Sized, kwargs["train_dataloader"].dataset))

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Set the factor of this step."""
        rise = round(self.fraction * state.max_steps)
        find_classifier(kwargs["model"]).kl_warmup = warm_up(state.global_step, rise)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Leave the model with its full weight."""
        find_classifier(kwargs["model"]).kl_warmup = 1.0


class FreezingSchedule(TrainerCallback):
    """Freezes the encoder at first and then trains its last layers; the head is always trained.

    The optimizer must have been given all parameters, as :func:`build_trainer` does: those
    without a gradient are passed over.

    Args:
        frozen_epochs: epochs with a frozen encoder.
        trainable_layers: how many layers are trained afterwards; None trains the whole encoder.
    """

    def __init__(self, frozen_epochs: int = 2, trainable_layers: int | None = 2) -> None:
        self.frozen_epochs = frozen_epochs and check_count("frozen_epochs", frozen_epochs)
        self.trainable_layers = trainable_layers

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Freeze or unfreeze, as this epoch asks for."""
        frozen = round(state.epoch or 0.0) < self.frozen_epochs
        find_classifier(kwargs["model"]).set_trainable_layers(
            0 if frozen else self.trainable_layers
        )
