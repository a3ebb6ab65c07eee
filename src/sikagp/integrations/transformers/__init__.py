"""Hugging Face transformers: any encoder with a SIKA head, trained by the stock ``Trainer``."""

from sikagp.integrations.transformers.callbacks import FreezingSchedule, KLWarmup
from sikagp.integrations.transformers.configuration import SIKATextConfig
from sikagp.integrations.transformers.lora import add_lora, load_lora, save_lora
from sikagp.integrations.transformers.modeling import SIKAForSequenceClassification
from sikagp.integrations.transformers.training import build_trainer, training_arguments

__all__ = [
    "FreezingSchedule",
    "KLWarmup",
    "SIKAForSequenceClassification",
    "SIKATextConfig",
    "add_lora",
    "build_trainer",
    "load_lora",
    "save_lora",
    "training_arguments",
]
