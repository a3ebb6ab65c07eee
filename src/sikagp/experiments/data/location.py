"""Where data lie: the folder named by SIKAGP_DATA, then the user's cache."""

import os
from pathlib import Path

import pooch

from sikagp.experiments.data.errors import DataError
from sikagp.experiments.data.sources import Source

VARIABLE = "SIKAGP_DATA"


def cache_folder() -> Path:
    """Folder of the user's cache; downloads go there."""
    return Path(pooch.os_cache("sikagp"))


def data_folders() -> list[Path]:
    """Folders in the order in which they are searched."""
    named = os.environ.get(VARIABLE)
    if not named:
        return [cache_folder()]
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"{VARIABLE} is set to {named}, which is not a folder; correct or unset it")
    return [folder, cache_folder()]


def find(path: str) -> Path | None:
    """First folder's file with that relative path, if any has one; its content is not checked."""
    return next((at for folder in data_folders() if (at := folder / path).is_file()), None)


def check(source: Source, path: Path) -> Path:
    """Return the path of a file whose size and hash are right."""
    size = path.stat().st_size
    if size != source.size:
        problem = f"it has {size} bytes instead of {source.size}"
    elif not pooch.hashes.hash_matches(str(path), source.hash):
        problem = f"its content does not match {source.hash}"
    else:
        return path
    raise DataError(f"{path} is broken: {problem}.\nDelete it, then: {advice(source)}")


def advice(source: Source) -> str:
    """Say how to get a file by hand."""
    address = source.urls[0] if source.urls else "its archive"
    return (
        f"get {address} and save it as {cache_folder() / source.path}, "
        f"or set {VARIABLE} to a folder that holds {source.path}."
    )
