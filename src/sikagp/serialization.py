"""Saving and loading models: ``config.json`` and ``model.safetensors`` in one folder, no pickle.

The configuration names the format, the class and its arguments, the SHA-256 of the weights, and a
checksum of itself, so that a truncated, foreign or altered file is refused. Overwriting is safe at
every moment: a new configuration waits as ``config.json.pending`` until the weights it belongs to
are in place, and loading takes whichever configuration fits the weights.
"""

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from sikagp.domains import Domain, NodeDomain, RunningDomain
from sikagp.kernels import KERNELS, MarkovKernel
from sikagp.manifests import check_class, read_manifest, write_manifest

Model = TypeVar("Model", bound="Pretrained")

FORMAT = "sikagp"
CONFIG, PENDING, WEIGHTS = "config.json", "config.json.pending", "model.safetensors"


class Pretrained(nn.Module, ABC):
    """A module that can be saved to a folder and loaded again; predictions match to the last bit.

    Subclasses say what to save: :meth:`get_config` returns JSON values from which, together with
    the modules that only the caller can supply, :meth:`from_config` builds the same architecture.
    """

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Return the architecture as JSON values."""

    @classmethod
    @abstractmethod
    def from_config(cls: type[Model], config: dict[str, Any], **modules: nn.Module) -> Model:
        """Build the architecture with fresh weights."""

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model to a folder, atomically; files of other names there are left alone."""
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"expected a folder to save to, {folder} is a file")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            fresh = Path(scratch) / "model"
            fresh.mkdir()
            _write_weights(self, fresh / WEIGHTS)
            _write_config(self, fresh)
            if folder.exists():
                os.replace(fresh / CONFIG, folder / PENDING)
                os.replace(fresh / WEIGHTS, folder / WEIGHTS)
                os.replace(folder / PENDING, folder / CONFIG)
            else:
                os.rename(fresh, folder)
        return folder

    @classmethod
    def from_pretrained(
        cls: type[Model],
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        **modules: nn.Module,
    ) -> Model:
        """Load a model, in evaluation mode, from a folder or from a repository of the hub.

        Modules that the file cannot describe, such as the backbone of a deep kernel, are passed
        by name; their weights are loaded too.
        """
        folder = Path(source)
        if not folder.is_dir():
            from sikagp.integrations.hub import download

            folder = download(os.fspath(source), revision=revision)
        content = _read_config(folder, cls.__name__)
        model = cls.from_config(content["config"], **modules)
        _read_weights(model, folder / WEIGHTS)
        return model.eval()

    def push_to_hub(self, repo_id: str, *, private: bool = False) -> str:
        """Upload the model to a repository of the Hugging Face hub and return its address."""
        from sikagp.integrations.hub import upload

        with tempfile.TemporaryDirectory() as scratch:
            return upload(self.save_pretrained(Path(scratch) / "model"), repo_id, private=private)


def _write_weights(model: nn.Module, path: Path) -> None:
    from safetensors.torch import save_model

    save_model(model, str(path))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _write_config(model: Pretrained, folder: Path) -> None:
    content = {"config": model.get_config(), "weights_sha256": _sha256(folder / WEIGHTS)}
    write_manifest(folder / CONFIG, FORMAT, model, content)


def _read_config(folder: Path, class_name: str) -> dict[str, Any]:
    """Return the configuration that fits the weights in a folder, or say what is wrong."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} is no saved model: it has no {name}")
    weights = _sha256(folder / WEIGHTS)
    content = read_manifest(folder / CONFIG, FORMAT)
    if content["weights_sha256"] != weights and (folder / PENDING).is_file():
        content = read_manifest(folder / PENDING, FORMAT)
    if content["weights_sha256"] != weights:
        raise ValueError(
            f"{folder / WEIGHTS} is truncated or was altered: its SHA-256 is {weights[:12]}..., "
            f"the configuration says {content['weights_sha256'][:12]}..."
        )
    check_class(folder, content, class_name)
    return content


def _read_weights(model: nn.Module, path: Path) -> None:
    from safetensors.torch import load_file, load_model

    stored = load_file(path)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in stored:
            tensor.data = tensor.data.to(stored[name].dtype)
    try:
        load_model(model, path)
    except RuntimeError as error:
        raise ValueError(
            f"the weights in {path} do not fit the model; was it saved with another backbone or "
            f"with other options? {error}"
        ) from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_kernel(kernel: MarkovKernel) -> str:
    """Name of a kernel, if it is one of the built-in ones."""
    for name, factory in KERNELS.items():
        if factory is type(kernel):
            return name
    raise ValueError(
        f"a model with the kernel {type(kernel).__name__} cannot be saved: only "
        f"{', '.join(map(repr, KERNELS))} can be named in a file"
    )


def encode_domain(domain: Domain) -> dict[str, Any]:
    """Kind and size of a domain; its bounds are buffers and stand with the weights."""
    num_features = len(domain.low) if domain.low.ndim else None
    if type(domain) is Domain:
        return {"type": "Domain", "num_features": num_features}
    if type(domain) is RunningDomain:
        options = {"reach": domain.reach, "momentum": domain.momentum}
        return {"type": "RunningDomain", "num_features": num_features, **options}
    if type(domain) is NodeDomain:
        num_nodes = domain.positions.shape[-1]
        return {"type": "NodeDomain", "num_features": num_features, "num_nodes": num_nodes}
    raise ValueError(f"a model with the domain {type(domain).__name__} cannot be saved")


def decode_domain(content: dict[str, Any]) -> Domain:
    """Build a domain with placeholder bounds."""
    options = dict(content)
    kind = options.pop("type")
    if kind == "RunningDomain":
        return RunningDomain(**options)
    shape = () if options["num_features"] is None else (options["num_features"],)
    if kind == "NodeDomain":
        return NodeDomain(torch.linspace(0, 1, options["num_nodes"]).expand(*shape, -1))
    return Domain(torch.zeros(shape), torch.ones(shape))
