"""The laboratory: where a chapter starts, what it runs on, at which scale, and how long work is kept.

Every chapter opens with it:

    from vitlab import lab

    lab.start()
    STEPS = lab.choose(smoke=20, laptop=1200, paper=100_000)
    result = lab.record("data_hunger", measure, seeds=3)
"""

from __future__ import annotations

import copy
import json
import operator
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

    from vitlab.records import Record

PLUMBING = True  # a change here cannot change a recorded number

SCALES = ("smoke", "laptop", "paper")
T = TypeVar("T")


def scale() -> str:
    """Return the scale of this run: `$VITLAB_SCALE`, else "laptop"."""
    chosen = os.environ.get("VITLAB_SCALE", "laptop")
    if chosen not in SCALES:
        raise ValueError(f"VITLAB_SCALE is one of {', '.join(SCALES)}, got {chosen!r}; set it to one of them.")
    return chosen


def choose(*, smoke: T, laptop: T, paper: T) -> T:
    """Return the value for the scale of this run."""
    return {"smoke": smoke, "laptop": laptop, "paper": paper}[scale()]


def device() -> torch.device:
    """Return the fastest device here: CUDA, then Apple's MPS, then the CPU."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch alike."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def start(seed: int = 0) -> None:
    """Open a chapter: seed everything, note the code as it is, and say where and at which scale it runs."""
    from vitlab import digest, records

    seed_everything(seed)
    chapter = getattr(sys.modules["__main__"], "__file__", None)
    digest.snapshot(*([Path(chapter)] if chapter and Path(chapter).is_file() else []))
    print(f"scale {scale()} | device {device()} | seed {seed} | {records.versions_line()}")


def record(
    name: str, measure: Callable[..., Mapping[str, Any]], *, seeds: int | Iterable[int] = 3, **config: Any
) -> Record:
    """Load the stored result of `measure`, or compute it seed by seed and keep each finished seed at once.

    A run that is interrupted goes on where it stopped. Two runs of the same record share the seeds between them.

    Args:
        name: of the record; its files stand in `data/<name>/<scale>/`.
        measure: a top-level function of the chapter. `measure(seed, **config)` returns a dict of names to numbers
            or arrays. It must seed what it uses from `seed` alone; everything is seeded before it is called.
        seeds: how many, or which.
        config: what else to call it with; a change makes the record stale.

    Environment:
        VITLAB_RECORD: `auto` (default) loads what is there and computes what is missing, at smoke scale also what
        is stale; `load` computes nothing and raises where something is missing or stale; `compute` computes both.

    Raises:
        MissingRecord, StaleRecord: under `load`.
        ValueError: the measurement is no top-level function, or returned something that is not finite numbers.
    """
    from vitlab import digest, records

    mode = os.environ.get("VITLAB_RECORD", "auto")
    if mode not in ("auto", "load", "compute"):
        raise ValueError(f"VITLAB_RECORD is auto, load or compute, got {mode!r}; set it to one of them.")
    wanted = _seeds(seeds)
    here, text = scale(), _source_of(measure)
    code, frozen = digest.digest(text, measure.__name__, here), _frozen(config)
    files = {seed: records.seed_file(name, here, seed) for seed in wanted}

    def stale_in(some: Iterable[int]) -> list[str]:
        return _stale([files[seed] for seed in some], code, frozen)

    missing = [seed for seed, file in files.items() if not file.exists()]
    stale = stale_in(wanted)
    if mode == "load" and missing:
        raise records.MissingRecord(
            f"Seeds {missing} of {name} are not recorded at {here} scale; "
            f"make record CHAPTER=... SCALE={here} does it."
        )
    if mode == "load" and stale:
        raise records.StaleRecord(
            f"The record {name} at {here} scale is stale: {', '.join(stale)} changed since; "
            f"make record CHAPTER=... SCALE={here} makes it anew."
        )
    if mode == "compute" or (mode == "auto" and here == "smoke"):
        missing = [seed for seed in wanted if seed in missing or stale_in([seed])]
    if missing:
        _compute(name, measure, missing, files, code, config, frozen)
        stale = stale_in(wanted)
    values, meta = records.stack(name, here, files)
    return records.Record(name, here, wanted, values, tuple(meta), tuple(stale))


def _seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """Return which seeds are wanted, as plain integers, each once."""
    try:
        wanted = tuple(operator.index(s) for s in (range(seeds) if isinstance(seeds, int) else seeds))
    except TypeError:
        raise ValueError(f"Seeds are a count or whole numbers, got {seeds!r}; name them.") from None
    if not wanted or len(set(wanted)) != len(wanted):
        raise ValueError(f"A record needs at least one seed, each once, got {wanted}; name them.")
    return wanted


def _frozen(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as the record keeps it, so that what is compared is what was stored."""
    try:
        return json.loads(json.dumps(config, default=lambda value: value.tolist()))
    except (TypeError, ValueError, AttributeError):
        raise ValueError(f"A configuration is numbers, text and lists or dicts of them, got {config!r}.") from None


