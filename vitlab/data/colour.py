"""The transforms of `views` that change an image's colour or sharpness, and nothing's place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .parameters import checked, column, interval, probability, uniform

LUMA = (0.2989, 0.587, 0.114)  # torchvision's and Pillow's weights of red, green and blue (ITU-R 601)


@dataclass(frozen=True)
class Colour:
    """Change brightness, contrast, saturation and hue, in this order, each by a factor of the image's own.

    Colour jitter with torchvision's definitions: the factors are uniform in [1 - x, 1 + x], not below 0, with x
    the `brightness`, `contrast` or `saturation` given here; the hue turns by up to `hue` of the full circle, at
    most 1/2. What is 0 is left out. With probability 1 - `p` an image is left as it is. The order is fixed, where
    torchvision's is random: one pass for the whole batch. A grey image has neither saturation nor hue.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation", "hue"):
            value, most = getattr(self, name), 0.5 if name == "hue" else float("inf")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
                limits = "from 0 to 0.5" if name == "hue" else "of 0 or more"
                raise ValueError(f"A change of {name} is a number {limits}, not {value!r}.")
        probability(self.p, "A change of colour")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return the factors by name, and the turn `hue` in circles: float64; only what is not left out."""
        *numbers, chosen = uniform(count, 5, generator)
        drawn = {}
        for name, number in zip(("brightness", "contrast", "saturation", "hue"), numbers, strict=True):
            strength, neutral = getattr(self, name), 0.0 if name == "hue" else 1.0
            low = neutral - strength if name == "hue" else max(0.0, neutral - strength)
            factor = low + (neutral + strength - low) * number
            if strength:
                drawn[name] = torch.where(chosen < self.p, factor, neutral)
        return drawn

    def __call__(
        self,
        images: Tensor,
        brightness: Tensor | None = None,
        contrast: Tensor | None = None,
        saturation: Tensor | None = None,
        hue: Tensor | None = None,
    ) -> Tensor:
        """Return the images `(batch, channels, height, width)`, clamped to [0, 1] after each change that is given.

        Raises `ValueError` unless there are 1 or 3 channels.
        """
        channels = checked(images).shape[1]
        if channels not in (1, 3):
            raise ValueError(f"Colours are changed in images of 1 or 3 channels, not {channels}.")
        if brightness is not None:
            images = (images * column(brightness, images)).clamp_(0, 1)
        if contrast is not None:
            middle = grey(images.mean((2, 3), keepdim=True))
            images = torch.lerp(middle, images, column(contrast, images)).clamp_(0, 1)
        if saturation is not None and channels == 3:
            images = torch.lerp(grey(images), images, column(saturation, images)).clamp_(0, 1)
        if hue is not None and channels == 3:
            images = turned(images, column(hue, images))
        return images


def grey(images: Tensor) -> Tensor:
    """Return the luma of images `(batch, 3, height, width)`, or the images of one channel: one channel."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def turned(images: Tensor, hue: Tensor) -> Tensor:
    """Return images `(batch, 3, height, width)` with the hue turned by `hue` `(batch, 1, 1, 1)`, in full circles.

    Value and saturation of the HSV cone are kept: with V the largest channel and C the largest minus the smallest,
    a channel is V - C * min(max(min(k, 4 - k), 0), 1), k = n + 6 * hue modulo 6, n being 5, 3 and 1 for red,
    green and blue (Smith, 1978).
    """
    smallest, largest = images.aminmax(dim=1, keepdim=True)
    chroma = largest - smallest
    red, green, blue = images.split(1, dim=1)
    # Where there is no chroma the numerators are zero as well, and the angle does not matter.
    divisor = chroma.clamp_min(torch.finfo(images.dtype).tiny)
    angle = torch.where(
        largest == red,
        (green - blue).div_(divisor),
        torch.where(largest == green, (blue - red).div_(divisor).add_(2), (red - green).div_(divisor).add_(4)),
    )
    angle = angle.add_(hue * 6)
    offset = torch.arange(5, 0, -2, device=images.device).view(3, 1, 1)
    k = (angle + offset).remainder_(6)
    return largest - chroma * torch.minimum(k, 4 - k).clamp_(0, 1)


