"""How a record is computed: seed by seed, under a lock, with the checkpoints of what is in progress.

While seed 0 is measured, its pieces keep their checkpoints in `data/<name>/<scale>/seed-000.parts/<key>/`. The key
stands for the code, the configuration and the versions, so that a half-finished training is never continued by
other code than began it. When the seed is written its parts are deleted.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab import lab, records
from vitlab.manifest import combined

PLUMBING = True  # a change here cannot change a recorded number

_SITTING = "sitting.json"


@dataclass(frozen=True)
class Made:
    """What makes a seed: the fingerprint of the code, the configuration, the function and its chapter."""

    code: Mapping[str, str]
    config: Mapping[str, Any]
    function: str
    chapter: str

    @property
    def key(self) -> str:
        """A name for this state of code, configuration and versions; it begins with the code's fingerprint."""
        rest = json.dumps([self.config, records.versions()], sort_keys=True)
        return f"{combined(self.code)}-{hashlib.sha256(rest.encode()).hexdigest()[:10]}"


class Sitting:
    """One stretch of work on one seed; several make it where a run was stopped and went on from checkpoints."""

    def __init__(self, file: Path, key: str) -> None:
        self.parts = file.with_suffix(".parts")
        self.folder = self.parts / key
        self.began = time.time()
        self.before = 0.0  # seconds that earlier sittings put into the checkpoints there are
        self.hardware: tuple[str, ...] = ()
        self.noted = False

    def open(self) -> None:
        """Delete what other code left, and rests of a write that was killed; count what earlier sittings took."""
        for other in self.parts.glob("*"):
            if other != self.folder:
                shutil.rmtree(other) if other.is_dir() else other.unlink()
        for rest in self.parts.parent.glob(f"{self.parts.stem}.*.part"):
            rest.unlink()
        saved = [file.stat().st_mtime for file in self.folder.glob("*.safetensors")]
        if saved and (self.folder / _SITTING).is_file():
            last = json.loads((self.folder / _SITTING).read_text(encoding="utf-8"))
            self.before = last["before"] + max(0.0, max(saved) - last["began"])
            self.hardware = tuple(last["hardware"])

    def checkpoint(self, name: str) -> Path:
        """Return where a piece keeps its checkpoint; its folder is there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self.noted:
                machines = dict.fromkeys((*self.hardware, records.hardware()))
                note = {"before": self.before, "began": self.began, "hardware": list(machines)}
                part = self.folder / f"{_SITTING}.part"
                part.write_text(json.dumps(note), encoding="utf-8")
                os.replace(part, self.folder / _SITTING)
                self.noted = True
        except OSError as error:
            raise records.unwritable(self.folder / name, error, "checkpoint") from error
        return self.folder / f"{name}.safetensors"

    def close(self) -> None:
        """Delete the checkpoints: the seed is recorded."""
        if self.parts.exists():
            shutil.rmtree(self.parts)


_running: Sitting | None = None


def checkpoint(name: str) -> Path | None:
    """Return where a piece of the measurement in progress keeps its checkpoint, see `lab.checkpoint`."""
    if not re.fullmatch(r"[\w-][\w.-]*", name, re.ASCII):
        raise ValueError(f"A checkpoint's name is letters, digits, -, _ and ., got {name!r}; choose another name.")
    return _running.checkpoint(name) if _running else None


def stale(files: Iterable[Path], code: Mapping[str, str], frozen: Mapping[str, Any]) -> list[str]:
    """Return the names of what changed since any of these seeds was made."""
    from vitlab import digest

    names: dict[str, None] = {}
    for file in files:
        if file.exists():
            meta = records.read(file)[1]
            names.update(dict.fromkeys(digest.changed(meta["code"], dict(code))))
            both = frozen.keys() | meta["config"].keys()
            pairs = ((key, meta["config"].get(key, ...), frozen.get(key, ...)) for key in sorted(both))
            names.update(dict.fromkeys(key for key, old, new in pairs if old != new))
    return list(names)


def compute(
    name: str,
    measure: Callable[..., Mapping[str, Any]],
    files: Mapping[int, Path],
    config: Mapping[str, Any],
    made: Made,
) -> None:
    """Compute these seeds, keeping each at once; a seed that another process holds is left to it.

    Raises:
        OutOfTime: the time is up; no further seed is begun.
    """
    from filelock import FileLock, Timeout
    from tqdm.auto import tqdm

    waiting = list(files)
    patience = 0.0  # seconds to wait for a lock: none while other seeds are free
    with tqdm(total=len(files), desc=f"{name} ({lab.scale()})", unit="seed") as bar:
        while waiting:
            if lab.time_is_up():
                raise lab.OutOfTime(f"The time is up; {bar.n} of {len(files)} seeds of {name} are kept.")
            seed = waiting.pop(0)
            file = files[seed]
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                lock = FileLock(file.with_suffix(".lock"), timeout=patience)
                lock.acquire()
            except Timeout:
                waiting.append(seed)
                patience = 1.0
                continue
            except OSError as error:
                raise records.unwritable(file, error) from error
            try:
                # Another process may have made it meanwhile, from the same code and configuration.
                if not file.exists() or stale([file], made.code, made.config):
                    _measure(measure, seed, file, config, made)
                bar.update()
            except KeyboardInterrupt:
                kept = f"{bar.n} of {len(files)} seeds are kept"
                print(f"Interrupted: {kept}; run this again to go on.", file=sys.stderr)
                raise
            finally:
                lock.release()


def _measure(
    measure: Callable[..., Mapping[str, Any]], seed: int, file: Path, config: Mapping[str, Any], made: Made
) -> None:
    """Measure one seed and write it."""
    global _running
    outer, sitting = _running, Sitting(file, made.key)
    try:
        sitting.open()
    except OSError as error:
        raise records.unwritable(sitting.folder, error, "checkpoint folder") from error
    lab.seed_everything(seed)
    _running, begun = sitting, time.perf_counter()
    try:
        values = measure(seed, **copy.deepcopy(dict(config)))
    finally:
        _running = outer
    spent = sitting.before + time.perf_counter() - begun
    meta = records.describe(spent, made.code, made.config, made.function, made.chapter)
    meta["hardware"] = "; ".join(dict.fromkeys((*sitting.hardware, meta["hardware"])))
    records.write(file, values, meta)
    sitting.close()