def _stale(files: Iterable[Path], code: Mapping[str, str], frozen: Mapping[str, Any]) -> list[str]:
    """Return the names of what changed since any of these seeds was made."""
    from vitlab import digest, records

    names: dict[str, None] = {}
    for file in files:
        if file.exists():
            meta = records.read(file)[1]
            names.update(dict.fromkeys(digest.changed(meta["code"], dict(code))))
            both = frozen.keys() | meta["config"].keys()
            pairs = ((key, meta["config"].get(key, ...), frozen.get(key, ...)) for key in sorted(both))
            names.update(dict.fromkeys(key for key, old, new in pairs if old != new))
    return list(names)


def _compute(
    name: str,
    measure: Callable[..., Mapping[str, Any]],
    missing: list[int],
    files: Mapping[int, Path],
    code: Mapping[str, str],
    config: Mapping[str, Any],
    frozen: Mapping[str, Any],
) -> None:
    """Compute the missing seeds, keeping each at once; a seed that another process holds is left to it."""
    from filelock import FileLock, Timeout
    from tqdm.auto import tqdm

    from vitlab import records

    def done(file: Path) -> bool:
        """Whether another process has made this seed meanwhile, from the same code and configuration."""
        return file.exists() and not _stale([file], code, frozen)

    waiting = list(missing)
    patience = 0.0  # seconds to wait for a lock: none while other seeds are free
    with tqdm(total=len(missing), desc=f"{name} ({scale()})", unit="seed") as bar:
        while waiting:
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
                if not done(file):
                    seed_everything(seed)
                    begun = time.perf_counter()
                    values = measure(seed, **copy.deepcopy(dict(config)))
                    spent = time.perf_counter() - begun
                    meta = records.describe(spent, code, frozen, measure.__name__, _chapter())
                    records.write(file, values, meta)
                bar.update()
            except KeyboardInterrupt:
                kept = f"{bar.n} of {len(missing)} seeds are kept"
                print(f"Interrupted: {kept}; run this again to go on.", file=sys.stderr)
                raise
            finally:
                lock.release()


def _chapter() -> str:
    """Return the chapter that is running, as `notebooks/name.py`; empty in a live notebook."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return f"notebooks/{Path(file).name}" if file and Path(file).parent.name == "notebooks" else ""


def _source_of(measure: Callable[..., Any]) -> str:
    """Return the text that defines `measure`: all cells run so far in a notebook, else its file."""
    from vitlab import digest

    module = sys.modules.get(getattr(measure, "__module__", ""), None)
    if getattr(measure, "__qualname__", "<") != getattr(measure, "__name__", ">"):
        raise ValueError(
            f"A measurement is a function at the top level of its chapter, got {measure!r}; "
            "define it with def in a cell."
        )
    if measure.__module__ == "__main__" and not getattr(module, "__file__", None):
        from IPython import get_ipython

        shell = get_ipython()
        if shell is not None:
            plain = (
                re.sub(r"\A%%(time|capture)\b.*\n", "", cell) for cell in shell.history_manager.input_hist_raw
            )
            cells = (shell.input_transformer_manager.transform_cell(cell) for cell in plain)
            return "\n".join(cell for cell in cells if _parses(cell))
    file = getattr(module, "__file__", None)
    if not file:
        raise ValueError(
            "A measurement is defined in a notebook or a file, not at a bare prompt; write it to one."
        )
    return digest.text_of(Path(file))


def _parses(cell: str) -> bool:
    """Whether a cell is Python: one that failed with a syntax error defines nothing."""
    try:
        compile(cell, "<cell>", "exec")
    except SyntaxError:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run `python -m vitlab.lab record CHAPTER --scale laptop` or `python -m vitlab.lab check`."""
    from vitlab import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
