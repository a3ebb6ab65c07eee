"""The paper's recipe for text as defaults: arguments, optimizer groups, and a stock ``Trainer``."""

import os
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from sikagp.integrations.transformers.callbacks import (
    FreezingSchedule,
    KLWarmup,
    find_classifier,
)
from sikagp.layers import SIKALayer

MAX_TOKENS = 48
ENCODER_RATE = 2e-5


def training_arguments(output_dir: str | os.PathLike[str], **overrides: Any) -> TrainingArguments:
    """Arguments of the ``Trainer`` as the paper has them; every one can be given another value.

    The learning rate is that of projection and head; the encoder's goes to :func:`build_trainer`.
    """
    defaults: dict[str, Any] = {
        "num_train_epochs": 20,
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 128,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "save_strategy": "no",
        "report_to": "none",
        _warmup_name(): 0.06,
    }
    return TrainingArguments(output_dir=os.fspath(output_dir), **(defaults | overrides))


def build_optimizer(
    model: nn.Module, arguments: TrainingArguments, encoder_rate: float = ENCODER_RATE
) -> torch.optim.AdamW:
    """AdamW with a learning rate of its own for the encoder, and no decay of Bayesian weights."""
    classifier = find_classifier(model)
    layers = [module for module in classifier.modules() if isinstance(module, SIKALayer)]
    bayesian = {id(parameter) for layer in layers for parameter in layer.parameters()}
    encoder = {id(parameter) for parameter in classifier.encoder.parameters()}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in classifier.parameters():
        rate = encoder_rate if id(parameter) in encoder else arguments.learning_rate
        # Biases and the scales of normalisation are not decayed either.
        decay = 0.0 if id(parameter) in bayesian or parameter.ndim < 2 else arguments.weight_decay
        groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": rate, "weight_decay": decay}
            for (rate, decay), parameters in groups.items()
        ]
    )


def build_trainer(
    model: nn.Module,
    arguments: TrainingArguments,
    *,
    encoder_rate: float = ENCODER_RATE,
    freezing: FreezingSchedule | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **options: Any,
) -> Trainer:
    """Return a ``Trainer`` with the paper's optimizer groups, KL warm-up and freezing schedule.

    Options are the Trainer's own, such as ``train_dataset``, ``eval_dataset``,
    ``processing_class`` and ``compute_metrics``. A KLWarmup among the callbacks replaces the
    paper's. Adapters of peft decide themselves what is frozen, so they get no schedule.
    """
    extra = list(callbacks)
    if not any(isinstance(callback, KLWarmup) for callback in extra):
        extra.append(KLWarmup())
    if not hasattr(model, "peft_config"):
        extra.append(freezing or FreezingSchedule())
    optimizer = build_optimizer(model, arguments, encoder_rate)
    return Trainer(
        model=model, args=arguments, callbacks=extra, optimizers=(optimizer, None), **options
    )


def _warmup_name() -> str:
    """Name of the argument that takes the warm-up as a share of all steps."""
    major = int(transformers.__version__.partition(".")[0])
    return "warmup_steps" if major >= 5 else "warmup_ratio"
