"""A small network for CIFAR that two processor cores can train.

The first layer is fixed: two-by-two patches are whitened by the statistics of the training
images, which saves the epochs in which a network learns that by itself. Pictures shrink before most
of the work is done, so that one forward pass takes about 40 million multiplications.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sikagp._typing import Float

_PATCH = 2
_REGULARISER = 5e-4
_WHITENED = 2 * 3 * _PATCH**2  # every direction of a patch, with both signs


def whitening_filters(
    images: Float[Tensor, "rows 3 height width"],
) -> Float[Tensor, "filters 3 patch patch"]:
    """Principal directions of patches, scaled to unit variance, and their negatives."""
    patches = images.unfold(2, _PATCH, 1).unfold(3, _PATCH, 1)
    patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3 * _PATCH**2)
    covariance = patches.T @ patches / len(patches)
    variance, directions = torch.linalg.eigh(covariance)
    filters = (directions / (variance + _REGULARISER).sqrt()).T.view(-1, 3, _PATCH, _PATCH)
    return torch.cat([filters, -filters])


class _Stage(nn.Sequential):
    """Two convolutions; the picture is halved after the first."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, out_channels, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class FastNet(nn.Module):
    """Whitening, three stages, and the largest value of every channel.

    Args:
        widths: channels of the stages.

    Shape:
        Input (rows, 3, 32, 32), output (rows, widths[-1]).
    """

    def __init__(self, widths: tuple[int, int, int] = (32, 128, 192)) -> None:
        super().__init__()
        self.whiten = nn.Conv2d(3, _WHITENED, _PATCH)
        self.whiten.weight.requires_grad_(False)
        pairs = zip((_WHITENED, *widths[:-1]), widths, strict=True)
        self.stages = nn.Sequential(*(_Stage(before, after) for before, after in pairs))
        self.num_features = widths[-1]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.no_grad()
    def prepare(self, images: Float[Tensor, "rows 3 height width"]) -> None:
        """Set the fixed filters by normalised training images; a few thousand will do."""
        self.whiten.weight.copy_(whitening_filters(images))
        nn.init.zeros_(self.whiten.bias)  # type: ignore[arg-type]

    def forward(
        self, x: Float[Tensor, "rows 3 height width"]
    ) -> Float[Tensor, "rows num_features"]:
        """Features of every picture."""
        x = F.relu(self.whiten(x.contiguous(memory_format=torch.channels_last)))
        return self.stages(x).amax((2, 3))
