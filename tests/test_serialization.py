"""Saving and loading: equal to the last bit, atomic, and suspicious of every other file."""

import inspect
import json
import os
import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood, LaplaceLikelihood, SoftmaxLikelihood
from helpers import randomize
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from sikagp import GaussMarkov
from sikagp.domains import Domain, RunningDomain
from sikagp.likelihoods import build_likelihood
from sikagp.models import DeepGP, DeepKernel
from sikagp.models.predictor import Predictor


def deep_gp(dtype: torch.dtype = torch.float32, kernel: str = "laplace") -> DeepGP:
    domain = Domain(torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 3.0]))
    model = DeepGP((2, 4, 1), level=(4, 2), kernel=kernel, domain=domain).to(dtype)
    for layer in model.layers:
        randomize(layer)
    return model.eval()


def backbone() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU())


def deep_kernel(**options) -> DeepKernel:
    model = DeepKernel(backbone(), 8, 3, level=3, **options)
    model(torch.randn(32, 2))
    return model.eval()


def same_prediction(one, two, dtype: torch.dtype = torch.float32) -> bool:
    x = torch.randn(20, 2, dtype=dtype)
    return torch.equal(one(x).mean, two(x).mean) and torch.equal(one(x).variance, two(x).variance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ["laplace", "matern32", "matern52"])
def test_deep_gps_come_back_to_the_last_bit(tmp_path, dtype, kernel):
    model = deep_gp(dtype, kernel)
    loaded = DeepGP.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert not loaded.training
    assert same_prediction(model, loaded, dtype)


@pytest.mark.parametrize("normalisation", ["running", "batch", "none"])
def test_deep_kernels_come_back_to_the_last_bit(tmp_path, normalisation):
    model = deep_kernel(embedding=4, normalisation=normalisation, spectral_norm=True)
    folder = model.save_pretrained(tmp_path / "model")
    assert same_prediction(model, DeepKernel.from_pretrained(folder, backbone=backbone()))


LIKELIHOODS = [
    GaussianLikelihood,
    lambda: build_likelihood("gaussian", 3),
    lambda: build_likelihood("student_t", 3),
    lambda: build_likelihood("bernoulli", 3),
    lambda: build_likelihood("logistic", 3),
    lambda: build_likelihood("poisson", 3),
    lambda: build_likelihood("softmax", 3),
    lambda: SoftmaxLikelihood(num_features=3, num_classes=5),
]


@pytest.mark.parametrize("make", LIKELIHOODS)
def test_likelihoods_travel_with_their_model(tmp_path, make):
    likelihood = make()
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.normal_()
    predictor = Predictor(deep_kernel(), likelihood).eval()
    folder = predictor.save_pretrained(tmp_path / "model")
    loaded = Predictor.from_pretrained(folder, backbone=backbone())
    one, two = (p(torch.ones(4, 2)) for p in (predictor, loaded))
    same = "probs" if hasattr(one, "probs") else "variance"
    assert torch.equal(getattr(one, same), getattr(two, same))


def test_predictors_of_other_parts_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="LaplaceLikelihood cannot be saved"):
        Predictor(deep_gp(), LaplaceLikelihood()).save_pretrained(tmp_path / "model")
    nested = Predictor(deep_gp(), GaussianLikelihood())
    with pytest.raises(ValueError, match="Predictor cannot be saved"):
        Predictor(nested, GaussianLikelihood()).save_pretrained(tmp_path / "model")


def test_domains_and_kernels_come_back(tmp_path):
    model = DeepGP((2, 1), level=2, domain=RunningDomain(2, reach=2.0), kernel="brownian")
    model(torch.randn(50, 2))
    loaded = DeepGP.from_pretrained(model.eval().save_pretrained(tmp_path / "model"))
    assert isinstance(loaded.layers[0].domain, RunningDomain)
    assert loaded.layers[0].domain.reach == 2.0
    assert same_prediction(model, loaded)


def test_types_of_numbers_are_kept_tensor_by_tensor(tmp_path):
    model = deep_kernel()
    model.backbone.to(torch.float64)
    model.backbone.register_forward_pre_hook(lambda _, args: args[0].double())
    loaded = DeepKernel.from_pretrained(
        model.save_pretrained(tmp_path / "model"), backbone=backbone()
    )
    assert loaded.backbone[0].weight.dtype == torch.float64
    assert loaded.layer.weight_mean.dtype == torch.float32


def test_tied_weights_are_stored_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(2, 2)
            self.two = nn.Linear(2, 2)
            self.two.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x))

    model = DeepKernel(Tied(), 2, 1, level=2)
    model(torch.randn(9, 2))
    folder = model.eval().save_pretrained(tmp_path / "model")
    assert same_prediction(model, DeepKernel.from_pretrained(folder, backbone=Tied()))


def test_files_hold_no_pickle_and_no_data(tmp_path):
    folder = deep_gp().save_pretrained(tmp_path / "model")
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
    assert os.listdir(tmp_path) == ["model"]
    assert set(load_file(folder / "model.safetensors")) == set(deep_gp().state_dict())


def test_saving_again_replaces_the_model_and_nothing_else(tmp_path):
    first, second = deep_gp(), deep_gp()
    folder = first.save_pretrained(tmp_path / "model")
    (folder / "notes.txt").write_text("mine")
    second.save_pretrained(folder)
    assert same_prediction(second, DeepGP.from_pretrained(folder))
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors", "notes.txt"]


