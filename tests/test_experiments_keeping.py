"""Tensors on disk: computed once, never half, and one name for each description."""

import pytest
import torch

from sikagp.experiments import keeping
from sikagp.experiments.keeping import hash_tensors, keep


class Counting:
    """Makes tensors and counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"values": torch.full((2, 3), float(self.calls))}


def test_tensors_are_computed_once_for_each_description(tmp_path):
    compute = Counting()
    first = keep(tmp_path, ["a", 1], compute)
    assert keep(tmp_path, ["a", 1], compute)["values"].equal(first["values"])
    assert compute.calls == 1
    assert keep(tmp_path, ["a", 2], compute)["values"].equal(torch.full((2, 3), 2.0))
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_a_killed_run_leaves_no_half_file(tmp_path, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keeping, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(tmp_path, "rows", Counting())
    assert not list(tmp_path.glob("*.safetensors"))
    assert keep(tmp_path, "rows", Counting())["values"].shape == (2, 3)


def test_hashes_tell_contents_shapes_and_types_apart():
    x = torch.arange(6.0)
    several = [[x], [x + 1], [x.view(2, 3)], [x.view(3, 2)], [x.int()], [x, x], []]
    assert len({hash_tensors(tensors) for tensors in several}) == len(several)
    assert hash_tensors([x.view(2, 3).mT]) == hash_tensors([x.view(2, 3).mT.contiguous()])
