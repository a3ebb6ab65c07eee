"""Weights of backbones: the public CIFAR-10 checkpoints, and those of earlier runs."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from sikagp.experiments.backbones.resnet import ResNet, narrow_resnet
from sikagp.experiments.data.retrieval import obtain
from sikagp.experiments.data.sources import CIFAR_RESNETS
from sikagp.experiments.files import write_whole

_PREFIX, _LAST = "module.", "linear."


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], nn.Linear]:
    """Parameters of the backbone and the last layer of a public checkpoint."""
    content = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    state = {name.removeprefix(_PREFIX): value for name, value in content.items()}
    weight, bias = state.pop(_LAST + "weight"), state.pop(_LAST + "bias")
    last = nn.Linear(weight.shape[1], weight.shape[0])
    last.load_state_dict({"weight": weight, "bias": bias})
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
    return backbone.eval(), last.eval()


def save_backbone(backbone: nn.Module, path: Path) -> None:
    """Write the parameters whole, for runs that start from them."""
    state = {
        name: value.detach().cpu().contiguous() for name, value in backbone.state_dict().items()
    }
    write_whole(path, save(state))


def load_backbone(backbone: nn.Module, path: Path) -> nn.Module:
    """Set the parameters that :func:`save_backbone` wrote, and evaluation mode."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run the recipe that trains the backbone")
    backbone.load_state_dict(load_file(path))
    return backbone.eval()
