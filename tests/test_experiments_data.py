"""Formats are read as their publishers write them; the real files have the shapes they should."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import idx, put
from PIL import Image
from scipy.io import savemat

from sikagp.experiments import data
from sikagp.experiments.data import DataError, images, intents, sources
from sikagp.experiments.data.formats import read_idx, read_records
from sikagp.experiments.data.mosaics import read_tiles

SHARED = Path(os.environ.get("SIKAGP_DATA") or Path(__file__).parents[1].parent / "shared" / "data")
real = pytest.mark.skipif(
    not SHARED.is_dir(), reason="set SIKAGP_DATA to a folder with copies of the data"
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty data folder; nothing may come from the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SIKAGP_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def shared(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SIKAGP_DATA", str(SHARED))
    return SHARED


def test_idx_files(folder, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
    labels = np.array([3, 1, 4, 1, 5])
    pair = (put(folder, "m/images.gz", idx(pixels)), put(folder, "m/labels.gz", idx(labels)))
    monkeypatch.setitem(sources.MNIST, "train", pair)
    found = data.mnist("train")
    assert found.labels.tolist() == labels.tolist()
    assert np.array_equal(found.pixels[:, 0].numpy(), pixels)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (idx(np.zeros((2, 2))), "expected an idx file of 3 dimensions"),
        (
            gzip.compress(gzip.decompress(idx(np.zeros((2, 2, 2))))[:-1], mtime=0),
            r"expected 8 bytes .* 7",
        ),
        (b"text", "cannot be decompressed"),
        (idx(np.zeros((2, 2, 2)))[:-9], "cannot be decompressed"),
    ],
)
def test_broken_idx_files(folder, content, problem):
    put(folder, "x.gz", content)
    with pytest.raises(DataError, match=problem):
        read_idx(folder / "x.gz", dimensions=3)


def test_cifar100_in_the_official_form(folder, monkeypatch):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (4, 3074), dtype=np.uint8)
    records[:, 0], records[:, 1] = [1, 2, 3, 4], [10, 20, 30, 99]  # coarse, then fine labels
    member = put(folder, "cifar100/cifar-100-binary/test.bin", records.tobytes())
    monkeypatch.setitem(sources.CIFAR100.members, "cifar-100-binary/test.bin", member)
    found = data.cifar100("test")
    assert (found.num_classes, len(found)) == (100, 4)
    assert found.labels.tolist() == [10, 20, 30, 99]
    # Pixels are stored colour by colour, each colour row by row.
    assert found.pixels[2, 1, 3, 5] == records[2, 2 + 1024 + 3 * 32 + 5]


def test_cifar10_batches_are_joined_in_order(folder, monkeypatch):
    for i in range(1, 6):
        name = f"cifar-10-batches-bin/data_batch_{i}.bin"
        records = np.full((2, 3073), i, np.uint8)
        monkeypatch.setitem(
            sources.CIFAR10.members, name, put(folder, f"cifar10/{name}", records.tobytes())
        )
    assert data.cifar10("train").labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_truncated_records(folder):
    put(folder, "x.bin", bytes(3073 + 5))
    with pytest.raises(DataError, match="records of 3073 bytes, got 3078 bytes"):
        read_records(folder / "x.bin", label_bytes=1)


def test_svhn_in_the_official_form(folder, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    savemat(folder / "x.mat", {"X": pixels, "y": np.array([[10], [1], [9], [10]])})
    source = put(folder, "svhn/test_32x32.mat", (folder / "x.mat").read_bytes())
    monkeypatch.setitem(sources.SVHN, "test", source)
    found = data.svhn("test")
    assert found.labels.tolist() == [0, 1, 9, 0]
    assert found.pixels[3, 2, 7, 8] == pixels[7, 8, 2, 3]


def test_mosaics_of_another_size(folder):
    Image.new("RGB", (64, 64)).save(folder / "x.webp")
    with pytest.raises(DataError, match="expected 3200 pixels squared"):
        read_tiles(folder / "x.webp")


def clinc(train: list[list[str]]) -> bytes:
    rows = {"train": train, "val": [["b?", "beta"]], "test": [["a!", "alpha"], ["b!", "beta"]]}
    outside = {f"oos_{split}": [[f"odd {split}", "oos"]] for split in rows}
    return json.dumps(rows | outside).encode()


def test_clinc150_knows_out_of_scope_by_name(folder, monkeypatch):
    content = clinc([["b", "beta"], ["a", "alpha"]])
    monkeypatch.setitem(sources.CLINC150, "full", put(folder, "c.json", content))
    found = data.clinc150()
    assert found.names == ("alpha", "beta")
    assert found.in_scope["test"].texts == ("a!", "b!")
    assert found.in_scope["train"].labels.tolist() == [1, 0]
    assert found.out_of_scope["validation"].texts == ("odd val",)
    assert found.out_of_scope["test"].labels.tolist() == [-1]


def test_clinc150_with_out_of_scope_among_the_intents(folder, monkeypatch):
    content = clinc([["a", "alpha"], ["b", "beta"], ["x", intents.OUT_OF_SCOPE]])
    monkeypatch.setitem(sources.CLINC150, "full", put(folder, "c.json", content))
    with pytest.raises(DataError, match="'oos' appears among the intents"):
        data.clinc150()


def test_names_are_checked():
    with pytest.raises(ValueError, match="name must be one of 'gas', 'kin40k'"):
        data.uci("boston")
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'"):
        data.mnist("validation")
    with pytest.raises(ValueError, match="version must be one of 'full', 'plus'"):
        data.clinc150("small")


def test_every_source_is_pinned():
    known = [source for pair in sources.UCI.values() for source in pair]
    known += [
        source for pair in (sources.MNIST | sources.FASHION_MNIST).values() for source in pair
    ]
    known += [*sources.SVHN.values(), *sources.CLINC150.values(), *sources.CIFAR_RESNETS.values()]
    known += [sources.CIFAR10.source, sources.CIFAR100.source]
    for source in known:
        assert source.urls, source.path
        assert all(url.startswith(("https://", "http://")) for url in source.urls)
    members = [*sources.CIFAR10.members.values(), *sources.CIFAR100.members.values()]
    for source in [*known, *members]:
        algorithm, _, digest = source.hash.partition(":")
        assert (algorithm, len(digest)) == ("sha256", 64)
        assert source.size > 0


@real
@pytest.mark.parametrize(
    ("name", "shape"), [("gas", (2565, 128)), ("parkinsons", (5875, 20)), ("kin40k", (40000, 8))]
)
def test_uci_tables(shared, name, shape):
    table = data.uci(name)
    assert tuple(table.x.shape) == shape
    assert table.num_splits == 10
    tested = torch.cat([table.split(i)[1] for i in range(10)])
    assert torch.equal(tested.sort().values, torch.arange(shape[0]))
    train, test = table.split(3)
    assert len(train) + len(test) == shape[0]
    assert not set(train.tolist()) & set(test.tolist())
    assert abs(float(table.y.mean())) < 0.05 * float(table.y.std())
    with pytest.raises(ValueError, match="split from 0 to 9, got 10"):
        table.split(10)


@real
def test_real_images(shared):
    digits = data.mnist("test")
    assert digits.labels.bincount().tolist()[:3] == [980, 1135, 1032]
    assert data.fashion_mnist("test").labels.bincount().tolist() == [1000] * 10
    things = data.cifar10("test")  # rebuilt from a mosaic and checked against the official hash
    assert things.labels.bincount().tolist() == [1000] * 10
    assert tuple(things.pixels.shape) == (10000, 3, 32, 32)
    assert data.svhn("test").origin.startswith("first 10000 test digits")


@real
def test_mosaics_must_give_the_official_file(shared, monkeypatch):
    name = "cifar-10-batches-bin/test_batch.bin"
    wrong = replace(sources.CIFAR10.members[name], hash="sha256:" + "0" * 64)
    monkeypatch.setitem(images.CIFAR10.members, name, wrong)
    with pytest.raises(DataError, match="do not give the official cifar10/"):
        data.cifar10("test")


@real
@pytest.mark.parametrize(("version", "extra"), [("full", 100), ("plus", 250)])
def test_real_intents(shared, version, extra):
    found = data.clinc150(version)
    assert len(found.names) == 150
    assert [len(part) for part in found.in_scope.values()] == [15000, 3000, 4500]
    assert [len(part) for part in found.out_of_scope.values()] == [extra, 100, 1000]
    assert found.in_scope["test"].labels.bincount().tolist() == [30] * 150