@dataclass(frozen=True)
class Grey:
    """With probability `p`, replace the colours by their luma, in all three channels."""

    p: float = 0.2

    def __post_init__(self) -> None:
        probability(self.p, "Greying")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `chosen`, bool: whether an image becomes grey."""
        return {"chosen": uniform(count, 1, generator)[0] < self.p}

    def __call__(self, images: Tensor, chosen: Tensor) -> Tensor:
        """Return the images `(batch, 1 or 3, height, width)`, grey where `chosen`."""
        if checked(images).shape[1] not in (1, 3):
            raise ValueError(f"Images of 1 or 3 channels can be greyed, not {images.shape[1]}.")
        return torch.where(column(chosen, images), grey(images), images)


@dataclass(frozen=True)
class Solarize:
    """With probability `p`, invert every value of at least `threshold`."""

    p: float = 0.2
    threshold: float = 0.5

    def __post_init__(self) -> None:
        probability(self.p, "Solarizing")
        if not isinstance(self.threshold, (int, float)) or not 0 <= self.threshold <= 1:
            raise ValueError(f"The threshold of solarizing is a number from 0 to 1, not {self.threshold!r}.")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `chosen`, bool: whether an image is solarized."""
        return {"chosen": uniform(count, 1, generator)[0] < self.p}

    def __call__(self, images: Tensor, chosen: Tensor) -> Tensor:
        """Return the images `(batch, channels, height, width)`, solarized where `chosen`."""
        inverted = column(chosen, checked(images)) & (images >= self.threshold)
        return torch.where(inverted, 1 - images, images)


@dataclass(frozen=True)
class Blur:
    """With probability `p`, blur by a Gaussian whose standard deviation is uniform in `sigma` (pixels).

    The kernel reaches 3 of the largest deviations to each side; beyond its edge the image is mirrored.
    """

    sigma: tuple[float, float] = (0.1, 2.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        interval(self.sigma, "A blur's standard deviation", 0, float("inf"))
        probability(self.p, "A blur")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `sigma`, float64 in pixels: 0 where the image stays sharp."""
        number, chosen = uniform(count, 2, generator)
        sigma = self.sigma[0] + (self.sigma[1] - self.sigma[0]) * number
        return {"sigma": torch.where(chosen < self.p, sigma, 0.0)}

    def __call__(self, images: Tensor, sigma: Tensor) -> Tensor:
        """Return the images `(batch, channels, height, width)`, blurred along rows and then along columns."""
        batch, channels, height, width = checked(images).shape
        reach = max(1, round(3 * self.sigma[1]))
        if reach >= min(height, width):
            raise ValueError(
                f"A blur of sigma {self.sigma[1]} mirrors {reach} pixels, more than an image of "
                f"{height}x{width} has; blur less."
            )
        place = torch.arange(-reach, reach + 1, device=images.device)
        # A deviation of 0 leaves the middle pixel alone: exp(-huge) is 0 everywhere else.
        kernel = torch.exp(-0.5 * (place / column(sigma, images).clamp_min(1e-3)) ** 2)
        kernel = (kernel / kernel.sum(-1, keepdim=True)).expand(batch, channels, 1, -1).flatten(0, 1)[:, None]
        # One group an image and channel: (1, batch * channels, height, width), kernels (batch * channels, 1, 1, k)
        planes = F.pad(images, 4 * [reach], "reflect").flatten(0, 1)[None]
        planes = F.conv2d(planes, kernel, groups=batch * channels)
        planes = F.conv2d(planes, kernel.mT, groups=batch * channels)
        return planes.view(batch, channels, height, width)