@pytest.mark.parametrize("survived", [0, 1, 2, 3])
def test_a_crash_while_saving_leaves_the_old_or_the_new_model(tmp_path, monkeypatch, survived):
    first, second = deep_gp(), deep_gp()
    folder = first.save_pretrained(tmp_path / "model")
    replace, calls = os.replace, []

    def crash(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) > survived:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        second.save_pretrained(folder)
    assert same_prediction(second if survived == 3 else first, DeepGP.from_pretrained(folder))
    monkeypatch.undo()
    first.save_pretrained(folder)
    assert same_prediction(first, DeepGP.from_pretrained(folder))


def test_a_crash_while_saving_anew_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        deep_gp().save_pretrained(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def edit(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **changes}))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


SPOILED = [
    (lambda folder: cut(folder / "model.safetensors"), r"truncated or was altered: its SHA-256"),
    (lambda folder: flip(folder / "model.safetensors"), r"truncated or was altered: its SHA-256"),
    (lambda folder: cut(folder / "config.json"), r"truncated or not JSON"),
    (lambda folder: (folder / "config.json").write_text("[]"), r"no file of format 'sikagp'"),
    (lambda folder: edit(folder, format="bert"), r"no file of format 'sikagp'"),
    (lambda folder: edit(folder, format_version=2), r"has format version 2.* reads version 1"),
    (lambda folder: edit(folder, config={}), r"its checksum does not match"),
    (lambda folder: (folder / "config.json").unlink(), r"no saved model: it has no config.json"),
    (lambda folder: (folder / "model.safetensors").unlink(), r"it has no model.safetensors"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILED)
def test_spoiled_files_are_refused(tmp_path, spoil, message):
    folder = deep_gp().save_pretrained(tmp_path / "model")
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        DeepGP.from_pretrained(folder)


def test_another_class_and_other_modules_are_refused(tmp_path):
    gp = deep_gp().save_pretrained(tmp_path / "gp")
    kernel = deep_kernel().save_pretrained(tmp_path / "kernel")
    with pytest.raises(ValueError, match=r"holds a DeepGP, .* load it with DeepGP"):
        DeepKernel.from_pretrained(gp, backbone=backbone())
    with pytest.raises(ValueError, match=r"pass it .* backbone=\.\.\."):
        DeepKernel.from_pretrained(kernel)
    with pytest.raises(ValueError, match="saved with another backbone"):
        DeepKernel.from_pretrained(kernel, backbone=nn.Linear(2, 8))
    with pytest.raises(TypeError, match="takes no modules, got backbone"):
        DeepGP.from_pretrained(gp, backbone=backbone())


def test_what_a_file_cannot_name_is_refused(tmp_path):
    own = GaussMarkov(lambda x: x.exp(), lambda x: (-x).exp())
    with pytest.raises(ValueError, match="GaussMarkov cannot be saved"):
        DeepGP((2, 1), level=2, kernel=own).save_pretrained(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_the_hub_gives_back_what_was_pushed(tmp_path, monkeypatch):
    hub = tmp_path / "hub"

    # Fakes that take what the real functions take: a call with other arguments fails.
    real = huggingface_hub.HfApi, huggingface_hub.snapshot_download

    class Api:
        def create_repo(self, *args, **kwargs) -> huggingface_hub.RepoUrl:
            call = inspect.signature(real[0].create_repo).bind(self, *args, **kwargs).arguments
            assert (call["private"], call["exist_ok"]) == (True, True)
            return huggingface_hub.RepoUrl(f"https://huggingface.co/{call['repo_id']}")

        def upload_folder(self, **kwargs) -> None:
            call = inspect.signature(real[0].upload_folder).bind(self, **kwargs).arguments
            assert call["repo_id"] == "me/model"
            shutil.copytree(call["folder_path"], hub)

    def snapshot(*args, **kwargs) -> str:
        call = inspect.signature(real[1]).bind(*args, **kwargs).arguments
        assert (call["repo_id"], call["revision"]) == ("me/model", "v1")
        assert call["allow_patterns"] == ["config.json", "model.safetensors"]
        return str(hub)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    model = deep_gp()
    assert model.push_to_hub("me/model", private=True) == "https://huggingface.co/me/model"
    assert "library_name: sikagp" in (hub / "README.md").read_text()
    assert same_prediction(model, DeepGP.from_pretrained("me/model", revision="v1"))


def test_a_folder_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="neither a folder nor on the hub"):
        DeepGP.from_pretrained("no/such/folder")


def test_a_file_is_no_folder_to_save_to(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(
        NotADirectoryError, match=r"expected a folder to save to, .*model is a file"
    ):
        deep_gp().save_pretrained(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model").read_text() == "mine"


@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_no_altered_byte_changes_a_prediction(saved, place, byte):
    """Every byte of both files: the model is refused, or is the same."""
    folder, model = saved
    for name in ("config.json", "model.safetensors"):
        content = (folder / name).read_bytes()
        index = int(place * len(content))
        altered = content[:index] + bytes([byte]) + content[index + 1 :]
        try:
            (folder / name).write_bytes(altered)
            try:
                loaded = DeepGP.from_pretrained(folder)
            except ValueError:
                assert altered != content
            else:
                assert same_prediction(model, loaded)
        finally:
            (folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[Path, DeepGP]:
    model = deep_gp()
    return model.save_pretrained(tmp_path_factory.mktemp("saved") / "model"), model
