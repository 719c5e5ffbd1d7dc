"""Controls made from images, or from nothing: scrambled phases, lost resolution, noise with a chosen spectrum.

Each keeps some of what an image set has and destroys the rest, so that what a measurement owes to which can be
asked. All take and give images `(N, H, W, 3)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .imageset import whole
from .pixels import square

Array = NDArray[Any]


def phases(images: Array, seed: int = 0) -> Array:
    """The images with the phases of white noise added to their own: the same power at every frequency, no forms.

    The power spectrum of each channel and the correlations between channels stay as they are, and with them the
    mean and, up to the border, the autocovariance; edges, objects and places do not. All channels of an image get
    the same phases, every image its own.

    Args:
        images: `(N, H, W, 3)` uint8, or float in [0, 1].
        seed: decides the phases; image i depends on it and on i alone.

    Returns:
        `(N, H, W, 3)` float32 in units of [0, 1], of which some values lie outside: clip them to look at, but not
        to measure, since clipping would change the spectrum.

    Raises:
        ValueError: images of another shape or kind.

    Source: Oppenheim and Lim 1981, doi 10.1109/PROC.1981.12022.
    """
    x = _floats(images)
    out = np.empty_like(x)
    for i, image in enumerate(x):
        noise = np.random.default_rng((whole(seed, "seed", 0), i)).standard_normal(image.shape[:2])
        turn = np.fft.fft2(noise)
        turn = turn / abs(turn)
        turn[0, 0] = 1  # the mean stays, whatever the sign of the noise's
        out[i] = np.fft.ifft2(np.fft.fft2(image, axes=(0, 1)) * turn[..., None], axes=(0, 1)).real
    return out.astype(np.float32)


def upsampled(images: Array, low: int) -> Array:
    """Square uint8 images shrunk to `low` pixels a side and brought back to their size, both by `load`'s filter.

    What a set of small pictures looks like to a network for large ones. Raises ValueError for other images, or for
    a `low` that is not smaller than they are.
    """
    low = whole(low, "low", 2)
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[3] != 3 or images.shape[1] != images.shape[2]:
        raise ValueError(f"Square uint8 images (N, H, H, 3) are wanted, got {images.dtype} {images.shape}.")
    size = images.shape[1]
    if low >= size:
        raise ValueError(f"Images of {size} pixels lose nothing at low={low}; choose a smaller one.")
    return np.stack([np.asarray(square(square(Image.fromarray(image), low), size)) for image in images])


def noise(count: int, size: int, exponent: float = 0.0, seed: int = 0, spread: float = 0.2) -> Array:
    """Gaussian noise whose power falls as frequency to the minus `exponent`: 0 is white, 2 is like photographs.

    Every channel is drawn alone and has mean 0.5 and standard deviation `spread` in each image; none is clipped.

    Args:
        count: how many images, N.
        size: their side in pixels.
        exponent: of the power spectrum, 0 or more; frequency 0 has no power.
        seed: decides the images; image i depends on it and on i alone.
        spread: standard deviation over the pixels of a channel.

    Returns:
        `(N, size, size, 3)` float32 in units of [0, 1].

    Raises:
        ValueError: a negative exponent, or sizes that are none.

    Source: Field 1987, doi 10.1364/JOSAA.4.002379, for the exponent of photographs.
    """
    count, size = whole(count, "count"), whole(size, "size", 2)
    if not 0 <= exponent < np.inf or not 0 < spread < np.inf:
        raise ValueError(f"An exponent of 0 or more and a spread above 0 are wanted, got {exponent} and {spread}.")
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = 1
    shape = frequency ** (-exponent / 2)
    shape[0, 0] = 0
    out = np.empty((count, 3, size, size), np.float32)
    for i in range(count):
        white = np.random.default_rng((whole(seed, "seed", 0), i)).standard_normal((3, size, size))
        x = np.fft.irfft2(np.fft.rfft2(white) * shape, s=(size, size))
        out[i] = 0.5 + spread * x / x.std((1, 2), keepdims=True)
    return np.ascontiguousarray(out.transpose(0, 2, 3, 1))


def _floats(images: Array) -> Array:
    """Images as float64 in units of [0, 1]."""
    if images.ndim != 4 or images.shape[3] != 3 or 0 in images.shape:
        raise ValueError(f"Images (N, H, W, 3) are wanted, got {images.shape}.")
    if images.dtype == np.uint8:
        return images / 255.0
    if images.dtype.kind != "f":
        raise ValueError(f"Images are uint8, or float in [0, 1], got {images.dtype}.")
    return images.astype(np.float64)
