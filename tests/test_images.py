"""Images on their way to a network: augmentation, corruption, cached features."""

import pytest
import torch
from torch import Tensor, nn

from sikagp.experiments.data import Images
from sikagp.experiments.images.augmentation import (
    NORMALISATIONS,
    ImageRows,
    Normalisation,
    augment,
    batch_generator,
    random_crops,
)
from sikagp.experiments.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from sikagp.experiments.images.distortions import DISTORTIONS, distort
from sikagp.experiments.images.features import FeatureCache
from sikagp.experiments.images.given import GivenLayer
from sikagp.experiments.images.rows import FrozenInputs, LiveInputs, ViewRows
from sikagp.experiments.images.scores import (
    classification_scores,
    corruption_scores,
    detection_scores,
    held_out_scores,
)

PLAIN = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def pictures(rows: int = 8, channels: int = 3, side: int = 32) -> Tensor:
    return torch.randint(0, 256, (rows, channels, side, side), dtype=torch.uint8)


def image_set(rows: int = 8) -> Images:
    return Images(pictures(rows), torch.arange(rows) % 4, 4, "made here")


class Averages(nn.Module):
    """A backbone of two features that counts how often it is asked."""

    num_features = 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.scale * torch.stack([x[:, 0].mean((1, 2)), x[..., :16].mean((1, 2, 3))], -1)


def test_normalisation_standardises_each_channel():
    found = NORMALISATIONS["cifar10"](pictures())
    pixel = NORMALISATIONS["cifar10"](torch.full((1, 3, 1, 1), 255, dtype=torch.uint8))
    expected = torch.tensor([(1 - 0.4914) / 0.2023, (1 - 0.4822) / 0.1994, (1 - 0.4465) / 0.2010])
    torch.testing.assert_close(pixel.flatten(), expected)
    assert found.dtype == torch.float32


def test_crops_move_pictures_over_a_black_border():
    x = pictures(3)
    offset = torch.tensor([[4, 4], [0, 4], [8, 7]])
    found = random_crops(x, offset, padding=4)
    torch.testing.assert_close(found[0], x[0])
    torch.testing.assert_close(found[1, :, 4:], x[1, :, :-4])
    assert found[1, :, :4].max() == 0
    torch.testing.assert_close(found[2, :, :-4, :-3], x[2, :, 4:, 3:])
    assert found[2, :, -4:].max() == found[2, :, :, -3:].max() == 0


