"""The transforms of `views` that move, cut, mirror or cover what an image shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .parameters import between, checked, column, interval, probability, uniform

TRIES = 10  # as torchvision: so often a box is drawn before the centre is taken


@dataclass(frozen=True)
class Shift:
    """Move an image by up to `pixels` in each direction: pad it, and crop it back at a place of its own.

    The usual augmentation of CIFAR ([He et al., 2016](https://arxiv.org/abs/1512.03385), with zeros). Where the
    image moved away, `mode` "reflect" mirrors it at its edge (without repeating the edge), "zeros" is black.

    Raises `ValueError` for another mode, or where "reflect" would mirror more than the image has.
    """

    pixels: int = 4
    mode: str = "reflect"

    def __post_init__(self) -> None:
        if isinstance(self.pixels, bool) or not isinstance(self.pixels, int) or self.pixels < 0:
            raise ValueError(f"A shift is a whole number of pixels, 0 or more, not {self.pixels!r}.")
        if self.mode not in ("reflect", "zeros"):
            raise ValueError(f"A shift fills by 'reflect' or 'zeros', not by {self.mode!r}.")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `top` and `left` of the crop in the padded image: int64 in 0 to 2 * `pixels`."""
        top, left = torch.randint(0, 2 * self.pixels + 1, (2, count), generator=generator)
        return {"top": top, "left": left}

    def __call__(self, images: Tensor, top: Tensor, left: Tensor) -> Tensor:
        """Return the images `(batch, channels, height, width)`, each moved by `pixels` - (top, left)."""
        height, width = checked(images).shape[-2:]
        if self.mode == "reflect" and self.pixels >= min(height, width):
            raise ValueError(
                f"An image of {height}x{width} cannot be mirrored by {self.pixels} pixels: "
                "shift by less than its side, or fill with zeros."
            )
        padded = F.pad(images, 4 * [self.pixels], "reflect" if self.mode == "reflect" else "constant")
        # Every crop, without a copy: (batch, channels, top, left, height, width)
        crops = padded.unfold(2, height, 1).unfold(3, width, 1)
        which = torch.arange(len(images), device=images.device)
        top, left = (column(place, images).flatten() for place in (top, left))
        return crops[which, :, top, left]


@dataclass(frozen=True)
class Flip:
    """Mirror left and right with probability `p`."""

    p: float = 0.5

    def __post_init__(self) -> None:
        probability(self.p, "A flip")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `flip`, bool: whether an image is mirrored."""
        return {"flip": uniform(count, 1, generator)[0] < self.p}

    def __call__(self, images: Tensor, flip: Tensor) -> Tensor:
        """Return the images `(batch, channels, height, width)`, mirrored where `flip`."""
        return torch.where(column(flip, checked(images)), images.flip(-1), images)


@dataclass(frozen=True)
class Erase:
    """With probability `p`, fill a rectangle with the image's own mean colour.

    [Random erasing](https://arxiv.org/abs/1708.04896): the rectangle has a share `scale` of the image's area,
    height over width log-uniform in `ratio`, and lies inside the image. A side longer than the image is cut to it,
    where torchvision would draw again.
    """

    p: float = 0.25
    scale: tuple[float, float] = (0.02, 1 / 3)
    ratio: tuple[float, float] = (0.3, 3.3)

    def __post_init__(self) -> None:
        probability(self.p, "Erasing")
        interval(self.scale, "The erased share of the area", 0, 1)
        interval(self.ratio, "The erased rectangle's ratio", 0, math.inf)

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `top`, `left`, `height` and `width` of the rectangle: int64 in pixels, sides 0 for none."""
        chosen, area, shape, y, x = uniform(count, 5, generator)
        area = between(area, self.scale) * (size[0] * size[1])
        ratio = between(shape, self.ratio, logarithmic=True)
        height = (area * ratio).sqrt().round().clamp(1, size[0])
        width = (area / ratio).sqrt().round().clamp(1, size[1])
        box = {
            "top": (y * (size[0] - height + 1)).floor(),
            "left": (x * (size[1] - width + 1)).floor(),
            "height": torch.where(chosen < self.p, height, 0),
            "width": torch.where(chosen < self.p, width, 0),
        }
        return {name: values.long() for name, values in box.items()}

    def __call__(self, images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
        """Return the images `(batch, channels, height, width)` with the rectangles filled."""
        rows = torch.arange(checked(images).shape[2], device=images.device).view(-1, 1)
        columns = torch.arange(images.shape[3], device=images.device)
        top, left, height, width = (column(side, images) for side in (top, left, height, width))
        inside = (rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)
        return torch.where(inside, images.mean((2, 3), keepdim=True), images)


@dataclass(frozen=True)
class Crop:
    """Cut out a box and resize it to `size` pixels a side (None: the image's own size), bilinear and antialiased.

    Inception's crop, with torchvision's drawing: the box has a share `scale` of the image's area, width over
    height log-uniform in `ratio`; of ten boxes the first that fits is taken, and else the largest in the centre.

    Bilinear interpolation looks at two pixels a side. Where the box is larger than the output, those between are
    skipped, and fine patterns alias into coarse ones. So the triangle that weights the pixels is as wide as the
    box is larger (as in Pillow, and in torchvision with antialias=True). Resizing is linear in the rows and in the
    columns, so it is two matrix products an image. Where no box can be larger, because the image is not, two
    pixels a side are all there is to weight, and they are looked up.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    size: int | None = None

    def __post_init__(self) -> None:
        interval(self.scale, "The share of the area that is cut out", 0, 1)
        interval(self.ratio, "The cut-out's ratio", 0, math.inf)
        if self.size is not None and (type(self.size) is not int or self.size < 1):
            raise ValueError(f"A crop's size is a whole number of pixels, 1 or more, or None, not {self.size!r}.")

    def draw(self, count: int, generator: Generator, size: tuple[int, int]) -> dict[str, Tensor]:
        """Return `top`, `left`, `height` and `width` of the box: int64, in pixels."""
        numbers = uniform(count, 2 * TRIES + 2, generator)
        area = between(numbers[:TRIES], self.scale) * (size[0] * size[1])
        ratio = between(numbers[TRIES : 2 * TRIES], self.ratio, logarithmic=True)
        heights, widths = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
        fits = (heights >= 1) & (heights <= size[0]) & (widths >= 1) & (widths <= size[1])
        # The first that fits is the largest of descending numbers; where none fits, all are zero.
        first = (fits * torch.arange(TRIES, 0, -1).view(-1, 1)).argmax(0, keepdim=True)
        some = fits.any(0)
        inside = min(max(size[1] / size[0], self.ratio[0]), self.ratio[1])
        whole = (min(size[0], max(1, round(size[1] / inside))), min(size[1], max(1, round(size[0] * inside))))
        height = torch.where(some, heights.gather(0, first)[0], whole[0])
        width = torch.where(some, widths.gather(0, first)[0], whole[1])
        top = torch.where(some, (numbers[-2] * (size[0] - height + 1)).floor(), (size[0] - whole[0]) // 2)
        left = torch.where(some, (numbers[-1] * (size[1] - width + 1)).floor(), (size[1] - whole[1]) // 2)
        box = {"top": top, "left": left, "height": height, "width": width}
        return {name: values.long() for name, values in box.items()}

    def __call__(self, images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
        """Return the boxes of the images `(batch, channels, height, width)` as `(batch, channels, size, size)`."""
        sides = checked(images).shape[-2:]
        targets = sides if self.size is None else (self.size, self.size)
        top, left, height, width = (column(side, images) for side in (top, left, height, width))
        if targets[0] >= sides[0] and targets[1] >= sides[1]:
            y = places(top, height, sides[0], targets[0])
            x = places(left, width, sides[1], targets[1])
            # (batch, height, width, 2), x first
            grid = torch.stack([x.mT.expand(-1, targets[0], -1), y.expand(-1, -1, targets[1])], dim=-1)
            made = F.grid_sample(images, grid, align_corners=False)
        else:
            vertical = triangles(top, height, sides[0], targets[0])
            horizontal = triangles(left, width, sides[1], targets[1])
            # (batch, 1, target, source) @ (batch, channels, source, width), then the same from the right
            made = vertical @ images @ horizontal.mT
        return made.clamp_(0, 1)


def centres(length: Tensor, target: int) -> Tensor:
    """Return where `target` output pixels are centred in a box, in pixels; the box's first is centred at 0.

    Output pixel i covers i to i + 1 of `target` equal parts of the box, so it is centred at
    (i + 1/2) * length / target - 1/2. `length` is `(batch, 1, 1, 1)`, the result `(batch, 1, target, 1)` float32.
    """
    return (torch.arange(target, device=length.device).view(-1, 1) + 0.5) * (length / target) - 0.5


def places(start: Tensor, length: Tensor, source: int, target: int) -> Tensor:
    """Return those centres as `grid_sample` counts, -1 and 1 being the image's edges: `(batch, target, 1)`.

    They are kept between the box's first and last centre, so that nothing outside the box is looked at.
    """
    inside = torch.minimum(centres(length, target).clamp_min(0), length - 1)
    return ((2 * (start + inside) + 1) / source - 1).squeeze(1)


def triangles(start: Tensor, length: Tensor, source: int, target: int) -> Tensor:
    """Return the weights that make `target` pixels of pixels `start` to `start + length` of `source`.

    Args:
        start, length: `(batch, 1, 1, 1)`, whole pixels.

    Returns:
        `(batch, 1, target, source)` float32, each row summing to 1.
    """
    pixel = torch.arange(source, device=start.device) - start
    weights = (1 - (pixel - centres(length, target)).abs() / (length / target).clamp_min(1)).clamp_min_(0)
    weights = weights * ((pixel >= 0) & (pixel < length))
    return weights / weights.sum(-1, keepdim=True)
