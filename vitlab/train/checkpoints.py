"""Checkpoints: one safetensors file, written whole or not at all, from which a training goes on to the bit.

It holds the model, the averaged model, the objective's buffers, the optimizer's moments, every loss and every
note so far; its header says which recipe it belongs to. Nothing in it is a pickle, so nothing in it can run. It
needs no generator's state: a step's randomness comes from (seed, step).
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from vitlab import lab

if TYPE_CHECKING:
    from accelerate import Accelerator

    from vitlab.train.loop import Progress
    from vitlab.train.recipe import Recipe

PLUMBING = True  # a training that stops and goes on gives what one that does not stop gives: tested to the bit

FORMAT = "vitlab-training-1"
SECONDS = 60.0  # between saves, and at least
TIMES = 100  # times what a save takes
ASK = 10  # steps between which several processes agree on whether to save or to stop


class Checkpoint:
    """Where a training keeps itself; with no path it keeps nothing."""

    def __init__(
        self,
        path: Path | str | None,
        recipe: Recipe,
        model: nn.Module,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
        ema: nn.Module | None,
        accelerator: Accelerator,
    ) -> None:
        self.path = Path(path) if path is not None else None
        self.recipe = json.loads(json.dumps(dataclasses.asdict(recipe)))
        self.modules = {"model": model, "objective": objective} | ({"ema": ema} if ema is not None else {})
        self.optimizer = optimizer
        self.accelerator = accelerator
        self.saved = time.monotonic()
        self.cost = 0.0
        self.finished = False
        self.kept: dict[str, int] = {}  # how many notes of each name are copies already

    def resume(self, now: Progress) -> None:
        """Go on from the file, if there is one.

        Raises ValueError where it is damaged, or of another training.
        """
        self.accelerator.wait_for_everyone()
        if self.path is None or not self.path.exists():
            return
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder and no checkpoint; name a file in it.")
        tensors, header = load(self.path)
        for key, value in self.recipe.items():
            if header["recipe"].get(key) != value:
                raise ValueError(
                    f"The checkpoint {self.path} is of another training, its {key} is {header['recipe'].get(key)} "
                    f"and not {value}; delete it or take another file."
                )
        for name, module in self.modules.items():
            _fill(self.path, module, _below(tensors, name), name)
        if header["step"] < now.steps:
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in _below(tensors, "optimizer").items():
                place, what = key.split(".", 1)
                moments.setdefault(int(place), {})[what] = value
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
            if self.accelerator.scaler is not None and header["scaler"]:
                self.accelerator.scaler.load_state_dict(header["scaler"])
        now.step = header["step"]
        self.finished = now.step == now.steps
        now.losses.copy_(tensors["losses"])
        if now.step == 0:
            return  # the callbacks are called before the first step again, and note anew
        for name, steps in header["log"].items():
            now.log[name] = [(step, tensors[f"log.{name}.{i}"]) for i, step in enumerate(steps)]
            self.kept[name] = len(steps)

    def stop_if_time_is_up(self, now: Progress) -> None:
        """Save and raise lab.OutOfTime when the time that was given is up; all processes stop at one step."""
        self._keep_notes(now)  # those from before the first step
        if not self._agreed(lab.time_is_up, now):
            return
        if self.path is None:
            raise lab.OutOfTime(f"Time is up after {now.step} of {now.steps} steps; no checkpoint was asked for.")
        self.save(now)
        raise lab.OutOfTime(f"Time is up after {now.step} of {now.steps} steps; {self.path.name} holds them.")

    def save_if_due(self, now: Progress) -> None:
        """Save when the last save is long enough ago."""
        self._keep_notes(now)
        if self.path is not None and now.step < now.steps and self._agreed(self._due, now):
            self.save(now)

    def _keep_notes(self, now: Progress) -> None:
        """Copy what was just noted: on a CPU it may be the network's own memory, which the next step changes.

        Raises ValueError for a note of another shape than those before it, which no array can hold together.
        """
        for name, found in now.log.items():
            for i in range(self.kept.get(name, 0), len(found)):
                step, value = found[i]
                if value.shape != found[0][1].shape:
                    raise ValueError(
                        f"The notes {name!r} have one shape, {tuple(found[0][1].shape)} at step {found[0][0]}, "
                        f"got {tuple(value.shape)} at step {step}; give it another name."
                    )
                found[i] = (step, value.clone())
            self.kept[name] = len(found)

    def _due(self) -> bool:
        return time.monotonic() - self.saved >= max(SECONDS, TIMES * self.cost)

    def _agreed(self, asked: Callable[[], bool], now: Progress) -> bool:
        """The answer of the first process, in all; several ask now and then only, because then all wait for it."""
        if self.accelerator.num_processes == 1:
            return asked()
        if now.step % ASK:
            return False
        from accelerate.utils import broadcast_object_list

        return bool(broadcast_object_list([asked()])[0])

    def finish(self, now: Progress) -> None:
        """Save what a finished training leaves, unless it was read: everything but the optimizer's moments."""
        if not self.finished:
            self.save(now)
        self.accelerator.wait_for_everyone()

    def save(self, now: Progress) -> None:
        """Write the file, from the first process alone; all of them call it, as the losses are the mean of theirs.

        Raises OSError where it cannot be written; what stood there before still stands.
        """
        losses = self.accelerator.reduce(now.losses, "mean")
        if self.path is None or not self.accelerator.is_main_process:
            return
        begun = time.monotonic()
        tensors = {"losses": losses}
        for name, module in self.modules.items():
            tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        if now.step < now.steps:
            for place, moments in self.optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{place}.{k}": torch.as_tensor(v) for k, v in moments.items()}
        for name, found in now.log.items():
            tensors |= {f"log.{name}.{i}": value for i, (_, value) in enumerate(found)}
        header = {
            "step": now.step,
            "recipe": self.recipe,
            "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None,
            "log": {name: [step for step, _ in found] for name, found in now.log.items()},
        }
        write(self.path, tensors, header)
        self.saved = time.monotonic()
        self.cost = self.saved - begun


