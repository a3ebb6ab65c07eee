"""Downloads resume, are checked, and say what to do; archives are not trusted."""

import hashlib
import io
import tarfile
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import FileServer, serving

from sikagp.experiments.data import Archive, DataError, Source, obtain, retrieval
from sikagp.experiments.data.archives import extract
from sikagp.experiments.data.retrieval import obtain_member

CONTENT = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SIKAGP_DATA", raising=False)
    return tmp_path / "cache" / "sikagp"


@pytest.fixture
def server():
    with serving() as running:
        running.files["/set/values.bin"] = CONTENT
        yield running


def source_at(server: FileServer, content: bytes = CONTENT, path: str = "set/values.bin") -> Source:
    digest = hashlib.sha256(content).hexdigest()
    return Source(path, (f"{server.address}/{path}",), f"sha256:{digest}", len(content))


def test_a_file_is_downloaded_once(server, cache):
    path = obtain(source_at(server))
    assert path == cache / "set/values.bin"
    assert path.read_bytes() == CONTENT
    assert obtain(source_at(server)) == path
    assert len(server.asked) == 1


def test_broken_connections_are_resumed(server):
    server.breaks["/set/values.bin"] = [70_000, 50_000]
    assert obtain(source_at(server)).read_bytes() == CONTENT
    starts = [wanted for _, wanted in server.asked]
    assert starts == ["bytes=0-", "bytes=70000-", "bytes=120000-"]


def test_a_later_run_goes_on_with_the_part(server, cache):
    server.breaks["/set/values.bin"] = [1000, 1000, 1000]
    with pytest.raises(DataError, match="received 3000 of 256000 bytes"):
        obtain(source_at(server))
    part = cache / "set/values.bin.part"
    assert part.read_bytes() == CONTENT[:3000]
    assert obtain(source_at(server)).read_bytes() == CONTENT
    assert server.asked[-1][1] == "bytes=3000-"
    assert not part.exists()


def test_servers_without_ranges_start_over(server):
    server.ranges = False
    server.breaks["/set/values.bin"] = [70_000]
    assert obtain(source_at(server)).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused(server, cache):
    wrong = replace(source_at(server), hash="sha256:" + "0" * 64)
    with pytest.raises(DataError, match="does not match the known hash") as error:
        obtain(wrong)
    for hint in (wrong.urls[0], str(cache / "set/values.bin"), "SIKAGP_DATA"):
        assert hint in str(error.value)
    left = [path.name for path in (cache / "set").iterdir() if not path.name.endswith(".lock")]
    assert left == []


def test_a_wrong_size_is_refused_before_the_transfer(server, cache):
    with pytest.raises(DataError, match="256000 bytes instead of the expected 255999"):
        obtain(replace(source_at(server), size=255_999))
    assert not (cache / "set/values.bin.part").exists()


def test_mirrors_are_tried_in_turn(server):
    source = source_at(server)
    source = replace(source, urls=(f"{server.address}/gone", *source.urls))
    assert obtain(source).read_bytes() == CONTENT
    assert [path for path, _ in server.asked] == ["/gone", "/set/values.bin"]


def test_an_absent_server_is_told_apart(server, monkeypatch):
    def unreachable(*_, **__):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(retrieval.urllib.request, "urlopen", unreachable)
    with pytest.raises(DataError, match=r"(?s)no route.*To do: get http"):
        obtain(source_at(server))


def test_the_named_folder_comes_first(server, tmp_path, monkeypatch):
    cached = obtain(source_at(server))
    monkeypatch.setenv("SIKAGP_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match="not a folder"):
        obtain(source_at(server))
    (tmp_path / "mine/set").mkdir(parents=True)
    assert obtain(source_at(server)) == cached
    (tmp_path / "mine/set/values.bin").write_bytes(CONTENT)
    assert obtain(source_at(server)) == tmp_path / "mine/set/values.bin"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [(CONTENT[:-1], "255999 bytes instead of 256000"), (CONTENT[::-1], "does not match sha256:")],
)
def test_broken_local_files_are_named(server, tmp_path, monkeypatch, content, problem):
    monkeypatch.setenv("SIKAGP_DATA", str(tmp_path))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/values.bin").write_bytes(content)
    with pytest.raises(DataError, match=f"is broken: .*{problem}") as error:
        obtain(source_at(server))
    assert "Delete it" in str(error.value)


def packed(members: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    """A gzipped tar archive of files, and of whatever else."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in others:
            archive.addfile(info)
    return buffer.getvalue()


def test_members_are_extracted_from_a_downloaded_archive(server, cache):
    server.files["/a/a.tar.gz"] = content = packed({"inner/x.bin": b"xyz", "inner/notes": b"?"})
    member = Source("a/inner/x.bin", (), f"sha256:{hashlib.sha256(b'xyz').hexdigest()}", 3)
    archive = Archive(source_at(server, content, "a/a.tar.gz"), {"inner/x.bin": member})
    for _ in range(2):
        assert obtain_member(archive, "inner/x.bin").read_bytes() == b"xyz"
    assert len(server.asked) == 1
    assert not (cache / "a/inner/notes").exists()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "evil",
    [
        special("/etc/passwd", tarfile.REGTYPE),
        special("../escaped", tarfile.REGTYPE),
        special("good/../../escaped", tarfile.DIRTYPE),
        special("..\\escaped", tarfile.REGTYPE),
        special("link", tarfile.SYMTYPE, "/etc"),
        special("link", tarfile.LNKTYPE, "good/x.bin"),
        special("device", tarfile.CHRTYPE),
        special("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.type.decode()}",
)
def test_malicious_archives_are_refused_whole(tmp_path, evil):
    archive = tmp_path / "evil.tar.gz"
    archive.write_bytes(packed({"good/x.bin": b"xyz"}, evil))
    with pytest.raises(DataError, match="refused"):
        extract(archive, tmp_path / "out", {"good/x.bin": 3})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tar.gz"]


def test_members_of_another_size_are_refused(tmp_path):
    archive = tmp_path / "large.tar.gz"
    archive.write_bytes(packed({"x.bin": bytes(10_000)}))
    with pytest.raises(DataError, match=r"expected x\.bin of 3 bytes, got 10000 bytes"):
        extract(archive, tmp_path / "out", {"x.bin": 3})
    with pytest.raises(DataError, match=r"expected y\.bin of 3 bytes, got nothing"):
        extract(archive, tmp_path / "out", {"y.bin": 3})


def test_archives_that_are_none(tmp_path):
    archive = tmp_path / "text.tar.gz"
    archive.write_text("no archive")
    with pytest.raises(DataError, match="cannot be read"):
        extract(archive, tmp_path / "out", {"x.bin": 3})
