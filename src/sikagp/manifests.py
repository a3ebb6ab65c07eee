"""JSON files that say what they are: format, version, class, and a checksum of themselves.

A truncated, foreign or altered file is refused, with a word on what is wrong with it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from sikagp.writing import write_whole

VERSION = 1


def write_manifest(path: Path, kind: str, owner: object, content: dict[str, Any]) -> None:
    """Write the content, the owner's class and all the rest, as a whole."""
    from sikagp import __version__

    manifest = {
        "format": kind,
        "format_version": VERSION,
        "library_version": __version__,
        "class": type(owner).__name__,
        **content,
    }
    manifest["checksum"] = _checksum(manifest)
    write_whole(path, json.dumps(manifest, indent=2))


def read_manifest(path: Path, kind: str) -> dict[str, Any]:
    """Read what :func:`write_manifest` wrote."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is truncated or not JSON: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise ValueError(f"{path} is no file of format {kind!r}")
    if manifest.get("format_version") != VERSION:
        raise ValueError(
            f"{path} has format version {manifest.get('format_version')}, "
            f"this release reads version {VERSION}"
        )
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise ValueError(f"{path} was altered: its checksum does not match")
    return manifest


def check_class(folder: Path, manifest: dict[str, Any], expected: str) -> None:
    """Refuse what another class has saved."""
    saved = manifest["class"]
    if saved != expected:
        raise ValueError(f"{folder} holds a {saved}, not a {expected}; load it with {saved}")


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
