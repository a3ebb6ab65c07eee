"""Corruptions and normalisations against SciPy and the images that they belong to."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from sikagp.experiments import data
from sikagp.experiments.data.sources import MNIST
from sikagp.experiments.images.augmentation import NORMALISATIONS, augment, batch_generator
from sikagp.experiments.images.corruptions import BLUR, CONTRAST, NOISE, SEVERITIES, corrupt

SHARED = Path(os.environ.get("SIKAGP_DATA") or Path(__file__).parents[2] / "shared" / "data")


def pictures(rows: int = 3, channels: int = 2, side: int = 20) -> torch.Tensor:
    return torch.randint(0, 256, (rows, channels, side, side), dtype=torch.uint8)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_blur_is_the_gaussian_filter_of_scipy(severity):
    x = pictures()
    deviation = (0, 0, BLUR[severity - 1], BLUR[severity - 1])
    smooth = ndimage.gaussian_filter(x.double().numpy(), deviation, mode="nearest", truncate=4.0)
    difference = corrupt(x, "blur", severity).double().numpy() - smooth
    # SciPy cuts at the same number of pixels, or one nearer.
    assert np.abs(difference).max() < 0.52 + 255 * 1e-3


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_differences_from_the_mean_of_each_channel(severity):
    x = pictures().double()
    mean = x.mean((2, 3), keepdim=True)
    expected = mean + CONTRAST[severity - 1] * (x - mean)
    found = corrupt(x.to(torch.uint8), "contrast", severity).double()
    assert (found - expected).abs().max() <= 0.51


@pytest.mark.parametrize("severity", SEVERITIES)
def test_noise_has_its_deviation_and_never_wraps_around(severity):
    grey = torch.full((4, 3, 64, 64), 128, dtype=torch.uint8)
    noise = corrupt(grey, "noise", severity).double() - 128
    assert noise.std().item() == pytest.approx(255 * NOISE[severity - 1], rel=0.02)
    assert abs(noise.mean().item()) < 0.5
    black = corrupt(torch.zeros_like(grey), "noise", severity)
    assert black.max() < 200
    assert (black == 0).double().mean().item() == pytest.approx(0.5, abs=0.05)
    white = corrupt(torch.full_like(grey, 255), "noise", severity)
    assert white.min() > 55


def test_noise_differs_between_severities_by_more_than_its_strength():
    grey = torch.full((1, 1, 64, 64), 128, dtype=torch.uint8)
    one, five = (corrupt(grey, "noise", severity).double() - 128 for severity in (1, 5))
    correlation = (one * five).mean() / (one.std() * five.std())
    assert correlation.abs() < 0.05


def test_strengths_are_those_of_the_benchmark():
    assert NOISE == (0.04, 0.06, 0.08, 0.09, 0.10)
    assert CONTRAST == (0.75, 0.5, 0.4, 0.3, 0.15)
    assert list(BLUR) == sorted(BLUR)


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_other_severities_are_refused(severity):
    with pytest.raises(ValueError, match=f"between 1 and 5, got {severity}"):
        corrupt(pictures(), "noise", severity)
    with pytest.raises(ValueError, match="kind must be one of 'noise'"):
        corrupt(pictures(), "fog", 1)


def test_digits_are_standardised_by_their_own_statistics(monkeypatch):
    if not (SHARED / MNIST["test"][0].path).is_file():
        pytest.skip("set SIKAGP_DATA to a folder with copies of the data")
    monkeypatch.setenv("SIKAGP_DATA", str(SHARED))
    found = NORMALISATIONS["mnist"](data.mnist("test").pixels)
    # Test images have nearly the statistics of the training images, which are meant.
    assert abs(found.mean().item()) < 0.01
    assert found.std().item() == pytest.approx(1, abs=0.01)


def test_the_deviations_of_a_normalisation_divide():
    grey = torch.full((1, 3, 2, 2), 102, dtype=torch.uint8)
    for normalise in NORMALISATIONS.values():
        if len(normalise.mean) == 3:
            expected = (0.4 - np.array(normalise.mean)) / np.array(normalise.deviation)
            found = normalise(grey)[0, :, 0, 0].double().numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_pictures_move_by_up_to_four_pixels_unless_told_otherwise():
    x = torch.zeros(3000, 1, 21, 21, dtype=torch.uint8)
    x[:, :, 10, 10] = 255
    moved = augment(x, torch.Generator().manual_seed(0)).flatten(1).float().argmax(1)
    assert set((moved // 21).tolist()) == set(range(6, 15))
    assert set((moved % 21).tolist()) == set(range(6, 15))


def test_generators_belong_to_seed_and_rows_in_their_order():
    def first(seed, rows):
        return torch.rand(4, generator=batch_generator(seed, rows))

    assert torch.equal(first(0, [1, 2]), first(0, [1, 2]))
    several = [first(0, [1, 2]), first(1, [1, 2]), first(0, [2, 1]), first(0, [1]), first(1, [0])]
    assert len({tuple(draws.tolist()) for draws in several}) == len(several)
