"""Tiny encoders with random weights, and a task for them: the first token decides the class."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    DistilBertConfig,
    PretrainedConfig,
    RobertaConfig,
)

from sikagp.integrations.transformers import SIKAForSequenceClassification, SIKATextConfig

VOCABULARY, CLASSES, TOKENS = 30, 3, 6
_BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
_DISTILBERT = {
    "vocab_size": VOCABULARY,
    "dim": 16,
    "n_layers": 3,
    "n_heads": 2,
    "hidden_dim": 32,
    "max_position_embeddings": 64,
}
ENCODERS: dict[str, PretrainedConfig] = {
    "bert": BertConfig(**_BERT),
    "distilbert": DistilBertConfig(**_DISTILBERT),
    "roberta": RobertaConfig(**_BERT),
}


def tiny_classifier(encoder: str = "bert", **options) -> SIKAForSequenceClassification:
    """Return a small classifier with random weights."""
    defaults = {"projection": 8, "num_labels": CLASSES, "head_options": {"level": 3}}
    return SIKAForSequenceClassification(SIKATextConfig(ENCODERS[encoder], **defaults | options))


def tokens(rows: int) -> dict[str, Tensor]:
    """Return random token ids with padding at the end."""
    ids = torch.randint(2, VOCABULARY, (rows, TOKENS))
    length = torch.randint(2, TOKENS + 1, (rows, 1))
    mask = (torch.arange(TOKENS) < length).long()
    return {"input_ids": ids * mask + (1 - mask), "attention_mask": mask}


class FirstToken(Dataset):
    """Rows whose class is the first token modulo the number of classes."""

    def __init__(self, rows: int) -> None:
        self.inputs = tokens(rows)

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = {name: value[index] for name, value in self.inputs.items()}
        return {**row, "labels": row["input_ids"][0] % CLASSES}


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """Copy all parameters by name."""
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def changed(module: nn.Module, before: dict[str, Tensor]) -> set[str]:
    """Names of the parameters that differ from a snapshot."""
    return {name for name, value in module.named_parameters() if not value.equal(before[name])}
