"""Augmentation of a whole batch at once, different for every image, on the device where the images are.

    view = View(Shift(4), Flip(), Colour(0.4, 0.4, 0.4), mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))
    batch = view(images, torch.Generator().manual_seed(0))

A transform draws one row of parameters an image, always on the CPU, and then applies them to all images in a few
tensor operations without asking the device for anything. So a seed gives the same views on every device, and a
process that holds a part of a batch gives its images what one process would give them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from .colour import Blur, Colour, Grey, Solarize
from .geometry import Crop, Erase, Flip, Shift

__all__ = [
    "Blur",
    "Colour",
    "Crop",
    "Erase",
    "Flip",
    "Grey",
    "MultiCrop",
    "Shift",
    "Solarize",
    "Transform",
    "View",
]


class Transform(Protocol):
    """What a view is made of: parameters are drawn a row an image, and applied to all images at once."""

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return the parameters of `count` images of `size` (height, width): CPU tensors, first axis `count`."""
        ...

    def __call__(self, images: Tensor, **drawn: Any) -> Tensor:
        """Return the images `(batch, channels, height, width)`, floats in [0, 1], with `drawn` applied."""
        ...


class View:
    """A chain of transforms and the normalisation after it: images in [0, 1] to what a network sees.

    Args:
        transforms: applied in this order, in [0, 1].
        mean, std: subtracted, and divided by, at the end: one number, or one a channel, in units of [0, 1].

    Raises:
        ValueError: what is no transform, means or deviations that are no finite numbers, a `std` of 0 or less.
    """

    def __init__(
        self, *transforms: Transform, mean: float | Sequence[float] = 0.5, std: float | Sequence[float] = 0.5
    ) -> None:
        for transform in transforms:
            if not callable(transform) or not hasattr(transform, "draw"):
                raise ValueError(f"A view is made of transforms, one argument each, not of {transform!r}.")
        self.transforms = transforms
        self.mean, self.std = _per_channel(mean, "mean"), _per_channel(std, "std")
        if not (self.std > 0).all():
            raise ValueError(f"A view divides by a std above 0, not by {std}.")

    def __call__(
        self, images: Tensor, generator: Generator, rows: slice | None = None, count: int | None = None
    ) -> Tensor:
        """Return a view of each image: float32 `(batch, channels, height, width)`, normalised; `images` is kept.

        Args:
            images: `(batch, channels, height, width)`, uint8, or floats in [0, 1] (which is not checked).
            generator: on the CPU, whatever the images' device; its state moves on.
            rows, count: the images are the rows `rows` of a batch of `count`: parameters are drawn for the whole
                batch, and these rows of them used. By default the images are the whole batch.

        Raises:
            ValueError: images of another type or shape, or not as many as `rows` says; a generator elsewhere.
        """
        if images.ndim != 4 or not (images.dtype == torch.uint8 or images.is_floating_point()):
            raise ValueError(
                "A view takes images (batch, channels, height, width), uint8 or floats in [0, 1], "
                f"not {images.dtype} {tuple(images.shape)}."
            )
        if generator.device.type != "cpu":
            raise ValueError(
                f"A view draws on the CPU, the same for every device, not on {generator.device}: "
                "give it torch.Generator()."
            )
        whole = len(images) if count is None else count
        rows = slice(0, whole) if rows is None else rows
        if len(range(*rows.indices(whole))) != len(images):
            raise ValueError(f"The rows {rows} of a batch of {whole} are not {len(images)} images: correct one.")
        for values in (self.mean, self.std):
            if len(values) not in (1, images.shape[1]):
                raise ValueError(
                    f"A view of {images.shape[1]} channels is normalised by one number or by {images.shape[1]}, "
                    f"not by {len(values)}."
                )
        floats = images.float().div_(255) if images.dtype == torch.uint8 else images.float()
        for transform in self.transforms:
            height, width = floats.shape[-2:]
            drawn = transform.draw(whole, generator, (height, width))
            floats = transform(floats, **{name: values[rows] for name, values in drawn.items()})
        mean, std = (values.to(floats.device, non_blocking=True) for values in (self.mean, self.std))
        return floats.sub(mean).div_(std)

    def __repr__(self) -> str:
        numbers = (
            f"{name}={values.flatten().tolist()}" for name, values in vars(self).items() if name != "transforms"
        )
        return f"View({', '.join([*map(repr, self.transforms), *numbers])})"


def _per_channel(values: float | Sequence[float], what: str) -> Tensor:
    numbers = list(values) if isinstance(values, Sequence) else [values]
    if not numbers or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in numbers):
        raise ValueError(f"A view's {what} is one finite number, or one a channel, not {values!r}.")
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1)


class MultiCrop:
    """Several views of each image, as a list: what self-distillation learns from.

    Called as a view is; the views draw one after the other from the same generator.
    """

    def __init__(self, views: Sequence[View]) -> None:
        self.views = tuple(views)
        if not self.views:
            raise ValueError("A multi-crop takes at least one view, not none.")

    def __call__(
        self, images: Tensor, generator: Generator, rows: slice | None = None, count: int | None = None
    ) -> list[Tensor]:
        """Return one float32 tensor `(batch, channels, height, width)` a view; the sizes may differ."""
        return [view(images, generator, rows, count) for view in self.views]

    def __repr__(self) -> str:
        return f"MultiCrop({', '.join(map(repr, self.views))})"
