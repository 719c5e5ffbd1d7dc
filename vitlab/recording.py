"""How a record is computed: seed by seed, under a lock, with the checkpoints of what is in progress.

While seed 0 is measured, its pieces keep their checkpoints in `data/<name>/<scale>/seed-000.parts/<key>/`. The key
stands for the code, the configuration and the versions, so that a half-finished training is never continued by
other code than began it. When the seed is written its parts are deleted.
"""

from __future__ import annotations

import copy
import hashlib
import json
import operator
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vitlab import digest, lab, processes, records
from vitlab.manifest import combined

PLUMBING = True  # a change here cannot change a recorded number

Measure = Callable[..., Mapping[str, Any]]

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
        self.names: set[str] = set()

    def open(self) -> None:
        """Delete what other code left, and rests of a write that was killed; count what earlier sittings took."""
        try:
            for other in self.parts.glob("*"):
                if other != self.folder:
                    shutil.rmtree(other) if other.is_dir() else other.unlink()
            for rest in self.parts.parent.glob(f"{self.parts.stem}.*.part"):
                rest.unlink()
        except OSError as error:
            raise records.unwritable(self.folder, error, "checkpoint folder") from error
        self.before, self.hardware = earlier(self.folder)

    def checkpoint(self, name: str) -> Path:
        """Return where a piece keeps its checkpoint; the first process makes the folder.

        Raises ValueError for a name that another piece has: it would be given that one's weights.
        """
        if name in self.names:
            raise ValueError(f"Two pieces of this measurement are called {name!r}; give each a name of its own.")
        self.names.add(name)
        if processes.first() and not self.noted:
            machines = dict.fromkeys((*self.hardware, records.hardware()))
            note = {"before": self.before, "began": self.began, "hardware": list(machines)}
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                part = self.folder / f"{_SITTING}.part"
                part.write_text(json.dumps(note), encoding="utf-8")
                os.replace(part, self.folder / _SITTING)
            except OSError as error:
                raise records.unwritable(self.folder / name, error, "checkpoint") from error
            self.noted = True
        return self.folder / f"{name}.safetensors"

    def close(self) -> None:
        """Delete the checkpoints: the seed is recorded."""
        if self.parts.exists():
            shutil.rmtree(self.parts)


def earlier(folder: Path) -> tuple[float, tuple[str, ...]]:
    """Return the seconds that went into the checkpoints in a folder, and on which machines."""
    saved = [file.stat().st_mtime for file in folder.glob("*.safetensors")]
    if not saved or not (folder / _SITTING).is_file():
        return 0.0, ()
    try:
        last = json.loads((folder / _SITTING).read_text(encoding="utf-8"))
        return last["before"] + max(0.0, max(saved) - last["began"]), tuple(last["hardware"])
    except (ValueError, KeyError, TypeError):  # it tells the time spent, which is no reason to stop
        return 0.0, ()


_running: Sitting | None = None


def checkpoint(name: str) -> Path | None:
    """Return where a piece of the measurement in progress keeps its checkpoint, see `lab.checkpoint`."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]{0,99}", name, re.ASCII):
        raise ValueError(
            f"A checkpoint's name is up to 100 letters, digits, -, _ and ., got {name!r}; choose another name."
        )
    return _running.checkpoint(name) if _running else None


def check_plan(rank: int, minutes: float | None) -> None:
    """Refuse a rank or a duration that no plan can be made with."""
    if not isinstance(rank, int) or rank < 1:
        raise ValueError(f"A rank is a whole number from 1, the most telling, got {rank!r}; choose another.")
    if minutes is not None and not (isinstance(minutes, int | float) and 0 <= minutes < float("inf")):
        raise ValueError(f"The minutes a seed takes are a number from 0, got {minutes!r}; estimate them.")


def seeds_wanted(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """Return which seeds are wanted, as plain integers, each once."""
    try:
        wanted = tuple(operator.index(s) for s in (range(seeds) if isinstance(seeds, int) else seeds))
    except TypeError:
        raise ValueError(f"Seeds are a count or whole numbers, got {seeds!r}; name them.") from None
    if not wanted or len(set(wanted)) != len(wanted):
        raise ValueError(f"A record needs at least one seed, each once, got {wanted}; name them.")
    return wanted


def frozen(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as the record keeps it, so that what is compared is what was stored."""
    try:
        return json.loads(json.dumps(config, default=lambda value: value.tolist()))
    except (TypeError, ValueError, AttributeError):
        raise ValueError(f"A configuration is numbers, text and lists or dicts of them, got {config!r}.") from None


