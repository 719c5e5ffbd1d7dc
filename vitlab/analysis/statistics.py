"""How sure a mean is: intervals over images by bootstrap, over a few seeds by Student's t, over both at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from vitlab.analysis.arrays import tensor

Array = NDArray[Any]


class Interval(NamedTuple):
    """A mean with the interval around it; arrays of one shape, without the axes averaged over."""

    mean: Array
    low: Array
    high: Array


def _values(values: Any, level: float) -> Array:
    x = tensor(values).cpu().double().numpy()
    if not 0 < level < 1:
        raise ValueError(f"The level of an interval lies between 0 and 1, got {level}; 0.95 is usual.")
    if x.ndim == 0 or x.size == 0 or not np.isfinite(x).all():
        raise ValueError(f"An interval needs finite numbers along an axis, got shape {x.shape} or NaN in it.")
    return x


def _percentiles(mean: Array, means: Array, level: float) -> Interval:
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Interval(mean, low, high)


def seeds_interval(values: Any, axis: int = 0, level: float = 0.95) -> Interval:
    """The mean over a few seeds and its Student t interval, for two values or more.

    With three seeds a bootstrap knows ten different means and is far too narrow; t assumes normal values instead,
    and is honest about how little three say: at 95 % it spans 4.3 standard errors either way.
    """
    x = _values(values, level)
    n = x.shape[axis]
    if n < 2:
        raise ValueError(f"An interval over seeds needs two or more, got {n}; run another seed.")
    mean = x.mean(axis)
    half = student.ppf((1 + level) / 2, n - 1) * x.std(axis, ddof=1) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def interval(values: Any, axis: int = 0, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The mean over many independent values (images) and its percentile bootstrap interval.

    Whole slices along `axis` are drawn again, so entries of one image stay together. Deterministic by `seed`.
    Raises ValueError below ten values, where a bootstrap is too narrow: there use `seeds_interval`.

    Source: Efron 1979, doi 10.1214/aos/1176344552.
    """
    x = np.moveaxis(_values(values, level), axis, 0)
    n = len(x)
    if n < 10:
        raise ValueError(f"A bootstrap over {n} values is too narrow; give ten or more, or use seeds_interval.")
    rng = np.random.default_rng(seed)
    means = np.stack([x[rng.integers(n, size=n)].mean(0) for _ in range(resamples)])
    return _percentiles(x.mean(0), means, level)


def bootstrap_images(values: Any, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The mean over seeds and images, `(seeds, images, ...)`, and its interval with both drawn again.

    Every seed saw the same images, so seeds and images are drawn apart and crossed. One fewer of each is drawn
    than there are, which makes the variance of the drawn means unbiased (drawing all n makes it (n - 1) / n of
    what it should be: a third short with three seeds). With fewer than five seeds the interval is
    still a little narrow; set `seeds_interval` of the seeds' means beside it.

    Raises ValueError below three seeds or ten images.

    Source: McCarthy and Snowden 1985, The bootstrap and finite population sampling (drawing n - 1).
    """
    x = _values(values, level)
    if x.ndim < 2 or x.shape[0] < 3 or x.shape[1] < 10:
        raise ValueError(f"Values are (seeds, images, ...), three seeds and ten images or more, got {x.shape}.")
    rng = np.random.default_rng(seed)
    seeds, images = x.shape[:2]
    means = []
    for _ in range(resamples):
        # Counts instead of copies: how often each was drawn, as weights that sum to 1.
        s = np.bincount(rng.integers(seeds, size=seeds - 1), minlength=seeds) / (seeds - 1)
        i = np.bincount(rng.integers(images, size=images - 1), minlength=images) / (images - 1)
        means.append(np.tensordot(i, np.tensordot(s, x, 1), 1))
    return _percentiles(x.mean((0, 1)), np.stack(means), level)


def crossed_interval(values: Any) -> Interval:
    """The mean over seeds and images, `(seeds, images, ...)`, and an interval that holds two, at 95 %.

    `bootstrap_images` knows the images and too little of few seeds; `seeds_interval` of the seeds' means knows how
    little few seeds say. This spans both. Errors as of the first.
    """
    x = _values(values, 0.95)
    drawn = bootstrap_images(x)
    student = seeds_interval(x.mean(1))
    return Interval(drawn.mean, np.minimum(drawn.low, student.low), np.maximum(drawn.high, student.high))


def sign(interval: Interval) -> int:
    """+1 or -1 where the interval of one number excludes zero, else 0: undecided."""
    return int(interval.low > 0) - int(interval.high < 0)


def apart(interval: Interval) -> list[Interval]:
    """The intervals of the places along the first axis, one by one."""
    return [Interval(*place) for place in zip(*interval, strict=True)]
