"""The training loop, whole: feed, loss, gradient, step; the rest hangs on callbacks.

Nothing a step draws depends on the steps before it: the batch, its augmentation and the network's own randomness
come from (seed, step) alone. That is why a run that was killed goes on to the same weights, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from vitlab import lab
from vitlab.train.checkpoints import Checkpoint
from vitlab.train.objectives import Objective
from vitlab.train.progress import Bar
from vitlab.train.recipe import Recipe, adamw, precision_on, set_rates, step_seed
from vitlab.train.watch import Watch

Feed = Callable[[int, int, int], tuple[Any, Tensor]]


@dataclass
class Progress:
    """What a callback sees: steps done, of how many, networks, objective, losses, and a place for its findings."""

    step: int
    steps: int
    model: nn.Module
    ema: nn.Module | None
    objective: Objective
    losses: Tensor
    log: dict[str, list[tuple[int, Tensor]]] = field(default_factory=dict)

    def note(self, **found: Any) -> None:
        """Keep numbers or arrays under their names, with the step they belong to; checkpoints save them."""
        for name, value in found.items():
            self.log.setdefault(name, []).append((self.step, torch.as_tensor(value).detach().cpu()))


Callback = Callable[[Progress], None]


@dataclass(frozen=True)
class Fit:
    """What a training gave: the loss of every step, and what the callbacks noted.

    losses  `(steps,)` float32, the mean over processes
    log     name to (steps at which it was noted, values with these first)
    ema     the averaged network, where the recipe asks for one
    images_per_second  of this run, time in callbacks left out; 0 where nothing was left to train
    """

    losses: np.ndarray
    log: Mapping[str, tuple[np.ndarray, np.ndarray]]
    ema: nn.Module | None
    images_per_second: float


def fit(
    model: nn.Module,
    feed: Feed,
    objective: Objective,
    recipe: Recipe,
    *,
    checkpoint: Path | str | None = None,
    callbacks: Iterable[Callback] = (),
) -> Fit:
    """Train a model in place; it ends in eval mode, on the device it was trained on.

    Args:
        model: any module; under several processes each holds a copy.
        feed: `feed(step, rank, world)` gives this process's share of the images and labels of a step.
        objective: `objective(model, images, labels)` gives the loss.
        recipe: how long, how fast, how carefully.
        checkpoint: a file to save to now and then, and to go on from if it is there; None saves nothing.
        callbacks: called with a `Progress` before the first step and after each; see `every`.

    Raises:
        TrainingFailed: the loss is no number, diverges, or the outputs collapse.
        lab.OutOfTime: the time that was given is up; the checkpoint holds what was done.
        ValueError: the checkpoint is damaged, of another recipe, or of networks of other shapes. Another feed,
            objective or forward pass it cannot tell; `lab.checkpoint` gives such a change a new place.
    """
    r, callbacks = recipe, tuple(callbacks)
    accelerator = _accelerator(r)
    rank, world = accelerator.process_index, accelerator.num_processes
    if world > 1 and accelerator.device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # statistics of the whole batch, not of a share
    model, objective = model.to(accelerator.device), objective.to(accelerator.device)
    optimizer = adamw(model, r)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(r.ema)) if r.ema else None
    saved = Checkpoint(checkpoint, r, model, objective, optimizer, ema, accelerator)
    now = Progress(0, r.steps, model, ema, objective, torch.zeros(r.steps, device=accelerator.device))
    saved.resume(now)
    wrapped, stepper = accelerator.prepare(model, optimizer)
    watch, bar = Watch(now), Bar(now, r, accelerator)
    model.train()
    try:
        if now.step == 0:
            _call(callbacks, now, bar)
        while now.step < r.steps:
            saved.stop_if_time_is_up(now)
            set_rates(optimizer, r, now.step)
            lab.seed_everything(step_seed(r.seed, now.step, rank))
            images, labels = feed(now.step, rank, world)
            for part in range(r.accumulate):
                last = part == r.accumulate - 1
                with nullcontext() if last else accelerator.no_sync(wrapped):
                    loss = objective(wrapped, *_part(images, labels, part, r.accumulate)) / r.accumulate
                    accelerator.backward(loss)
                now.losses[now.step] += loss.detach()
            objective.before_step(model, now.step)
            if r.clip:
                accelerator.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], r.clip)
            stepper.step()
            stepper.zero_grad()
            objective.after_step(model, now.step)
            if ema is not None:
                ema.update_parameters(model)
            now.step += 1
            watch.look(now)
            bar.update(now)
            _call(callbacks, now, bar)
            saved.save_if_due(now)
        saved.finish(now)
    finally:
        bar.close()
        accelerator.unwrap_model(wrapped, keep_fp32_wrapper=False)
        model.eval()
    return Fit(
        accelerator.reduce(now.losses, "mean").cpu().numpy(),
        {
            name: (np.array([s for s, _ in found]), torch.stack([v for _, v in found]).numpy())
            for name, found in now.log.items()
        },
        ema.module.eval() if ema is not None else None,
        bar.images_per_second,
    )


@dataclass(frozen=True)
class every:  # lower case, because it reads as a phrase where it is used: callbacks=[every(100, probe)]
    """Call a probe at step 0, then every so many steps, and at the end: networks in eval mode, off the clock."""

    steps: int
    probe: Callback

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"A probe is called every 1 step or more, got {self.steps}; name how many.")

    def due(self, now: Progress) -> bool:
        """Whether this is a step at which to look."""
        return now.step % self.steps == 0 or now.step == now.steps

    def __call__(self, now: Progress) -> None:
        """Look, without gradients."""
        with torch.no_grad():
            self.probe(now)


def _call(callbacks: tuple[Callback, ...], now: Progress, bar: Bar) -> None:
    """Call the callbacks that are due; one that is not an `every` always is."""
    due = [callback for callback in callbacks if not isinstance(callback, every) or callback.due(now)]
    if due:
        with bar.paused():
            now.model.eval()
            for callback in due:
                callback(now)
            now.model.train()


def _part(images: Any, labels: Tensor, part: int, parts: int) -> tuple[Any, Tensor]:
    """One of the equal parts of a batch; of several views of the images, this part of each."""
    if isinstance(images, (list, tuple)):
        return [x.chunk(parts)[part] for x in images], labels.chunk(parts)[part]
    return images.chunk(parts)[part], labels.chunk(parts)[part]


def _accelerator(recipe: Recipe) -> Accelerator:
    """Devices and processes, by accelerate; another precision than the last training's is no error."""
    precision = precision_on(lab.device(), recipe.precision)
    AcceleratorState._reset_state()
    return Accelerator(
        mixed_precision="no" if precision == "fp32" else precision,
        dynamo_backend="inductor" if recipe.compile else "no",
    )
