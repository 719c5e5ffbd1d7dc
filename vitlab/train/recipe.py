"""A recipe: how long, how fast and how carefully a network is trained, apart from what it is trained to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

Precision = Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Recipe:
    """How to train; every number a reader would have to ask for.

    steps         updates of the weights
    batch_size    images an update, over all processes and accumulated parts together
    lr            highest learning rate, after warm-up
    weight_decay  AdamW's; biases, norms and other vectors are not decayed, see `adamw`
    final_weight_decay  where half a cosine takes it by the end; None leaves it as it is
    warmup        steps of linear rise from 0 to `lr`; then half a cosine down to `final_lr`
    betas         AdamW's
    clip          largest norm of the gradient; None clips nothing
    accumulate    parts in which a batch is computed, one after another, where it does not fit memory whole
    ema           decay of a moving average of the weights, kept beside them; None keeps none
    precision     of the arithmetic: "auto" takes what the device does well (see `precision_on`)
    compile       pass the model through torch.compile: minutes at first, faster ever after on a GPU
    seed          decides the order of images, augmentation, dropout and drop-path

    Raises ValueError for numbers that cannot train.
    """

    steps: int
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.05
    final_weight_decay: float | None = None
    warmup: int = 0
    final_lr: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = 1.0
    accumulate: int = 1
    ema: float | None = None
    precision: Precision = "auto"
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.batch_size, self.accumulate) < 1 or self.batch_size % self.accumulate:
            raise ValueError(
                "Steps, batch size and parts are at least 1, and the batch divides into its parts, got "
                f"{self.steps}, {self.batch_size} and {self.accumulate}; change one of them."
            )
        decays = (self.weight_decay, self.final_weight_decay or 0.0)
        if not (self.lr > 0 and min(self.final_lr, *decays) >= 0 and 0 <= self.warmup < self.steps):
            raise ValueError(
                f"Rates are positive and warm-up is shorter than training, got lr {self.lr}, final_lr "
                f"{self.final_lr}, weight decay {decays}, warmup {self.warmup} of {self.steps} steps; "
                "change what is out of range."
            )
        if not all(0 <= beta < 1 for beta in (*self.betas, self.ema or 0.0)):
            raise ValueError(f"Decays lie in [0, 1), got betas {self.betas} and ema {self.ema}; choose others.")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"Gradients are clipped at a positive norm, got {self.clip}; None clips nothing.")
        if self.precision not in ("auto", "fp32", "bf16", "fp16"):
            raise ValueError(f"The precision is auto, fp32, bf16 or fp16, got {self.precision!r}; name one.")

    def rate(self, step: int) -> float:
        """The learning rate of one step: a line up from 0, then half a cosine down to `final_lr`.

        Source: Loshchilov and Hutter 2017, arXiv 1608.03983, without restarts.
        """
        if step < self.warmup:
            return self.lr * (step + 1) / (self.warmup + 1)
        return half_cosine(self.lr, self.final_lr, (step - self.warmup) / (self.steps - self.warmup))

    def decay(self, step: int) -> float:
        """The weight decay of one step."""
        last = self.weight_decay if self.final_weight_decay is None else self.final_weight_decay
        return half_cosine(self.weight_decay, last, step / self.steps)


def half_cosine(first: float, last: float, done: float) -> float:
    """From `first` to `last` along half a cosine, of which the share `done` in [0, 1] is behind."""
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * done))


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over what a model learns; vectors (biases, norms) are not decayed, all that has more axes is.

    So the class token and the positions of a ViT are decayed, unlike in DeiT.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101.
    """
    learned = [p for p in model.parameters() if p.requires_grad]
    if not learned:
        raise ValueError("The model has no parameter that is learned; unfreeze one.")
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "decayed": True},
        {"params": [p for p in learned if p.ndim <= 1], "decayed": False},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=learned[0].device.type != "mps")


def set_rates(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> None:
    """Set the learning rate and the weight decay of one step."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate(step)
        group["weight_decay"] = recipe.decay(step) if group["decayed"] else 0.0


def precision_on(device: torch.device, wanted: Precision) -> Precision:
    """What "auto" means on a device: bf16 where the hardware has it, fp16 on older CUDA (a T4), else fp32.

    bf16 has the range of fp32, so nothing can overflow; fp16 has not, and needs its losses scaled.
    """
    if wanted != "auto":
        if wanted == "fp16" and device.type != "cuda":
            raise ValueError(f"fp16 needs a CUDA device, this is {device.type}; take fp32 or bf16.")
        return wanted
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of one step of one process: what a step draws depends on nothing that came before it."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])
