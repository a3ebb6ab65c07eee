"""Networks that turn images into features."""

from collections.abc import Callable

from torch import nn

from sikagp.experiments.backbones.checkpoints import (
    load_backbone,
    load_last,
    pretrained_resnet,
    save_network,
)
from sikagp.experiments.backbones.digits import DigitsCNN
from sikagp.experiments.backbones.fast import FastNet
from sikagp.experiments.backbones.resnet import narrow_resnet, wide_resnet
from sikagp.validation import check_choice

__all__ = [
    "BACKBONES",
    "build_backbone",
    "load_backbone",
    "load_last",
    "pretrained_resnet",
    "save_network",
]

BACKBONES: dict[str, Callable[[], nn.Module]] = {
    "digits-cnn": DigitsCNN,
    "fast": FastNet,
    "fast-tiny": lambda: FastNet((4, 8, 8)),
    "resnet18": lambda: wide_resnet(18),
    "resnet34": lambda: wide_resnet(34),
    "resnet20": lambda: narrow_resnet(20),
    "resnet32": lambda: narrow_resnet(32),
    "resnet44": lambda: narrow_resnet(44),
    "resnet56": lambda: narrow_resnet(56),
}


def build_backbone(name: str) -> nn.Module:
    """Make a backbone with fresh weights; its ``num_features`` says how many it returns."""
    return BACKBONES[check_choice("backbone", name, BACKBONES)]()
