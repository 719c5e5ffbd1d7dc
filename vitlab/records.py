"""Long work, kept: one file a seed, written whole or not at all, with what made it.

A record stands in `data/<name>/<scale>/seed-000.npz`: the arrays a measurement returned and, beside them, the
configuration, hardware, versions, wall time and the fingerprint of the code. `data/manifest.json` lists every
committed file with its sha256.
"""

from __future__ import annotations

import datetime
import html
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from vitlab import processes
from vitlab.manifest import combined, enter, entry, manifest, root, sha256

PLUMBING = True  # a change here cannot change a recorded number

_META = "record.json"


class StaleRecord(RuntimeError):
    """The code or the configuration has changed since the numbers were made."""


class MissingRecord(RuntimeError):
    """No numbers are stored, and computing them was not allowed."""


@dataclass(frozen=True)
class Record:
    """What a measurement gave, all seeds together. `record["accuracy"]` is an array with the seeds first."""

    name: str
    scale: str
    seeds: tuple[int, ...]
    values: Mapping[str, np.ndarray]
    meta: tuple[dict[str, Any], ...]
    stale: tuple[str, ...] = field(default=())

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self.values:
            raise KeyError(f"The record {self.name} holds {', '.join(self.values)}, not {key!r}.")
        return self.values[key]

    def keys(self) -> Iterator[str]:
        """Return the names of what was measured."""
        return iter(self.values)

    @property
    def seconds(self) -> float:
        """Wall time of all seeds together, in seconds."""
        return sum(m["seconds"] for m in self.meta)

    @property
    def provenance(self) -> str:
        """One line: scale, seeds, cost, machine, versions, date, code, and whether the numbers are stale."""
        first = self.meta[0]
        machines = dict.fromkeys(m["hardware"] for m in self.meta)
        versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items() if k in ("python", "torch"))
        dates = sorted({m["made"][:10] for m in self.meta})
        code = combined({name: code for m in self.meta for name, code in m["code"].items()})
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''} ({', '.join(map(str, self.seeds))})"
        span = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        line = (
            f"Record {self.name}, scale {self.scale}, {seeds}, {duration(self.seconds)} in all "
            f"on {'; '.join(machines)}, {versions}, {span}, code {code}."
        )
        if self.stale:
            line += f" Stale: {', '.join(self.stale)} changed since; these numbers were made by the older code."
        return line

    def __repr__(self) -> str:
        return self.provenance

    def _repr_html_(self) -> str:
        kind = "vl-provenance vl-stale" if self.stale else "vl-provenance"
        return f'<p class="{kind}"><small>{html.escape(self.provenance)}</small></p>'


def duration(seconds: float) -> str:
    """Return a span of time as a reader says it: `41 s`, `12 min`, `1 h 40 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def seed_file(name: str, scale: str, seed: int) -> Path:
    """Return where one seed of a record stands."""
    if not name or not all(c.isalnum() or c in "_-" for c in name):
        raise ValueError(f"A record's name is letters, digits, - and _, got {name!r}; choose another name.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"A seed is a whole number from 0 to 4294967295, got {seed}; choose another.")
    return root() / name / scale / f"seed-{seed:03d}.npz"


def write(file: Path, values: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write one seed, whole or not at all.

    Raises:
        ValueError: a value is not numeric, not finite, or nothing was measured.
        OSError: the disk is full or read-only; what stood there before still stands.
    """
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"A measurement returns a dict of names to numbers or arrays, got {values!r:.80}.")
    arrays: dict[str, np.ndarray] = {}
    for key, value in values.items():
        if not isinstance(key, str) or key in ("file", "allow_pickle", _META):
            raise ValueError(
                f"What was measured has a name, and not a reserved one, got {key!r}; name it otherwise."
            )
        array = _array(key, value)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"A record holds numbers, {key!r} is {array.dtype}; return arrays or plain numbers.")
        if not np.isfinite(array).all():
            raise ValueError(
                f"{key!r} holds values that are not finite; nothing was recorded, mend the measurement."
            )
        arrays[key] = array
    arrays[_META] = np.asarray(json.dumps(meta, sort_keys=True))
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
        # Unlisted while it is exchanged: a kill here leaves a file that can be read, not one that seems forged.
        enter(file, None)
        os.replace(part, file)
        enter(file, meta)
    except OSError as error:
        raise unwritable(file, error) from error
    finally:
        part.unlink(missing_ok=True)


