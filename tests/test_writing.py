"""Files are written whole or not at all."""

import os

import pytest

from sikagp.writing import replacing, write_whole


def test_text_and_bytes_replace_what_was_there(tmp_path):
    path = tmp_path / "new" / "folder" / "a.txt"
    write_whole(path, "grün")
    assert path.read_text(encoding="utf-8") == "grün"
    write_whole(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert os.listdir(path.parent) == ["a.txt"]


def test_the_target_changes_only_when_the_block_has_ended(tmp_path):
    path = tmp_path / "a.csv.gz"
    write_whole(path, "old")
    with replacing(path) as scratch:
        assert scratch.parent == path.parent
        assert scratch.suffixes[-2:] == [".csv", ".gz"]  # writers look at the ending
        scratch.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def fail() -> None:
        with replacing(path) as scratch:
            scratch.write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_content_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("sync"))
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("rename"), rename(*paths)))
    write_whole(tmp_path / "a.txt", "text")
    assert calls == ["sync", "rename"]
