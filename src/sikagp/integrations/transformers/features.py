"""Features of texts from a frozen encoder.

Texts of equal length share a batch: nothing is padded, so no layer needs a mask, and short texts
cost no more than they must.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sikagp._typing import Float, Int
from sikagp.integrations.transformers.pooling import pool

Tokens = Sequence[Sequence[int]]
_BATCH = 128


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_tokens: int
) -> list[list[int]]:
    """Numbers of each text's tokens; longer texts are cut."""
    if len(texts) == 0:
        return []
    return tokenizer(list(texts), truncation=True, max_length=max_tokens)["input_ids"]


@torch.no_grad()
def encode(
    encoder: PreTrainedModel, tokens: Tokens, pooling: str
) -> Float[Tensor, "rows features"]:
    """Pooled features of each text, in evaluation mode."""
    encoder.eval()
    features = torch.empty(len(tokens), encoder.config.hidden_size)
    for rows in equal_lengths([len(row) for row in tokens], _BATCH):
        states = encoder(input_ids=stack(tokens, rows))[0]
        features[rows] = pool(states, None, pooling).float()
    return features


def equal_lengths(
    lengths: Sequence[int], batch_size: int, *, generator: torch.Generator | None = None
) -> Iterator[Int[Tensor, " batch"]]:
    """Indices of rows, batch by batch; with a generator rows and batches are shuffled."""
    length = torch.tensor(lengths, dtype=torch.long)
    batches: list[Tensor] = []
    for value in length.unique():
        rows = (length == value).nonzero().squeeze(-1)
        if generator is not None:
            rows = rows[torch.randperm(len(rows), generator=generator)]
        batches += rows.split(batch_size)
    order: Sequence[int] = range(len(batches))
    if generator is not None:
        order = torch.randperm(len(batches), generator=generator).tolist()
    for index in order:
        yield batches[index]


def stack(tokens: Tokens, rows: Int[Tensor, " batch"]) -> Int[Tensor, "batch tokens"]:
    """Tokens of rows of equal length."""
    return torch.tensor([list(tokens[row]) for row in rows.tolist()])
