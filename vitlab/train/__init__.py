"""Training: one loop that can be read whole, objectives, checkpoints, and a watch that stops what has gone wrong.

    recipe = train.Recipe(steps=1200, batch_size=64, lr=1e-3, warmup=60)
    result = train.fit(model, feed, train.supervised(classes=20), recipe, checkpoint=lab.checkpoint("vit"))

A feed maps a training step to a batch; an objective maps a model and a batch to a loss.
"""

from __future__ import annotations

from vitlab.train.loop import Fit, Progress, every, fit
from vitlab.train.objectives import distillation, supervised
from vitlab.train.predict import predict
from vitlab.train.recipe import Recipe
from vitlab.train.reconstruction import reconstruction
from vitlab.train.self_distillation import dino
from vitlab.train.speed import flops, peak, share_of_peak
from vitlab.train.watch import TrainingFailed

__all__ = [
    "Fit",
    "Progress",
    "Recipe",
    "TrainingFailed",
    "dino",
    "distillation",
    "every",
    "fit",
    "flops",
    "peak",
    "predict",
    "reconstruction",
    "share_of_peak",
    "supervised",
]