def write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a header to one file, whole or not at all.

    Raises OSError in one sentence where the disk is full or the folder closed.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    about = json.dumps(header)
    # A copy each, because two names of one tensor (tied weights) may not share memory in the file.
    copies = {key: value.detach().to("cpu", copy=True).contiguous() for key, value in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
            old.unlink(missing_ok=True)  # of a process that was killed while it wrote
        meta = {"format": FORMAT, "header": about, "checksum": _checksum(copies, about)}
        save_file(copies, part, metadata=meta)
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(part, path)
    except (OSError, SafetensorError) as error:
        raise OSError(
            f"The checkpoint {path.name} could not be written to {path.parent} ({error}); free some space or "
            "choose a folder that can be written, what was saved before still stands."
        ) from error
    finally:
        with contextlib.suppress(OSError):  # it was renamed, or there is no folder to take it from
            part.unlink()


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint: its tensors by name, and its header.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the file is damaged, or no checkpoint of a training.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}; train first, or name the file that there is.")
    try:
        with safe_open(path, framework="pt") as file:
            meta = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  it is no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"The checkpoint {path} is damaged or no safetensors file ({error}); delete it and train again."
        ) from error
    if meta.get("format") != FORMAT:
        raise ValueError(
            f"{path} is no checkpoint of a training, its format is {meta.get('format')!r} and not {FORMAT!r}; "
            "weights alone are read by vitlab.models.weights."
        )
    try:
        header = json.loads(meta["header"])
        if header.keys() != {"step", "recipe", "scaler", "log"} or "losses" not in tensors:
            raise ValueError("parts are missing")
        if meta["checksum"] != _checksum(tensors, meta["header"]):
            raise ValueError("its numbers are not those that were written")
    except (KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"The checkpoint {path} is damaged ({error}); delete it and train again.") from error
    return tensors, header


def _checksum(tensors: dict[str, Tensor], header: str) -> str:
    """Thirty-two bits that change with any byte of the tensors, their names and the header."""
    total = zlib.crc32(header.encode())
    for key in sorted(tensors):
        total = zlib.crc32(tensors[key].reshape(-1).view(torch.uint8).numpy(), zlib.crc32(key.encode(), total))
    return f"{total:08x}"


def _below(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `name.`, without it."""
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}


def _fill(path: Path, module: nn.Module, stored: dict[str, Tensor], name: str) -> None:
    """Load stored tensors into a module, or say which is the first that does not fit."""
    own = module.state_dict()
    for key in (*own, *(key for key in stored if key not in own)):
        here = tuple(own[key].shape) if key in own else "absent"
        there = tuple(stored[key].shape) if key in stored else "absent"
        if here != there:
            raise ValueError(
                f"The checkpoint {path} does not fit the {name}: {key} is {there} in the file and {here} here; "
                "build what was trained, or delete the file."
            )
    module.load_state_dict(stored)
