"""Extraction of tar archives that trusts nothing in them."""

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sikagp.experiments.data.errors import DataError


def extract(archive: Path, folder: Path, sizes: Mapping[str, int]) -> None:
    """Write the named members, each of the given size, into a folder.

    The whole archive is refused if any member, wanted or not, is a link or a device, or would
    land outside the folder; so is a wanted member of another size. Nothing is written then.
    """
    try:
        with tarfile.open(archive) as file:
            members = {member.name: _checked(archive, member) for member in file.getmembers()}
            for name, size in sizes.items():
                if name not in members or members[name].size != size:
                    found = f"{members[name].size} bytes" if name in members else "nothing"
                    raise DataError(f"{archive}: expected {name} of {size} bytes, got {found}")
            for name in sizes:
                _write(file, members[name], folder / name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{archive} cannot be read: {error}; delete it and try again") from error


def _checked(archive: Path, member: tarfile.TarInfo) -> tarfile.TarInfo:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise DataError(f"{archive}: refused, {member.name!r} lies outside the folder")
    if not (member.isfile() or member.isdir()):
        raise DataError(f"{archive}: refused, {member.name!r} is neither a file nor a folder")
    return member


def _write(file: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = file.extractfile(member)
    if content is None:
        raise DataError(f"{member.name!r} is not a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.part")
    with content, scratch.open("wb") as out:
        shutil.copyfileobj(content, out)
    scratch.replace(target)
