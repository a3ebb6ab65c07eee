"""From the states of the tokens to one feature vector per text."""

import torch
from torch import Tensor

from sikagp._typing import Float, Int
from sikagp.validation import check_choice

POOLINGS = ("cls", "mean")


def pool(
    states: Float[Tensor, "batch tokens features"],
    attention_mask: Int[Tensor, "batch tokens"] | None,
    pooling: str,
) -> Float[Tensor, "batch features"]:
    """Take the first token's state, or the mean over the tokens that are not padding."""
    if check_choice("pooling", pooling, POOLINGS) == "cls":
        return states[:, 0]
    if attention_mask is None:
        return states.mean(1)
    mask = attention_mask.to(states.dtype).unsqueeze(-1)
    return torch.sum(states * mask, dim=1) / mask.sum(1).clamp_min(1)
