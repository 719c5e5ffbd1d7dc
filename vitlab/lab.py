"""The laboratory: where a chapter starts, what it runs on, at which scale, and how long work is kept.

Every chapter opens with it:

    from vitlab import lab

    lab.start()
    STEPS = lab.choose(smoke=20, laptop=1200, paper=100_000)
    result = lab.record("data_hunger", measure, seeds=3)
"""

from __future__ import annotations

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
    """Return the fastest device here: CUDA, then Apple's MPS, then the CPU; of several processes each its own."""
    # So that asking does not keep a notebook from starting processes with a GPU each.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    from vitlab import processes

    processes.join()
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() and processes.world() == 1 else "cpu")


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch alike."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def start(seed: int = 0) -> None:
    """Open a chapter: seed everything, note the code as it is, and say where and at which scale it runs."""
    from vitlab import digest, processes, records

    seed_everything(seed)
    chapter = getattr(sys.modules["__main__"], "__file__", None)
    digest.snapshot(*([Path(chapter)] if chapter and Path(chapter).is_file() else []))
    line = f"scale {scale()} | device {device()} | seed {seed} | {records.versions_line()}"
    if processes.first():
        print(line if processes.world() == 1 else f"{line} | {processes.world()} processes")


class OutOfTime(RuntimeError):
    """The time given to a run is up; what it has is saved, and the same command goes on from there."""


def time_is_up() -> bool:
    """Whether the time given to this run, until `$VITLAB_DEADLINE` in Unix seconds, is up; never without one."""
    deadline = os.environ.get("VITLAB_DEADLINE", "inf")
    try:
        return time.time() >= float(deadline)
    except ValueError:
        raise ValueError(f"VITLAB_DEADLINE is a time in Unix seconds, got {deadline!r}; unset it.") from None


def checkpoint(name: str) -> Path | None:
    """Return where a piece of the measurement in progress keeps its checkpoint, or None where none is in progress.

    The file outlives a run that stops before its seed is recorded, and belongs to one state of code and
    configuration: a run of other code never sees it. When the seed is recorded it is deleted.

    Args:
        name: of the piece, unique in the measurement.

    Raises:
        ValueError: the name is not made of letters, digits, `-`, `_` and `.`.
        OSError: the folder cannot be written.
    """
    from vitlab import recording

    return recording.checkpoint(name)


def record(
    name: str,
    measure: Callable[..., Mapping[str, Any]],
    *,
    seeds: int | Iterable[int] = 3,
    rank: int = 100,
    minutes: float | None = None,
    **config: Any,
) -> Record:
    """Load the stored result of `measure`, or compute it seed by seed and keep each finished seed at once.

    A run that is interrupted goes on where it stopped. Two runs of the same record share the seeds between them.

    Args:
        name: of the record; its files stand in `data/<name>/<scale>/`.
        measure: a top-level function of the chapter. `measure(seed, **config)` returns a dict of names to numbers
            or arrays. It must seed what it uses from `seed` alone; everything is seeded before it is called.
        seeds: how many, or which.
        rank: how telling the record is, 1 first: the order in which `make record` makes several.
        minutes: how long one seed takes at this scale, for planning, as far as is known.
        config: what else to call it with; a change makes the record stale.

    Environment:
        VITLAB_RECORD: `auto` (default) loads what is there and computes what is missing, at smoke scale also what
        is stale; `load` computes nothing and raises where something is missing or stale; `compute` computes both.

    Raises:
        MissingRecord, StaleRecord: under `load`.
        ValueError: the measurement is no top-level function, or returned something that is not finite numbers.
        OutOfTime: the time given to the run is up; finished seeds are kept.
    """
    from vitlab import digest, processes, recording, records

    mode = os.environ.get("VITLAB_RECORD", "auto")
    if mode not in ("auto", "load", "compute"):
        raise ValueError(f"VITLAB_RECORD is auto, load or compute, got {mode!r}; set it to one of them.")
    recording.check_plan(rank, minutes)
    wanted, here = recording.seeds_wanted(seeds), scale()
    code = digest.digest(_source_of(measure), measure.__name__, here)
    made = recording.Made(code, recording.frozen(config), measure.__name__, _chapter())
    files = {seed: records.seed_file(name, here, seed) for seed in wanted}

    def to_compute() -> list[int]:
        missing = [seed for seed, file in files.items() if not file.exists()]
        stale = recording.stale(files.values(), made)
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
            return [seed for seed in wanted if seed in missing or recording.stale([files[seed]], made)]
        return missing

    def stored() -> Record:
        values, meta = records.stack(name, here, files)
        stale = recording.stale(files.values(), made)
        return records.Record(name, here, wanted, values, tuple(meta), tuple(stale))

    if missing := processes.agree(to_compute):
        recording.compute(name, measure, {seed: files[seed] for seed in sorted(missing)}, config, made)
    return processes.agree(stored)


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
