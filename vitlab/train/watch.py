"""A watch that stops a training that has gone wrong, in words: no number, divergence, collapse.

It looks every 50 steps, because each look waits for the device: a GPU that is never waited for is a fast GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from vitlab.train.loop import Progress

PLUMBING = True  # it stops a training, it never changes one

INTERVAL = 50  # steps between looks
FIRST = 10  # steps whose least loss is what divergence is measured against, as the second can be beyond all bounds
TIMES = 3.0  # a loss that many times the first is no noise,
LEAST = 0.1  # unless it is as small as this: what begins near 0 can only rise
ALIKE = 1e-6  # spread of the scores over images, relative to their size, below which all images look the same


class TrainingFailed(RuntimeError):
    """Training cannot go on to anything of use; the message says what was seen and what to try."""


class Watch:
    """Looks at the losses, at what the objective left in `outputs`, and asks it for a `trouble` of its own."""

    def __init__(self, now: Progress) -> None:
        self.looked = now.step
        self.alike = 0

    def look(self, now: Progress) -> None:
        """Look, if it is time to.

        Raises TrainingFailed.
        """
        if now.step - self.looked < INTERVAL and now.step < now.steps:
            return
        new = now.losses[self.looked : now.step].float().cpu()
        first = now.losses[: min(FIRST, now.step)].min().item()
        if not torch.isfinite(new).all():
            step = self.looked + int((~torch.isfinite(new)).nonzero()[0])
            raise TrainingFailed(
                f"The loss of step {step} is {new[step - self.looked].item()}, not a finite number; check "
                "the images and labels of that step, lower the learning rate or lengthen the warm-up."
            )
        begun = max(0, now.step - INTERVAL)  # as many steps at the end and after a resumption as elsewhere
        least = now.losses[begun : now.step].min().item()
        bounded = getattr(now.objective, "bounded", False)  # a loss that cannot diverge, and may rise
        if not bounded and first >= 0 and least > max(TIMES * first, LEAST):
            raise TrainingFailed(
                f"The loss diverges: it began at {first:.3g} and is {least:.3g} or more in steps {begun}"
                f" to {now.step - 1}; lower the learning rate, lengthen the warm-up or clip gradients."
            )
        self.alike = self.alike + 1 if _alike(now.objective.outputs) else 0
        if self.alike == 2:
            raise TrainingFailed(
                f"The outputs have collapsed: at step {now.step} every image gets the same scores; lower "
                "the learning rate, or look for dead units and for images that are all alike."
            )
        # What an objective knows of its own ways to fail.
        trouble = getattr(now.objective, "trouble", lambda: None)()
        if trouble is not None:
            raise TrainingFailed(f"Step {now.step}: {trouble}")
        self.looked = now.step


def _alike(outputs: Tensor | None) -> bool:
    """Whether all images of a batch get the same scores, `(batch, ...)`."""
    if outputs is None or len(outputs) < 2:
        return False
    x = outputs.detach().flatten(1).double()
    return bool(x.std(dim=0).max() <= ALIKE * x.abs().max())
