"""Distorted images: unlike those that a network knows, with the same thing to see on them.

They teach a model how unfamiliar images look. None of them is among the corruptions that models
are scored on.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sikagp._typing import UInt8

_PATCH = (3 / 8, 5 / 8)  # side of a patch, as a share of the picture's
_LEVELS = 4

Pixels = UInt8[Tensor, "rows channels height width"]


def _patch(pixels: Pixels, generator: torch.Generator) -> Pixels:
    """Cover a square somewhere in the picture with one colour."""
    rows, channels, height, width = pixels.shape
    share = torch.empty(rows, 1).uniform_(*_PATCH, generator=generator)
    place = torch.rand(2, rows, 1, generator=generator)

    def covered(size: int, place: Tensor) -> Tensor:
        side = (share * size).round()
        start = (place * (size - side + 1)).floor()
        position = torch.arange(size)
        return (position >= start) & (position < start + side)

    inside = covered(height, place[0]).unsqueeze(2) & covered(width, place[1]).unsqueeze(1)
    colour = torch.randint(256, (rows, channels, 1, 1), generator=generator).to(torch.uint8)
    return torch.where(inside.unsqueeze(1), colour, pixels)


def _few_shades(pixels: Pixels, _: torch.Generator) -> Pixels:
    step = 256 // _LEVELS
    return pixels // step * step + step // 2


DISTORTIONS: dict[str, Callable[[Pixels, torch.Generator], Pixels]] = {
    "patch": _patch,
    "quarter turn": lambda pixels, _: pixels.rot90(1, (2, 3)),
    "upside down": lambda pixels, _: pixels.flip(2),
    "negative": lambda pixels, _: 255 - pixels,
    "other colours": lambda pixels, _: pixels.roll(1, 1),
    "few shades": _few_shades,
}


def distort(pixels: Pixels, generator: torch.Generator) -> Pixels:
    """Distort square pictures, each in one way at random."""
    kind = torch.randint(len(DISTORTIONS), (len(pixels),), generator=generator)
    distorted = pixels.clone()
    for i, change in enumerate(DISTORTIONS.values()):
        distorted[kind == i] = change(pixels[kind == i], generator)
    return distorted
