"""Files from the network: downloads that go on where an earlier one stopped, then are checked.

pooch compares hashes and moves finished files into place; the downloader here adds what it lacks:
the bytes of a broken download are kept beside the target (``.part``), and the next attempt asks
the server for the rest.
"""

import os
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pooch
from tqdm import tqdm

from sikagp.experiments.data.archives import extract
from sikagp.experiments.data.errors import DataError
from sikagp.experiments.data.location import advice, cache_folder, check, find
from sikagp.experiments.data.sources import Archive, Source
from sikagp.experiments.files import locked

ATTEMPTS = 3
TIMEOUT = 30.0
_CHUNK = 1 << 16


class ResumingDownloader:
    """Downloader for pooch with progress on terminals; a wrong size ends it before any transfer."""

    def __init__(self, part: Path, size: int) -> None:
        self.part, self.size = part, size

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        """Complete the partial file and hand it over as ``output_file``."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._append(url)
                break
            except (OSError, HTTPException) as error:
                final = False
                if isinstance(error, urllib.error.HTTPError):
                    error.close()  # it is the server's answer, too
                    final = error.code < 500
                if final or attempt == ATTEMPTS:
                    raise
        os.replace(self.part, output_file)

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _append(self, url: str) -> None:
        """Add the missing bytes, or start over where the server does not send a part."""
        if self._have() > self.size:
            self.part.unlink()
        if (have := self._have()) == self.size:
            return
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            have = have if answer.status == 206 else 0
            length = answer.headers["Content-Length"]
            if length is not None and have + int(length) != self.size:
                raise DataError(
                    f"{url} has {have + int(length)} bytes instead of the expected {self.size}"
                )
            self._receive(answer, have)
        if (have := self._have()) != self.size:
            raise OSError(f"{url}: received {have} of {self.size} bytes")

    def _receive(self, answer: Any, have: int) -> None:
        with (
            self.part.open("ab" if have else "wb") as file,
            # disable=None: a bar on terminals, none in logs
            tqdm(total=self.size, initial=have, unit="B", unit_scale=True, disable=None) as bar,
        ):
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))


def obtain(source: Source) -> Path:
    """Return the checked path of a file, downloading it if no data folder has it."""
    path = find(source.path)
    return check(source, path) if path else _download(source)


def obtain_member(archive: Archive, name: str) -> Path:
    """Return the checked path of an archive's member, extracting or downloading if need be."""
    member = archive.members[name]
    path = find(member.path)
    if path:
        return check(member, path)
    packed = obtain(archive.source)
    folder = cache_folder() / Path(archive.source.path).parent
    with locked(folder / ".extraction.lock"):
        extract(packed, folder, {name: source.size for name, source in archive.members.items()})
    return check(member, cache_folder() / member.path)


def _download(source: Source) -> Path:
    target = cache_folder() / source.path
    part = target.with_name(f"{target.name}.part")
    problems = []
    with locked(target.with_name(f".{target.name}.lock")):
        if target.is_file():  # another process was faster
            return check(source, target)
        for url in source.urls:
            try:
                pooch.retrieve(
                    url,
                    source.hash,
                    fname=target.name,
                    path=target.parent,
                    downloader=ResumingDownloader(part, source.size),
                )
                return target
            except (DataError, ValueError, OSError, HTTPException) as error:
                problems.append(f"{url}: {error}")
    listed = "\n  ".join(problems)
    raise DataError(f"{source.path} could not be downloaded:\n  {listed}\nTo do: {advice(source)}")
