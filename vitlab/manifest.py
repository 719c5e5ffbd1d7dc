"""The list of committed records: what stands in the folder, with its sha256 and what made it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLUMBING = True  # a change here cannot change a recorded number


def root() -> Path:
    """Return the folder of records: `$VITLAB_RECORDS`, else `data/` beside the package."""
    if chosen := os.environ.get("VITLAB_RECORDS"):
        return Path(chosen)
    return Path(__file__).resolve().parent.parent / "data"


def combined(code: Mapping[str, str]) -> str:
    """Return one short fingerprint for a whole table of them."""
    return hashlib.sha256(json.dumps(dict(sorted(code.items()))).encode()).hexdigest()[:10]


def sha256(file: Path) -> str:
    """Return the sha256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def entry(file: Path) -> str:
    """Return a file's name in the manifest; links inside the folder of records are not followed."""
    return Path(os.path.abspath(file)).relative_to(os.path.abspath(root())).as_posix()


def manifest() -> dict[str, dict[str, Any]]:
    """Return the manifest of the folder of records; empty where there is none.

    Raises:
        ValueError: it is there and cannot be read.
    """
    file = root() / "manifest.json"
    if not file.is_file():
        return {}
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))
        if not all("sha256" in entry for entry in listed.values()):
            raise ValueError("no manifest")
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{file.name} beside the records is damaged; restore it with git or run make manifest."
        ) from error
    return listed


def enter(file: Path, meta: Mapping[str, Any] | None) -> None:
    """Enter one file in the manifest, or take it out; other entries stay as they are."""
    from filelock import FileLock

    if file.parent.name == "smoke":
        return
    with FileLock(root() / "manifest.lock"):
        listed = manifest()
        if meta is None and listed.pop(entry(file), None) is None:
            return
        if meta is not None:
            kept = ("chapter", "function", "made", "seconds", "hardware", "config")
            listed[entry(file)] = {
                "sha256": sha256(file),
                "bytes": file.stat().st_size,
                **{key: meta[key] for key in kept},
                "code": combined(meta["code"]),
            }
        part = root() / f"manifest.{os.getpid()}.part"
        part.write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(part, root() / "manifest.json")
