"""How far a training is: images a second, time left and the loss, on one line, from one process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

if TYPE_CHECKING:
    from accelerate import Accelerator

    from vitlab.train.loop import Progress
    from vitlab.train.recipe import Recipe

PLUMBING = True  # it shows a training, it never changes one

SECONDS = 1.0  # between looks at the loss, each of which waits for the device


class Bar:
    """One line of progress, on a terminal or in a live notebook; silent in a log and in a built page."""

    def __init__(self, now: Progress, recipe: Recipe, accelerator: Accelerator) -> None:
        silent = not accelerator.is_main_process or bool(os.environ.get("VITLAB_STATIC"))
        self.bar = tqdm(
            total=now.steps, initial=now.step, unit="step", leave=False, disable=True if silent else None
        )
        self.batch = recipe.batch_size
        self.share = recipe.batch_size // (accelerator.num_processes * recipe.accumulate)
        if now.ema is not None:
            now.ema.eval()  # callbacks look at it; averaging works in either mode
        self.first = now.step
        self.done = now.step
        self.spent = 0.0
        self.begun = self.shown = time.perf_counter()

    def update(self, now: Progress) -> None:
        """Count a step, and now and then show the speed and the loss.

        Raises ValueError where the feed's batches are not the recipe's, as then no number here would be right.
        """
        seen = now.objective.outputs
        if seen is not None and len(seen) != self.share:
            raise ValueError(
                f"The recipe's batches make parts of {self.share} images for each process, the feed's are of "
                f"{len(seen)}; give both the same batch_size."
            )
        self.done = now.step
        self.bar.update()
        if not self.bar.disable and time.perf_counter() - self.shown > SECONDS:
            loss = now.losses[now.step - 1].item()
            self.bar.set_postfix_str(f"loss {loss:.3f}, {self.images_per_second:,.0f} images/s", refresh=False)
            self.shown = time.perf_counter()

    @property
    def images_per_second(self) -> float:
        """Images of all processes a second of training, pauses left out; 0 before the first step."""
        spent = self.spent + (time.perf_counter() - self.begun if self.begun else 0.0)
        return (self.done - self.first) * self.batch / spent if self.done > self.first else 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent in here is not training."""
        self.spent += time.perf_counter() - self.begun
        self.begun = 0.0
        try:
            yield
        finally:
            self.begun = time.perf_counter()

    def close(self) -> None:
        """Stop the clock and take the line away."""
        self.spent += time.perf_counter() - self.begun if self.begun else 0.0
        self.begun = 0.0
        self.bar.close()
