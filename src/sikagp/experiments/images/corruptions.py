"""Corrupted images: what the world does to pictures, in five severities.

Strengths are those of the CIFAR-10-C benchmark (Hendrycks and Dietterich, 2019) for noise and
contrast; blur is Gaussian, with a deviation in pixels.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sikagp._typing import Float, UInt8
from sikagp.validation import check_choice

NOISE = (0.04, 0.06, 0.08, 0.09, 0.10)
BLUR = (0.4, 0.6, 0.8, 1.0, 1.5)
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
SEVERITIES = (1, 2, 3, 4, 5)
_REACH = 4  # deviations that a blur looks at

Values = Float[Tensor, "rows channels height width"]


def _noise(x: Values, severity: int) -> Values:
    generator = torch.Generator().manual_seed(severity)
    return x + NOISE[severity - 1] * torch.randn(x.shape, generator=generator)


def _blur(x: Values, severity: int) -> Values:
    deviation = BLUR[severity - 1]
    radius = round(_REACH * deviation)
    distance = torch.arange(-radius, radius + 1) / deviation
    kernel = torch.exp(-0.5 * distance.square())
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, 1, -1)
    padded = F.pad(x, (radius,) * 4, mode="replicate")
    across = F.conv2d(padded, kernel, groups=x.shape[1])
    return F.conv2d(across, kernel.mT, groups=x.shape[1])


def _contrast(x: Values, severity: int) -> Values:
    mean = x.mean((2, 3), keepdim=True)
    return mean + CONTRAST[severity - 1] * (x - mean)


CORRUPTIONS: dict[str, Callable[[Values, int], Values]] = {
    "noise": _noise,
    "blur": _blur,
    "contrast": _contrast,
}


def corrupt(
    pixels: UInt8[Tensor, "rows channels height width"], kind: str, severity: int
) -> UInt8[Tensor, "rows channels height width"]:
    """Corrupt pictures, always in the same way.

    Args:
        pixels: values from 0 to 255.
        kind: ``"noise"``, ``"blur"`` or ``"contrast"``.
        severity: from 1 to 5.
    """
    if severity not in SEVERITIES:
        raise ValueError(f"severity must lie between 1 and 5, got {severity}")
    changed = CORRUPTIONS[check_choice("kind", kind, CORRUPTIONS)](pixels.float() / 255, severity)
    return (255 * changed).round().clamp(0, 255).to(torch.uint8)
