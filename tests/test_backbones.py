"""Backbones: shapes, sizes, whitening, and the public checkpoints on real images."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from sikagp.experiments import data
from sikagp.experiments.backbones import (
    build_backbone,
    load_backbone,
    load_last,
    pretrained_resnet,
    save_network,
)
from sikagp.experiments.backbones.checkpoints import read_checkpoint
from sikagp.experiments.backbones.fast import FastNet, whitening_filters
from sikagp.experiments.backbones.resnet import BasicBlock, PaddedShortcut
from sikagp.experiments.data.sources import CIFAR_RESNETS
from sikagp.experiments.images.augmentation import NORMALISATIONS

SHARED = Path(os.environ.get("SIKAGP_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture
def real_data(monkeypatch) -> None:
    if not (SHARED / CIFAR_RESNETS[20].path).is_file():
        pytest.skip("set SIKAGP_DATA to a folder with copies of the data")
    monkeypatch.setenv("SIKAGP_DATA", str(SHARED))


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "features", "parameters"),
    [
        # With a linear layer for ten classes they have the published 0.27, 0.46, 0.66, 0.85 million
        # and, for ResNet-18 and -34, 11.17 and 21.28 million.
        ("resnet20", 64, 269_722 - 650),
        ("resnet32", 64, 464_154 - 650),
        ("resnet44", 64, 658_586 - 650),
        ("resnet56", 64, 853_018 - 650),
        ("resnet18", 512, 11_173_962 - 5130),
        ("resnet34", 512, 21_282_122 - 5130),
        ("digits-cnn", 128, 320 + 18_496 + 9216 * 128 + 128),
    ],
)
def test_networks_have_their_published_sizes(name, features, parameters):
    backbone = build_backbone(name)
    assert backbone.num_features == features
    assert num_parameters(backbone) == parameters


@pytest.mark.parametrize("name", ["digits-cnn", "fast", "fast-tiny", "resnet20"])
def test_backbones_return_their_features(name):
    backbone = build_backbone(name)
    shape = (1, 28, 28) if name == "digits-cnn" else (3, 32, 32)
    assert backbone(torch.randn(2, *shape)).shape == (2, backbone.num_features)


def test_a_shortcut_takes_every_second_pixel_and_pads_with_zeros():
    x = torch.randn(2, 4, 6, 6)
    found = PaddedShortcut(4)(x)
    assert found.shape == (2, 8, 3, 3)
    torch.testing.assert_close(found[:, 2:6], x[:, :, ::2, ::2])
    assert found[:, :2].abs().max() == found[:, 6:].abs().max() == 0


def test_a_block_without_residual_is_its_shortcut():
    block = BasicBlock(4, 4, 1, padded=False).eval()
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 4, 5, 5)
    torch.testing.assert_close(block(x), x)


@torch.no_grad()
def test_the_first_layer_of_the_fast_network_whitens_patches():
    base = torch.randn(40, 3, 32, 32)
    images = base + 0.8 * base.roll(1, 3) + base.flip(1)  # correlated pixels and colours
    net = FastNet((4, 8, 8))
    net.prepare(images)
    assert not net.whiten.weight.requires_grad
    response = net.whiten(images).movedim(1, -1).flatten(0, -2)
    half = response.shape[1] // 2
    torch.testing.assert_close(response[:, half:], -response[:, :half])
    covariance = response[:, :half].T @ response[:, :half] / len(response)
    torch.testing.assert_close(covariance, torch.eye(half), atol=5e-3, rtol=0)
    torch.testing.assert_close(whitening_filters(images), net.whiten.weight)


def test_weights_survive_a_file(tmp_path):
    first, second = build_backbone("fast-tiny"), build_backbone("fast-tiny")
    x = torch.randn(4, 3, 32, 32)
    first(x)  # moves the running statistics
    save_network(first, None, tmp_path)
    load_backbone(second, tmp_path)
    torch.testing.assert_close(second(x), first.eval()(x))
    with pytest.raises(FileNotFoundError, match=r"last.safetensors .* run the recipe"):
        load_last(tmp_path)
    last = torch.nn.Linear(first.num_features, 3)
    save_network(first, last, tmp_path)
    features = torch.randn(4, first.num_features)
    torch.testing.assert_close(load_last(tmp_path)(features), last(features))
    with pytest.raises(FileNotFoundError, match="run the recipe"):
        load_backbone(second, tmp_path / "other")


def test_a_checkpoint_of_another_depth_is_refused(real_data, monkeypatch):
    monkeypatch.setitem(CIFAR_RESNETS, 32, CIFAR_RESNETS[20])
    with pytest.raises(ValueError, match="not a ResNet-32"):
        pretrained_resnet(32)


@torch.no_grad()
def test_a_public_checkpoint_recognises_real_images(real_data):
    backbone, last = pretrained_resnet(20)
    images = data.cifar10("test").first(500)
    logits = last(backbone(NORMALISATIONS["imagenet"](images.pixels)))
    # 91.73% on all test images; 500 of them have a standard error of 1.2%.
    assert (logits.argmax(-1) == images.labels).float().mean() > 0.89
    state, _ = read_checkpoint(data.find(CIFAR_RESNETS[20].path))
    assert not any(name.startswith(("module.", "linear.")) for name in state)
