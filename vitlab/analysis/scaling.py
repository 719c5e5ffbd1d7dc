r"""How error falls with the number of images: power laws, with a floor or without, and what a law would need.

A power law :math:`e(n) = a\,n^{-b}` is a line on logarithmic axes, with slope -b. It is a description, not a
theory: two laws that agree on the data can disagree without bound beyond them.

Source: Hestness et al. 2017, arXiv 1712.00409.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitlab.analysis.arrays import tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class PowerLaw:
    r"""The law :math:`e(n) = \mathrm{floor} + \mathrm{scale}\cdot n^{-\mathrm{exponent}}`."""

    scale: float
    exponent: float
    floor: float = 0.0

    def error(self, images: Any) -> Array:
        """The error that the law gives for these numbers of images, same shape."""
        return self.floor + self.scale * np.asarray(images, float) ** -self.exponent

    def images(self, error: float) -> float:
        """How many images the law asks for before the error is this low; infinite at the floor and below it."""
        if error <= self.floor or self.exponent <= 0:
            return math.inf
        exponent = math.log(self.scale / (error - self.floor)) / self.exponent
        return math.exp(exponent) if exponent < 700 else math.inf


def power_law(images: Any, error: Any) -> PowerLaw:
    """Fit a line to logarithmic error against logarithmic number of images, by least squares.

    Args:
        images: `(points,)`, positive, two different numbers or more.
        error: `(points,)`, positive.

    Raises:
        ValueError: too few points, or numbers that have no logarithm.
    """
    n, e = _points(images, error, 2)
    slope, level = np.polyfit(np.log(n), np.log(e), 1)
    return PowerLaw(math.exp(level), -float(slope))


def power_law_with_floor(images: Any, error: Any) -> PowerLaw:
    """Fit a law with a floor: of 400 floors from 0 to just under the least error, the one that leaves a line.

    Args: as of `power_law`, four different numbers of images or more, because three numbers are fitted.

    The misfit is the mean square of the logarithm of the error, as in `power_law`, so the two can be compared.
    """
    n, e = _points(images, error, 4)
    floors = np.linspace(0, e.min(), 400, endpoint=False)
    slopes, levels = np.polyfit(np.log(n), np.log(e[:, None] - floors), 1)  # a line for each floor
    made = floors + np.exp(levels) * n[:, None] ** slopes  # (points, floors)
    best = int(np.argmin(np.mean(np.log(made / e[:, None]) ** 2, axis=0)))
    return PowerLaw(math.exp(levels[best]), -float(slopes[best]), float(floors[best]))


def images_needed(images: Any, error: Any, target: float) -> float:
    """How many images a measured curve needs to reach an error: a straight line in logarithms between its points.

    Nothing is guessed beyond the points: infinite where no point is as low, and the first number of images where
    the first point is low enough already.
    """
    n, e = _points(images, error, 2)
    order = np.argsort(n)
    n, e = n[order], e[order]
    if not target > 0:
        raise ValueError(f"An error to reach is positive, got {target}; ask for a larger one.")
    low = np.flatnonzero(e <= target)
    if not len(low):
        return math.inf
    i = int(low[0])
    if i == 0:
        return float(n[0])
    share = math.log(e[i - 1] / target) / math.log(e[i - 1] / e[i])
    return float(math.exp(math.log(n[i - 1]) + share * math.log(n[i] / n[i - 1])))


def _points(images: Any, error: Any, least: int) -> tuple[Array, Array]:
    n, e = (tensor(x).cpu().double().numpy() for x in (images, error))
    if n.ndim != 1 or n.shape != e.shape or len(np.unique(n)) < least:
        raise ValueError(
            f"A law is fitted to {least} different numbers of images or more, each with its error, got shapes "
            f"{n.shape} and {e.shape}."
        )
    if not (np.isfinite(n).all() and np.isfinite(e).all() and n.min() > 0 and e.min() > 0):
        raise ValueError("Numbers of images and errors are positive and finite, or they have no logarithm.")
    return n, e
