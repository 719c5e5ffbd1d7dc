"""What a trained network says of images, without training it further."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def predict(model: nn.Module, images: Tensor, batch: int = 250) -> Tensor:
    """Return the scores of each image, `(images, classes)`, on the CPU; the model is left in the mode it came in.

    Args:
        model: images to scores; it is asked in evaluation mode, on the device where it is.
        images: `(images, channels, height, width)`, floats as the model takes them, on any device.
        batch: how many are asked about at a time; the scores do not depend on it but for rounding.

    Raises:
        ValueError: no images, a batch below 1, or scores that are not finite.
    """
    if len(images) == 0 or batch < 1:
        raise ValueError(f"predict takes one image or more, some at a time, got {len(images)} and batch {batch}.")
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            scores = torch.cat([model(x.to(device)).float().cpu() for x in images.split(batch)])
    finally:
        model.train(training)
    if not scores.isfinite().all():
        raise ValueError("The model's scores are not all finite; look at its weights and at the images.")
    return scores