def unwritable(file: Path, error: OSError, what: str = "record") -> OSError:
    """Return the sentence for a record, or a checkpoint on the way to one, that cannot be written."""
    return OSError(
        f"The {what} {file.name} could not be written to {file.parent} ({error.strerror or error}); "
        "free some space or set VITLAB_RECORDS to a folder that can be written."
    )


def _array(key: str, value: Any) -> np.ndarray:
    """Return a value as an array; tensors come from any device, and half-precision ones numpy lacks as float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{key!r} is ragged, an array has rows of one length; pad it or split it.") from None


def read(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read one seed: its arrays, and what made it.

    Raises:
        ValueError: the file is damaged, or not what the manifest lists.
    """
    listed = manifest().get(entry(file))
    if listed is not None and listed["sha256"] != sha256(file):
        raise ValueError(
            f"The record {entry(file)} is not the file that data/manifest.json lists; "
            "restore it with git, or delete it and record it again."
        )
    return _load(file)


def _load(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read one seed as it stands."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        meta = json.loads(str(arrays.pop(_META)))
        if not isinstance(meta["code"], dict) or not isinstance(meta["config"], dict):
            raise ValueError("no record")
    except Exception as error:  # a damaged archive raises zipfile's, zlib's and numpy's own kinds
        raise _damaged(file) from error
    return arrays, meta


def _damaged(file: Path) -> ValueError:
    return ValueError(f"The record {file} is damaged; delete it and record it again.")


def stack(name: str, scale: str, files: Mapping[int, Path]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Read all seeds and put each quantity's values side by side, seeds first.

    Raises:
        ValueError: two seeds measured different things.
    """
    pairs = [read(file) for file in files.values()]
    keys = list(pairs[0][0])
    for seed, (arrays, _) in zip(files, pairs, strict=True):
        shapes = {key: arrays[key].shape for key in arrays}
        if shapes != {key: pairs[0][0][key].shape for key in keys}:
            raise ValueError(
                f"Seed {seed} of {name} at {scale} measured {shapes}, unlike the first seed; "
                "delete the older one and record it again."
            )
    return {key: np.stack([arrays[key] for arrays, _ in pairs]) for key in keys}, [meta for _, meta in pairs]


def describe(
    seconds: float, code: Mapping[str, str], config: Mapping[str, Any], function: str, chapter: str
) -> dict[str, Any]:
    """Return what made a seed: when, where, with which versions, by which code, in what time."""
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "hardware": hardware(),
        "versions": versions(),
        "code": dict(code),
        "config": dict(config),
        "function": function,
        "chapter": chapter,
    }


def versions() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in ("torch", "numpy", "timm")
    }


def hardware() -> str:
    """Return the machine in words, as a record keeps it."""
    import torch

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    else:
        name = f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} in use"
    return name if processes.world() == 1 else f"{processes.world()} processes on {name}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def update_manifest() -> dict[str, dict[str, Any]]:
    """List every record but those at smoke scale, which are never committed, whatever was listed before.

    Raises:
        ValueError: a record is damaged.
    """
    found = {file: _load(file)[1] for file in sorted(root().glob("*/*/seed-*.npz"))}
    (root() / "manifest.json").unlink(missing_ok=True)
    for file, meta in found.items():
        enter(file, meta)
    return manifest()


def versions_line() -> str:
    """Return the versions a reader needs to report a problem."""
    return f"python {platform.python_version()}, torch {metadata.version('torch')}, {sys.platform}"
