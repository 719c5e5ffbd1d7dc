"""Grids of real images, drawn pixel for pixel, alone or under maps such as attention."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from vitlab.show import page, style
from vitlab.show.figures import ShownFigure, check_words, pair
from vitlab.show.plots import array, not_negative, overlay

# Lengths in this file are pixels of the finished picture, two to a pixel of the page.
_INCH = style.PIXELS_PER_INCH * style.OVERSAMPLE
_COLUMN = 7 * _INCH
_LARGEST = round(2.6 * _INCH)
_GAP = 14
_LETTER = 0.6 * style.FONT_POINTS * _INCH / 72
_LINE = round(1.3 * style.FONT_POINTS * _INCH / 72)


def pixels(image: Any, what: str = "An image") -> np.ndarray:
    """Take one image, uint8 (height, width, 3) or float (3, height, width) in [0, 1], as uint8 (height, width, 3).

    One channel in place of three is taken as grey. Raises ValueError for other shapes, for NaN, and for values
    outside [0, 1].
    """
    values = array(image, what, 3)
    if values.dtype == np.uint8:
        if values.shape[2] not in (1, 3):
            raise ValueError(f"{what} of bytes must have the shape (height, width, 3), not {values.shape}.")
    elif values.dtype.kind != "f":
        raise ValueError(f"{what} must be uint8, or float in [0, 1], not {values.dtype}: convert it first.")
    else:
        if values.shape[0] not in (1, 3):
            raise ValueError(f"{what} of floats must have the shape (3, height, width), not {values.shape}.")
        low, high = float(values.min()), float(values.max())
        if low < -1e-4 or high > 1 + 1e-4:
            raise ValueError(
                f"{what} of floats must lie in [0, 1], not {low:.3g} to {high:.3g}: undo the normalisation."
            )
        values = np.round(np.clip(values.astype(float), 0, 1).transpose(1, 2, 0) * 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:2], 3)))


def images(
    images: Any,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    *,
    alt: str,
    caption: str,
    scale: int | None = None,
) -> ShownFigure:
    """Show images side by side as one figure, each pixel of a small one as a crisp square.

    `images` are (count, height, width, 3) uint8, (count, 3, height, width) float in [0, 1], or a list of such
    images whose sizes may differ. `scale` is how many pixels of the page one pixel of an image takes; without it
    the images fill the column. Raises ValueError as `show.figure` and `pixels` do, and when there is not one title
    for each image.
    """
    tiles = _tiles(images)
    columns, cell = _columns(len(tiles), columns, titles)
    grid = _Grid.of([_fit(tile, cell, scale) for tile in tiles], titles, columns)
    return grid.show(lambda place, ax: ax.imshow(grid.tiles[place], aspect="auto"), alt, caption)


def maps(
    image: Any,
    maps: Any,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    *,
    label: str,
    alt: str,
    caption: str,
    limits: tuple[float, float] | None = None,
) -> ShownFigure:
    """Show an image and maps of non-negative weights over it, attention of each head say, on one scale.

    `image` is as in `images`; `maps` is (count, rows, columns). `label` names the weights and their unit under the
    bar of colours. `limits` are the values at the bar's ends; without them it runs from 0 to the largest weight.
    `titles` name the maps alone. Raises ValueError as `images` does, and for weights below zero.
    """
    page.sentence(label, "The label of maps")
    weights = array(maps, "The maps", 3).astype(float)
    not_negative(weights)
    limits = limits or (0.0, float(weights.max()) or 1.0)
    if not limits[0] < limits[1]:
        raise ValueError(f"The limits of maps are (low, high) with low below high, not {limits!r}.")
    if titles is not None:
        titles = ["image", *titles]
    columns, cell = _columns(len(weights) + 1, columns, titles)
    tile = _fit(pixels(image), cell, None)
    grid = _Grid.of([tile] * (len(weights) + 1), titles, columns)

    def fill(place: int, ax: Axes) -> Any:
        if place == 0:
            return ax.imshow(tile, aspect="auto")
        return overlay(ax, tile, weights[place - 1], limits=limits)

    return grid.show(fill, alt, caption, label)


def _tiles(given: Any) -> list[np.ndarray]:
    """Take a stack or a list of images apart."""
    if len(getattr(given, "shape", "four")) != 4:
        raise ValueError(f"Several images are wanted, not one array of the shape {tuple(given.shape)}: list them.")
    try:
        tiles = [pixels(image, f"Image {place}") for place, image in enumerate(given)]
    except TypeError:
        raise ValueError(f"A list or a stack of images is wanted, not a {type(given).__name__}.") from None
    if not tiles:
        raise ValueError("At least one image is wanted, and none was given.")
    return tiles


def _columns(count: int, columns: int | None, titles: Sequence[str] | None) -> tuple[int, int]:
    """Choose how many columns a grid has, and the longest side of a tile."""
    if titles is not None and len(titles) != count:
        raise ValueError(f"There are {count} images and {len(titles)} titles: give each image one.")
    if columns is not None and columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}.")
    if columns is None:
        # Four titled tiles in a row, or eight bare ones, are what a phone can show; then even rows.
        columns = math.ceil(count / math.ceil(count / (8 if titles is None else 4)))
    columns = min(columns, count)
    return columns, min((_COLUMN - _GAP * (columns - 1)) // columns, _LARGEST)


def _fit(tile: np.ndarray, cell: int, scale: int | None) -> np.ndarray:
    """Resize an image to its place: whole multiples of its pixels upwards, averages downwards."""
    if scale is not None and scale < 1:
        raise ValueError(f"scale must be a whole number from 1, not {scale!r}.")
    height, width = tile.shape[:2]
    times = max(1, cell // max(height, width))
    if scale is not None:
        times = min(times, scale * style.OVERSAMPLE)
    if times * max(height, width) <= cell:
        return tile.repeat(times, axis=0).repeat(times, axis=1)
    shrink = cell / max(height, width)
    size = (max(1, round(width * shrink)), max(1, round(height * shrink)))
    return np.asarray(Image.fromarray(tile).resize(size, Image.Resampling.LANCZOS))


@dataclass(frozen=True)
class _Grid:
    """Tiles, their titles in lines, and the left and upper corner of each."""

    tiles: list[np.ndarray]
    titles: list[list[str]]
    corners: list[tuple[int, int]]
    width: int
    height: int

    @classmethod
    def of(cls, tiles: list[np.ndarray], titles: Sequence[str] | None, columns: int) -> _Grid:
        """Lay tiles out in rows, each row as high as its tallest title and tile."""
        step = max(tile.shape[1] for tile in tiles)
        wrapped = [textwrap.wrap(title, max(4, int(step / _LETTER))) for title in titles or [""] * len(tiles)]
        corners: list[tuple[int, int]] = []
        top = 0
        for start in range(0, len(tiles), columns):
            row = range(start, min(start + columns, len(tiles)))
            lines = max(len(wrapped[place]) for place in row)
            top += lines * _LINE + (_LINE // 4 if lines else 0)
            corners += [((place - start) * (step + _GAP), top) for place in row]
            top += max(tiles[place].shape[0] for place in row) + _GAP
        return cls(tiles, wrapped, corners, columns * (step + _GAP) - _GAP, top - _GAP)

    def show(
        self, fill: Callable[[int, Axes], Any], alt: str, caption: str, label: str | None = None
    ) -> ShownFigure:
        """Show the grid, `fill(place, axes)` drawing each tile, with a bar of colours for `label` under it."""
        check_words(alt, caption)
        width = max(self.width, _LARGEST if label else 0)
        height = self.height + (round(0.85 * _INCH) if label else 0)

        def box(left: float, top: float, wide: float, high: float) -> tuple[float, float, float, float]:
            return left / width, 1 - (top + high) / height, wide / width, high / height

        def draw(fig: Figure) -> None:
            for place, ((left, top), tile, title) in enumerate(
                zip(self.corners, self.tiles, self.titles, strict=True)
            ):
                ax = fig.add_axes(box(left, top, tile.shape[1], tile.shape[0]))
                artist = fill(place, ax)
                ax.set_axis_off()
                x, y = left / width, 1 - (top - _LINE // 3) / height
                fig.text(x, y, "\n".join(title), va="baseline", linespacing=1.05)
            if label:
                # The bar lies on middle grey, as the maps lie on the image, so that its colours are theirs.
                bar = fig.add_axes(
                    box(0.3 * _INCH, self.height + 0.12 * _INCH, min(width - 0.6 * _INCH, 3 * _INCH), 0.13 * _INCH)
                )
                fig.colorbar(artist, cax=bar, orientation="horizontal", label=label).outline.set_visible(False)
                bar.set_facecolor("#808080")
                bar.locator_params(nbins=4)

        # A millionth more, lest rounding cut a row of pixels off.
        size = ((width + 1e-6) / _INCH, (height + 1e-6) / _INCH)
        return ShownFigure(pair(draw, alt=alt, size=size, layout=False), caption)
