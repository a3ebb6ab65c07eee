"""Deep kernels: normalisation, trends, freezing, spectral norms."""

import pytest
import torch
from helpers import assert_close
from torch import nn

from sikagp import TrainingConfig, fit
from sikagp.likelihoods import build_likelihood
from sikagp.models import DeepKernel
from sikagp.models.deep_kernel import BatchStandardisation


class Convolutions(nn.Module):
    """A backbone with blocks, batch normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3)
        self.blocks = nn.Sequential(
            nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Dropout(0.5),
        )
        self.head = nn.Linear(4, 6)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(image)).mean((-2, -1)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 6))


@pytest.mark.parametrize("normalisation", ["running", "batch", "none"])
def test_features_go_through_embedding_and_normalisation(normalisation):
    model = DeepKernel(mlp(), 6, 2, embedding=4, level=3, normalisation=normalisation)
    for _ in range(200):
        model(torch.randn(64, 3))
    model.eval()
    raw = model.embedding(model.backbone(torch.randn(4096, 3)))
    features = model.standardise(raw)
    if normalisation == "none":
        assert torch.equal(features, raw)
    else:
        assert features.mean(0).abs().max() < 0.1
        assert (features.std(0) - 1).abs().max() < 0.1
    x = torch.randn(5, 3)
    expected = model.layer(model.standardise(model.embedding(model.backbone(x))))
    assert_close(model(x).mean, expected.mean)
    assert_close(model(x).variance, expected.variance)


def test_a_trend_is_linear_in_the_features_and_saved(tmp_path):
    model = DeepKernel(mlp(), 6, 2, embedding=4, level=3, trend=True).eval()
    x = torch.randn(5, 3)
    assert_close(model(x).mean, model.layer(model.features(x)).mean)  # it starts at zero
    weight = torch.tensor([[1.0, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 0.0]])
    with torch.no_grad():
        model.trend.weight.copy_(weight)
    alone = model.layer(model.features(x))
    assert_close(model(x).mean, alone.mean + model.features(x) @ weight.mT)
    assert_close(model(x).variance, alone.variance)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).mean.dtype == torch.float32
    model.save_pretrained(tmp_path)
    again = DeepKernel.from_pretrained(tmp_path, backbone=mlp())
    assert torch.equal(again(x).mean, model(x).mean)


def test_a_given_layer_is_added_to_and_never_changed(tmp_path):
    backbone, last = mlp(), nn.Linear(6, 2)
    model = DeepKernel(backbone, 6, 2, embedding=4, level=3, trend=last)
    x, y = torch.randn(64, 3), torch.randint(2, (64,))
    logits = last(backbone(x)).detach()
    model.set_trainable("none")
    config = TrainingConfig(epochs=3, batch_size=16, learning_rate=0.1, weight_decay=1.0)
    bars = {"enable_progress_bar": False}
    fit(model, build_likelihood("softmax", 2), (x, y), config, trainer_options=bars)
    alone = model.layer(model.features(x))
    assert alone.mean.abs().max() > 0.1  # the layer has learned something
    assert_close(model(x).mean, alone.mean + logits, dtype=torch.float32)
    assert_close(model(x).variance, alone.variance, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).mean.dtype == torch.float32
    model.save_pretrained(tmp_path)
    again = DeepKernel.from_pretrained(tmp_path, backbone=mlp())
    assert torch.equal(again(x).mean, model(x).mean)
    with torch.no_grad():
        last.weight.zero_()  # the model has a copy
    assert torch.equal(again(x).mean, model(x).mean)


def test_a_given_layer_may_lack_a_bias_and_must_fit():
    last = nn.Linear(6, 2, bias=False)
    model = DeepKernel(nn.Identity(), 6, 2, level=3, trend=last).eval()
    x = torch.randn(5, 6)
    assert_close(model(x).mean - model.layer(model.features(x)).mean, last(x), dtype=torch.float32)
    with pytest.raises(
        ValueError, match="from 6 features of the backbone to 2 outputs, got a layer from 4 to 2"
    ):
        DeepKernel(mlp(), 6, 2, embedding=4, level=3, trend=nn.Linear(4, 2))
    with pytest.raises(ValueError, match="outputs, got a layer from 6 to 3"):
        DeepKernel(mlp(), 6, 2, level=3, trend=nn.Linear(6, 3))


def test_a_trend_is_a_choice_or_a_linear_layer(as_users_run):
    with pytest.raises(TypeError, match="True, False or a linear layer, got Sequential"):
        DeepKernel(mlp(), 6, 2, level=3, trend=nn.Sequential(nn.Linear(6, 2)))


def test_mixed_precision_ends_with_the_backbone():
    model = DeepKernel(mlp(), 6, 2, embedding=4, level=3).eval()
    x = torch.randn(5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = model.backbone(x)
        features = model.features(x)
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(features, model.standardise(model.embedding(narrow.float())))


def test_batches_are_standardised_whatever_their_shape():
    module = BatchStandardisation(3)
    x = 5 + 2 * torch.randn(4, 25, 3)
    assert_close(module(x).flatten(0, 1).mean(0), torch.zeros(3))
    running = module.running_mean.clone()
    single = module(x[0, :1])  # one row has no deviation: as in evaluation, and nothing is learned
    assert_close(module.running_mean, running)
    assert_close(single, module.eval()(x[0, :1]))


@pytest.mark.parametrize("normalisation", ["running", "batch"])
def test_predictions_ignore_the_other_rows(normalisation):
    model = DeepKernel(mlp(), 6, 2, level=3, normalisation=normalisation)
    model(3 + torch.randn(64, 3))
    model.eval()
    x = torch.randn(6, 3)
    assert_close(model(x[2:3]).mean, model(x).mean[2:3])
    assert_close(model(100 * x).variance[:1], model(100 * x[:1]).variance)


def test_scale_of_features_does_not_matter():
    torch.manual_seed(0)
    plain = DeepKernel(nn.Identity(), 3, 2, level=4, normalisation="running")
    torch.manual_seed(0)
    small = DeepKernel(nn.Linear(3, 3, bias=False), 3, 2, level=4, normalisation="running")
    small.layer.load_state_dict(plain.layer.state_dict())
    with torch.no_grad():
        small.backbone.weight.copy_(1e-4 * torch.eye(3))
    x = torch.randn(256, 3)
    plain(x), small(x)
    assert_close(plain.eval()(x).mean, small.eval()(x).mean, dtype=torch.float32)


def test_divergence_is_the_layer_s():
    model = DeepKernel(mlp(), 6, 2, level=3)
    assert_close(model.kl_divergence(), model.layer.kl_divergence())
    assert model.out_features == 2


def trained(model: DeepKernel) -> set[str]:
    parameters = model.backbone.named_parameters()
    return {name.split(".")[0] for name, p in parameters if p.requires_grad}


def test_parts_of_the_backbone_can_be_frozen():
    model = DeepKernel(Convolutions(), 6, 2, level=2)
    assert trained(model) == {"stem", "blocks", "head"}
    model.set_trainable("none")
    assert trained(model) == set()
    assert all(p.requires_grad for p in model.layer.parameters())
    model.set_trainable(1)
    assert trained(model) == {"head"}
    model.set_trainable(["stem", "blocks.0"])
    assert trained(model) == {"stem", "blocks"}
    model.set_trainable("all")
    assert trained(model) == {"stem", "blocks", "head"}


def test_frozen_modules_stay_in_evaluation_mode():
    model = DeepKernel(Convolutions(), 6, 2, level=2)
    model.set_trainable(["head"])
    model.train()
    before = {name: value.clone() for name, value in model.backbone.named_buffers()}
    image = torch.randn(8, 1, 9, 9)
    assert torch.equal(model.backbone(image), model.backbone(image))
    assert all(torch.equal(before[name], b) for name, b in model.backbone.named_buffers())
    assert model.layer.training
    assert model.backbone.head.training
    model.set_trainable("all")
    assert not torch.equal(model.backbone(image), model.backbone(image))


def test_spectral_norms_are_one():
    model = DeepKernel(Convolutions(), 6, 2, embedding=4, level=2, spectral_norm=True)
    for _ in range(200):
        model(torch.randn(4, 1, 9, 9))
    model.eval()
    weights = [model.backbone.stem.weight, model.backbone.head.weight, model.embedding.weight]
    for weight in weights:
        norm = torch.linalg.matrix_norm(weight.detach().flatten(1), 2)
        assert abs(float(norm) - 1) < 0.02


def test_keyword_arguments_reach_the_backbone():
    class Tokens(nn.Module):
        def forward(self, ids: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
            return (ids * mask).float()

    model = DeepKernel(Tokens(), 3, 1, level=2).eval()
    ids = torch.tensor([[1, 2, 3]])
    masked = model(ids=ids, mask=torch.tensor([[1, 1, 0]])).mean
    assert_close(masked, model(torch.tensor([[1, 2, 0]]), mask=torch.ones(1, 3)).mean)


def test_bad_arguments_are_refused(as_users_run):
    with pytest.raises(ValueError, match=r"shape \(\*batch, 5\), got \(4, 6\)"):
        DeepKernel(mlp(), 5, 2)(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="'batch', 'running', 'none', got 'layer'"):
        DeepKernel(mlp(), 6, 2, normalisation="layer")
    model = DeepKernel(mlp(), 6, 2)
    with pytest.raises(ValueError, match="3 blocks, cannot train 4"):
        model.set_trainable(4)
    with pytest.raises(ValueError, match="got 'some'"):
        model.set_trainable("some")
