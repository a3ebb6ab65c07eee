"""Features of texts, kept on disk.

A file is named by a hash of everything that it depends on: the encoder's weights and
architecture, the tokens and the pooling. So it never has to be invalidated, and several processes
may share a folder.
"""

import hashlib
import json
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor
from transformers import PreTrainedModel

from sikagp._typing import Float
from sikagp.experiments.files import write_whole
from sikagp.integrations.transformers.features import Tokens, encode


def cached_features(
    encoder: PreTrainedModel, tokens: Tokens, pooling: str, folder: Path
) -> Float[Tensor, "rows features"]:
    """Features of each text, from the folder if they are there."""
    content = json.dumps([fingerprint(encoder), [list(row) for row in tokens], pooling])
    path = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"
    if not path.is_file():
        write_whole(path, save({"features": encode(encoder, tokens, pooling)}))
    return load_file(path)["features"]


def fingerprint(encoder: PreTrainedModel) -> str:
    """Hash of an encoder's architecture and weights."""
    digest = hashlib.sha256(type(encoder).__name__.encode())
    config = encoder.config.to_dict()
    # Where the weights lie and who wrote them does not matter.
    for name in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        config.pop(name, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