def stale(files: Iterable[Path], made: Made) -> list[str]:
    """Return the names of what changed since any of these seeds was made; those that are not there count not."""
    names: dict[str, None] = {}
    for file in files:
        if file.exists():
            meta = records.read(file)[1]
            names.update(dict.fromkeys(digest.changed(meta["code"], dict(made.code))))
            both = made.config.keys() | meta["config"].keys()
            pairs = ((key, meta["config"].get(key, ...), made.config.get(key, ...)) for key in sorted(both))
            names.update(dict.fromkeys(key for key, old, new in pairs if old != new))
    return list(names)


def compute(name: str, measure: Measure, files: Mapping[int, Path], config: Mapping[str, Any], made: Made) -> None:
    """Compute these seeds, keeping each at once; a seed that another run holds is left to it.

    Raises:
        OutOfTime: the time is up; no further seed is begun.
    """
    from tqdm.auto import tqdm

    with tqdm(total=len(files), desc=f"{name} ({lab.scale()})", unit="seed", disable=not processes.first()) as bar:
        turns = Turns(name, files, made, bar)
        try:
            while (seed := processes.agree(turns.take)) is not None:
                if seed != Turns.BUSY:
                    _measure(measure, seed, files[seed], config, made)
                    bar.update()
        except KeyboardInterrupt:
            if processes.first():
                kept = f"{bar.n} of the {len(files)} seeds that were to make are kept"
                print(f"Interrupted: {kept}; run this again to go on.", file=sys.stderr)
            raise
        finally:
            turns.release()


class Turns:
    """Which seed is next: one that no other run holds. The lock of the one that was taken is held."""

    BUSY = -1  # all that are left are held by others: ask again

    def __init__(self, name: str, files: Mapping[int, Path], made: Made, bar: Any) -> None:
        self.name, self.files, self.made, self.bar = name, files, made, bar
        self.waiting = list(files)
        self.patience = 0.0  # seconds to wait for a lock: none while other seeds are free
        self.lock: FileLock | None = None

    def take(self) -> int | None:
        """Return the next seed to measure, `BUSY`, or None when all are done."""
        self.release()
        while self.waiting:
            if lab.time_is_up():
                kept = f"{self.bar.n} of the {len(self.files)} seeds of {self.name} that were to make are kept"
                raise lab.OutOfTime(f"The time is up; {kept}.")
            seed = self.waiting.pop(0)
            file = self.files[seed]
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                lock = FileLock(file.with_suffix(".lock"), timeout=self.patience)
                lock.acquire()
            except Timeout:
                self.waiting.append(seed)
                self.patience = 1.0
                return self.BUSY
            except OSError as error:
                raise records.unwritable(file, error) from error
            self.lock = lock
            if not file.exists() or stale([file], self.made):
                return seed
            # Another run has made it meanwhile, from the same code and configuration.
            self.release()
            self.bar.update()
        return None

    def release(self) -> None:
        """Let go of the seed that was taken last."""
        if self.lock is not None:
            self.lock.release()
        self.lock = None


def _measure(measure: Measure, seed: int, file: Path, config: Mapping[str, Any], made: Made) -> None:
    """Measure one seed, in every process, and write it, in the first."""
    global _running
    outer, sitting = _running, Sitting(file, made.key)
    processes.agree(sitting.open)
    lab.seed_everything(seed)
    _running, begun = sitting, time.perf_counter()
    try:
        with processes.silent():
            values = measure(seed, **copy.deepcopy(dict(config)))
    finally:
        _running = outer
    spent = sitting.before + time.perf_counter() - begun

    def write() -> None:
        meta = records.describe(spent, made.code, made.config, made.function, made.chapter)
        meta["hardware"] = "; ".join(dict.fromkeys((*sitting.hardware, meta["hardware"])))
        records.write(file, values, meta)
        sitting.close()

    processes.agree(write)
