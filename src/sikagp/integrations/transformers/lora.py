"""LoRA through peft: small adapters in the encoder; projection, statistics and head in full.

A saved folder holds adapters and head together, and the classifier's configuration beside them,
so that it can be loaded without knowing how it was made.
"""

import os
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from sikagp.integrations.transformers.callbacks import find_classifier
from sikagp.integrations.transformers.configuration import SIKATextConfig
from sikagp.integrations.transformers.modeling import (
    SIKAForSequenceClassification,
    encoder_layers,
)


def add_lora(model: SIKAForSequenceClassification, **options: Any) -> PeftModel:
    """Freeze the encoder and give adapters to all linear maps of its layers.

    Options are those of ``peft.LoraConfig``, such as ``r``, ``lora_alpha``, ``lora_dropout`` or
    other ``target_modules``. The head is trained and saved in full.
    """
    options.setdefault("target_modules", _linear_maps(model.encoder))
    saved = {"head", *(options.pop("modules_to_save", None) or ())}
    return get_peft_model(model, LoraConfig(modules_to_save=sorted(saved), **options))


def save_lora(model: PeftModel, folder: str | os.PathLike[str]) -> Path:
    """Write adapters, head and configuration to a folder."""
    folder = Path(folder)
    model.save_pretrained(os.fspath(folder))
    find_classifier(model).config.save_pretrained(folder)
    return folder


def load_lora(folder: str | os.PathLike[str], *, encoder: Any = None) -> PeftModel:
    """Load what :func:`save_lora` wrote, in evaluation mode.

    The encoder's own weights come from where they came from before, unless an encoder (model,
    folder or name) is given.
    """
    config = SIKATextConfig.from_pretrained(folder)
    source = encoder if encoder is not None else config.encoder_name
    if source is None:
        raise ValueError("the encoder had no name: pass it as load_lora(folder, encoder=...)")
    model = SIKAForSequenceClassification.from_encoder(source, config)
    return PeftModel.from_pretrained(model, os.fspath(folder)).eval()


def _linear_maps(encoder: nn.Module) -> str:
    """Pattern of the names of linear maps in the encoder's layers."""
    names = {
        name.rpartition(".")[2]
        for layer in encoder_layers(encoder)
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    }
    return rf"encoder\..*\.({'|'.join(sorted(names))})"
