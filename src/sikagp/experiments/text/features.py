"""Features of texts, kept on disk."""

import json
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from sikagp._typing import Float
from sikagp.experiments.keeping import hash_tensors, keep
from sikagp.integrations.transformers.features import Tokens, encode


def cached_features(
    encoder: PreTrainedModel, tokens: Tokens, pooling: str, folder: Path
) -> Float[Tensor, "rows features"]:
    """Features of each text, from the folder if they are there."""
    description = [fingerprint(encoder), [list(row) for row in tokens], pooling]
    kept = keep(folder, description, lambda: {"features": encode(encoder, tokens, pooling)})
    return kept["features"]


def fingerprint(encoder: PreTrainedModel) -> list[str]:
    """Architecture and weights of an encoder, as short texts."""
    config = encoder.config.to_dict()
    # Where the weights lie and who wrote them does not matter.
    for name in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        config.pop(name, None)
    state = sorted(encoder.state_dict().items())
    names = json.dumps([config, [name for name, _ in state]], sort_keys=True, default=str)
    return [type(encoder).__name__, names, hash_tensors(value for _, value in state)]


def center_and_scale(
    features: Float[Tensor, "rows features"],
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""]]:
    """Mean of each feature, and one deviation for all: some of an encoder's never vary."""
    return features.mean(0), features.std(0).mean()
