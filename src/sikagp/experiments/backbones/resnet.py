"""Residual networks for images of 32 x 32, without their last layer.

Two families share the code: ResNet-18 and -34 with three-by-three stem and four stages from 64
channels, and ResNet-20, -32, -44, -56 with three stages from 16 channels (He et al., 2016). Names
of parameters are those that public checkpoints use.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp._typing import Float


class PaddedShortcut(nn.Module):
    """Option A of the original paper: every second pixel, and zeros for the new channels."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.before = new_channels // 2
        self.after = new_channels - self.before

    def forward(
        self, x: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows more half_height half_width"]:
        """Halve the picture and pad its channels."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two three-by-three convolutions around a shortcut."""

    def __init__(self, channels: int, out_channels: int, stride: int, *, padded: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out_channels:
            self.shortcut = (
                PaddedShortcut(out_channels - channels)
                if padded
                else nn.Sequential(
                    nn.Conv2d(channels, out_channels, 1, stride, bias=False),
                    nn.BatchNorm2d(out_channels),
                )
            )

    def forward(
        self, x: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows out_channels out_height out_width"]:
        """Add the residual to the shortcut."""
        residual = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(residual)) + self.shortcut(x))


class ResNet(nn.Module):
    """Stages of basic blocks, each with twice the channels at half the size, then an average.

    Args:
        channels: channels of the first stage.
        blocks: number of blocks in every stage.
        padded: whether shortcuts that change size pad with zeros instead of a convolution.

    Shape:
        Input (rows, 3, 32, 32), output (rows, num_features).
    """

    def __init__(self, channels: int, blocks: Sequence[int], *, padded: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.num_stages = len(blocks)
        width = channels
        for stage, count in enumerate(blocks):
            wider = channels * 2**stage
            steps = [
                (width if i == 0 else wider, 2 if i == 0 and stage else 1) for i in range(count)
            ]
            layers = [BasicBlock(before, wider, stride, padded=padded) for before, stride in steps]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
            width = wider
        self.num_features = width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(
        self, x: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows num_features"]:
        """Averages of the last stage's channels over the picture."""
        x = x.contiguous(memory_format=torch.channels_last)
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in range(self.num_stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x.mean((2, 3))


def wide_resnet(depth: int) -> ResNet:
    """ResNet-18 or -34 with a stem for small images; 512 features."""
    blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
    return ResNet(64, blocks[depth], padded=False)


def narrow_resnet(depth: int) -> ResNet:
    """ResNet-20, -32, -44 or -56 of 16, 32 and 64 channels; 64 features."""
    return ResNet(16, ((depth - 2) // 6,) * 3, padded=True)
