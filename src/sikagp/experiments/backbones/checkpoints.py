"""Weights of backbones: the public CIFAR-10 checkpoints, and those of earlier runs."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from sikagp._typing import Float
from sikagp.experiments.backbones.resnet import ResNet, narrow_resnet
from sikagp.experiments.data.retrieval import obtain
from sikagp.experiments.data.sources import CIFAR_RESNETS
from sikagp.experiments.files import write_whole

BACKBONE_FILE, LAST_FILE = "backbone.safetensors", "last.safetensors"
_PREFIX, _LAST = "module.", "linear."


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], nn.Linear]:
    """Parameters of the backbone and the last layer of a public checkpoint."""
    content = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    state = {name.removeprefix(_PREFIX): value for name, value in content.items()}
    last = _linear(weight=state.pop(_LAST + "weight"), bias=state.pop(_LAST + "bias"))
    return state, last


def pretrained_resnet(depth: int) -> tuple[ResNet, nn.Linear]:
    """ResNet-20, -32, -44 or -56 trained on CIFAR-10, in evaluation mode, and its last layer."""
    state, last = read_checkpoint(obtain(CIFAR_RESNETS[depth]))
    backbone = narrow_resnet(depth)
    # Early versions of batch normalisation did not count batches.
    missing, unexpected = backbone.load_state_dict(state, strict=False)
    lost = [name for name in missing if not name.endswith("num_batches_tracked")]
    if lost or unexpected:
        raise ValueError(f"not a ResNet-{depth}: lacks {lost}, does not know {unexpected}")
    return backbone.eval(), last


def save_network(backbone: nn.Module, last: nn.Linear | None, folder: Path) -> None:
    """Write the parameters whole, for runs that start from them."""
    if last is not None:
        _write(last.state_dict(), folder / LAST_FILE)
    _write(backbone.state_dict(), folder / BACKBONE_FILE)


def load_backbone(backbone: nn.Module, folder: Path) -> nn.Module:
    """Set the parameters that :func:`save_network` wrote, and evaluation mode."""
    backbone.load_state_dict(_read(folder / BACKBONE_FILE))
    return backbone.eval()


def load_last(folder: Path) -> nn.Linear:
    """Read the linear last layer that :func:`save_network` wrote, if the network has one."""
    return _linear(**_read(folder / LAST_FILE))


def _linear(weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer.eval()


def _write(state: Mapping[str, Tensor], path: Path) -> None:
    plain = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    write_whole(path, save(plain))


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run the recipe that trains it")
    return load_file(path)