def test_augmentation_shifts_and_mirrors_about_as_often_as_it_should():
    x = torch.zeros(4000, 1, 9, 9, dtype=torch.uint8)
    x[:, :, 4, 4], x[:, :, 4, 5] = 255, 128  # the darker neighbour tells left from right
    found = augment(x, torch.Generator().manual_seed(0), padding=2)
    bright = (found == 255).flatten(1).float().argmax(1)
    dark = (found == 128).flatten(1).float().argmax(1)
    assert set((bright // 9).tolist()) == {2, 3, 4, 5, 6}
    assert abs((dark < bright).float().mean() - 0.5) < 0.03
    again = augment(x, torch.Generator().manual_seed(0), padding=2)
    torch.testing.assert_close(found, again)


def test_batches_depend_on_seed_and_rows_alone():
    x, y = pictures(20), torch.arange(20)
    rows = ImageRows(x, y, PLAIN, augmented=True, seed=1)
    first, labels = rows.__getitems__([3, 5, 7])
    torch.rand(10)  # somebody else's draws
    torch.testing.assert_close(rows.__getitems__([3, 5, 7])[0], first)
    assert labels.tolist() == [3, 5, 7]
    assert not torch.equal(rows.__getitems__([3, 7, 5])[0][0], first[0])
    other = ImageRows(x, y, PLAIN, augmented=True, seed=2)
    assert not torch.equal(other.__getitems__([3, 5, 7])[0], first)
    plain = ImageRows(x, y, PLAIN, augmented=False, seed=1)
    torch.testing.assert_close(plain[4][0], PLAIN(x[4:5])[0])


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_corruptions_repeat_and_get_worse(kind):
    y, x = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    checks = (((x // 2 + y // 2) % 2) * 120 + 60).to(torch.uint8).expand(4, 3, 32, 32)
    errors = []
    for severity in SEVERITIES:
        found = corrupt(checks, kind, severity)
        torch.testing.assert_close(found, corrupt(checks, kind, severity))
        errors.append(float((found.float() - checks).square().mean()))
    assert errors == sorted(errors)
    assert errors[0] > 0
    with pytest.raises(ValueError, match="between 1 and 5"):
        corrupt(checks, kind, 6)


def test_every_picture_is_distorted_in_one_way(monkeypatch):
    pixels = pictures(300)
    distorted = distort(pixels, torch.Generator().manual_seed(0))
    assert torch.equal(distort(pixels, torch.Generator().manual_seed(0)), distorted)
    assert not torch.equal(distort(pixels, torch.Generator().manual_seed(1)), distorted)
    known = {
        "quarter turn": pixels.mT.flip(2),
        "upside down": pixels[:, :, torch.arange(31, -1, -1)],
        "negative": ~pixels,
        "other colours": pixels[:, [2, 0, 1]],
        "few shades": (pixels.int() // 64 * 64 + 32).to(torch.uint8),
    }
    counts = {}
    left = torch.ones(300, dtype=torch.bool)
    for name, expected in known.items():
        same = (distorted == expected).flatten(1).all(1)
        counts[name], left = int(same.sum()), left & ~same
    counts["patch"] = int(left.sum())
    assert set(counts) == set(DISTORTIONS)
    assert min(counts.values()) > 25
    patch = DISTORTIONS["patch"]
    monkeypatch.setattr("sikagp.experiments.images.distortions.DISTORTIONS", {"patch": patch})
    first, second = (distort(pixels, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert not (first == second).flatten(1).all(1).any()
    for before, after in zip(pixels[left], distorted[left], strict=True):
        changed = (before != after).any(0)
        rows, columns = changed.any(1).nonzero().flatten(), changed.any(0).nonzero().flatten()
        side = len(rows)
        assert 12 <= side == len(columns) <= 20
        assert rows[-1] - rows[0] == columns[-1] - columns[0] == side - 1
        patch = after[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert torch.equal(patch, patch[:, :1, :1].expand_as(patch))


def test_blur_keeps_the_mean_and_contrast_keeps_it_too():
    x = torch.full((1, 3, 16, 16), 90, dtype=torch.uint8)
    torch.testing.assert_close(corrupt(x, "blur", 5), x)
    torch.testing.assert_close(corrupt(x, "contrast", 5), x)
    point = torch.zeros(1, 1, 33, 33, dtype=torch.uint8)
    point[..., 16, 16] = 255
    spread = corrupt(point, "blur", 4).double() / 255
    expected = torch.exp(torch.tensor(-0.5)) / (2 * torch.pi)  # one pixel away, one deviation
    assert abs(float(spread[0, 0, 16, 17]) - float(expected)) < 3e-3


def test_features_are_computed_once_for_each_weight_and_picture(tmp_path):
    backbone, x = Averages(), pictures()
    cache = FeatureCache(backbone, PLAIN, folder=tmp_path)
    first = cache(x)
    torch.testing.assert_close(first, backbone(PLAIN(x)).detach())
    calls = backbone.calls
    torch.testing.assert_close(FeatureCache(backbone, PLAIN, folder=tmp_path)(x), first)
    assert backbone.calls == calls
    cache(x, view=1)
    cache(x.flip(0))
    with torch.no_grad():
        backbone.scale.mul_(2)
    torch.testing.assert_close(FeatureCache(backbone, PLAIN, folder=tmp_path)(x), 2 * first)
    FeatureCache(backbone, NORMALISATIONS["cifar10"], folder=tmp_path)(x)
    assert backbone.calls == calls + 4
    assert len(list(tmp_path.glob("*.safetensors"))) == 5


def test_rows_with_several_views_pick_one_per_batch():
    views = torch.arange(3.0).view(1, 3, 1).expand(50, 3, 2)
    rows = ViewRows(views, torch.arange(50), seed=0)
    features, labels = rows.__getitems__(list(range(50)))
    assert features.shape == (50, 2)
    assert set(features[:, 0].tolist()) == {0.0, 1.0, 2.0}
    torch.testing.assert_close(rows.__getitems__(list(range(50)))[0], features)
    assert labels.tolist() == list(range(50))
    assert batch_generator(0, [1]).initial_seed() != batch_generator(1, [1]).initial_seed()


def test_frozen_inputs_are_features_and_live_inputs_pictures(tmp_path):
    images, backbone = image_set(), Averages()
    frozen = FrozenInputs(backbone, PLAIN, views=2, folder=tmp_path)
    rows = torch.tensor([1, 4, 6])
    train = frozen.train(images, rows, seed=0)
    assert train.tensors[0].shape == (3, 2, 2)
    torch.testing.assert_close(train.tensors[0][:, 0], frozen.predict(images)[rows])
    assert len(list(tmp_path.glob("*.safetensors"))) == 2  # views of all images, shared by all rows
    live = LiveInputs("fast-tiny", PLAIN, augmented=False, examples=images)
    module = live.method_options["backbone"]()
    assert module(live.predict(images)).shape == (8, live.num_features)
    pictures, labels = live.train(images, rows, seed=0).__getitems__([0, 2])
    torch.testing.assert_close(pictures, live.predict(images)[rows[[0, 2]]])
    assert labels.tolist() == images.labels[rows[[0, 2]]].tolist()
    assert module.whiten.bias.abs().max() == 0


@pytest.mark.parametrize(("change", "changed"), [("augmented", augment), ("distorted", distort)])
def test_views_are_augmented_or_distorted(change, changed, tmp_path):
    images, backbone = image_set(), Averages()
    for other in ("augmented", "distorted"):  # neither takes the other's features from the disk
        FrozenInputs(backbone, PLAIN, views=2, change=other, folder=tmp_path).train(
            images, torch.arange(8), seed=0
        )
    frozen = FrozenInputs(backbone, PLAIN, views=3, change=change, folder=tmp_path)
    views = frozen.train(images, torch.arange(8), seed=0).tensors[0]
    for view in (1, 2):
        pixels = changed(images.pixels, torch.Generator().manual_seed(view))
        torch.testing.assert_close(views[:, view], backbone(PLAIN(pixels)))
    with pytest.raises(ValueError, match="change"):
        FrozenInputs(backbone, PLAIN, views=2, change="other", folder=tmp_path)


def test_scores_of_draws():
    sure = torch.tensor([[0.97, 0.01, 0.01, 0.01]]).expand(10, 4)
    unsure = torch.full((12, 4), 0.25)
    labels = torch.zeros(10, dtype=torch.long)
    scores = classification_scores(sure.expand(3, 10, 4), labels)
    assert scores["accuracy"] == 1
    assert scores["ece"] == pytest.approx(0.03, abs=1e-5)
    alone = detection_scores(sure.unsqueeze(0), unsure.unsqueeze(0))
    assert alone == {"auroc": 1.0, "auprc": 1.0, "fpr95": 0.0}
    torn = torch.eye(4)[torch.tensor([0, 1, 2, 3])].unsqueeze(1).expand(4, 12, 4)
    several = detection_scores(sure.expand(4, 10, 4), torn)
    assert several["auroc_mutual_information"] == several["auroc"] == 1.0


def test_a_given_layer_predicts_as_it_is():
    layer = torch.nn.Linear(3, 4)
    weight = layer.weight.detach().clone()
    method, x = GivenLayer(layer), torch.randn(5, 3)
    report = method.fit((x, torch.zeros(5).long()), None, seed=0)
    assert (report.epochs, report.history) == (0, [])
    assert torch.equal(layer.weight, weight)
    expected = (x @ weight.T + layer.bias).softmax(-1)
    torch.testing.assert_close(method.predict(x), expected.detach().unsqueeze(0))


def test_a_temperature_of_held_out_images_calibrates_others():
    torch.manual_seed(0)
    logits = torch.randn(4000, 4)
    labels = torch.distributions.Categorical(logits=logits).sample()
    sure = (3 * logits).softmax(-1).unsqueeze(0)  # three times as sure as it should be
    before = classification_scores(sure[:, 2000:], labels[2000:])
    after = held_out_scores(sure[:, :2000], labels[:2000], sure[:, 2000:], labels[2000:])
    assert after["temperature"] == pytest.approx(3, rel=0.1)
    assert after["ece_tempered"] < 0.2 * before["ece"]
    assert after["nll_tempered"] < before["nll"]
    assert after["validation_ece"] == pytest.approx(before["ece"], rel=0.2)


def test_corruption_scores_average_over_kinds_and_severities():
    images = image_set(12)

    def predict(found: Images) -> Tensor:
        contrast = found.pixels.float().std((1, 2, 3)) / 100
        probs = torch.stack([1 - contrast, *[contrast / 3] * 3], -1)
        return probs.clamp(0.01, 0.97).unsqueeze(0)

    scores = corruption_scores(predict, images)
    each = [scores[f"{kind}{severity}_nll"] for kind in CORRUPTIONS for severity in SEVERITIES]
    assert scores["corrupted_nll"] == pytest.approx(sum(each) / 15)
    assert len(each) == 15
