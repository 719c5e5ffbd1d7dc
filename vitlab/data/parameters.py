"""What all transforms of `views` share: how their numbers are drawn, checked and laid beside the images."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor


def uniform(count: int, columns: int, generator: Generator) -> Tensor:
    """Return uniform numbers in [0, 1): float64 `(columns, count)`.

    Double precision, so that a number below 1 times a number of pixels does not round up to that number.
    """
    return torch.rand(columns, count, generator=generator, dtype=torch.float64)


def between(numbers: Tensor, limits: tuple[float, float], logarithmic: bool = False) -> Tensor:
    """Return uniform `numbers` of [0, 1) as numbers between `limits`, uniform themselves or in their logarithm."""
    if logarithmic:
        return between(numbers, (math.log(limits[0]), math.log(limits[1]))).exp()
    return limits[0] + (limits[1] - limits[0]) * numbers


def column(values: Tensor, images: Tensor) -> Tensor:
    """Return one number an image as `(batch, 1, 1, 1)` on the images' device, doubles as single precision.

    Raises `ValueError` unless there is one row an image.
    """
    if values.shape != images.shape[:1]:
        raise ValueError(f"{len(images)} images need as many parameters, not shape {tuple(values.shape)}.")
    single = values.float() if values.is_floating_point() else values
    return single.to(images.device, non_blocking=True).view(-1, 1, 1, 1)


def checked(images: Tensor) -> Tensor:
    """Return `images`; raises `ValueError` unless they are floats `(batch, channels, height, width)`."""
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(
            "A transform takes floats in [0, 1] of shape (batch, channels, height, width), "
            f"not {images.dtype} {tuple(images.shape)}; a View makes them from uint8."
        )
    return images


def probability(value: Any, what: str) -> None:
    """Raise `ValueError` unless `value` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{what} happens with a probability from 0 to 1, not {value!r}.")


def interval(value: Any, what: str, above: float, most: float) -> None:
    """Raise `ValueError` unless `value` is two finite numbers in order, over `above` and not over `most`."""
    numbers = (
        isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(v, (int, float)) for v in value)
    )
    if not (numbers and above < value[0] <= value[1] <= most and math.isfinite(value[1])):
        limits = f"above {above}" + (f" and at most {most}" if math.isfinite(most) else "")
        raise ValueError(f"{what} lies between two numbers in ascending order, {limits}, not {value!r}.")
