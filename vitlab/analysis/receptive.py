r"""Which pixels a unit can see, and which it does see.

The *graph reach* of a unit is every pixel with a path to it through the model's operations, whatever the weights.
It is found exactly by sending NaN backwards from the unit: NaN survives every sum and every product, even with a
zero weight. The *gradient reach* is where the derivative is not zero, and its size is the effective receptive
field: what these weights make of the graph. Pixels are counted at their centres: pixel (y, x) lies at y, x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.analysis.arrays import tensor

Unit = int | tuple[int, int]


def _at_unit(fn: Callable[[Tensor], Tensor], images: Any, unit: Unit) -> tuple[Tensor, Tensor]:
    """The images, ready to be differentiated, and the output at the unit, `(batch, channels)`."""
    x = tensor(images).clone()
    if x.ndim != 4 or x.numel() == 0 or not x.is_floating_point():
        raise ValueError(f"Images are floats (batch, channels, height, width), got {tuple(x.shape)} {x.dtype}.")
    out = fn(x.requires_grad_())
    place = unit if isinstance(unit, tuple) else (unit,)
    if not isinstance(out, Tensor) or (out.ndim, len(place)) not in ((4, 2), (3, 1), (2, 1)):
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"A unit is (row, column) of a map, or a token's or logit's number, got {unit} for {shape}."
        )
    sizes = out.shape[2:] if out.ndim == 4 else out.shape[1:2]
    if not all(-n <= i < n for i, n in zip(place, sizes, strict=True)):
        raise ValueError(f"The unit {unit} lies outside the output's places {tuple(sizes)}.")
    if not out.requires_grad:
        raise ValueError("The function's output has lost its gradient; call it without no_grad, detach or numpy.")
    if not out.isfinite().all():
        raise ValueError("The function's output has NaN or infinity; look at its weights and images.")
    picked = out[(slice(None), slice(None), *place)] if out.ndim == 4 else out[:, place[0]]
    return x, picked.reshape(len(x), -1)


@contextmanager
def _plain_convolutions() -> Iterator[None]:
    """Keep to convolutions by matrix product.

    Winograd and FFT mix neighbouring pixels in a way that cancels for numbers, and not for NaN.
    """
    backends = (torch.backends.mkldnn, torch.backends.cudnn)
    before = [backend.enabled for backend in backends]
    try:
        for backend in backends:
            backend.enabled = False
        yield
    finally:
        for backend, enabled in zip(backends, before, strict=True):
            backend.enabled = enabled


def graph_reach(fn: Callable[[Tensor], Tensor], images: Any, unit: Unit) -> NDArray[np.bool_]:
    """The pixels with a path to the unit through the operations of `fn`, whatever its weights.

    Args:
        fn: images to a map `(batch, channels, rows, columns)`, tokens `(batch, tokens, dim)` or logits
            `(batch, classes)`, in torch. Set the model to eval first: batch statistics join all images.
        images: `(batch, channels, height, width)`, float. The union over the batch is taken, since ReLU and max
            pooling close some paths for one image: give a few random ones where a model has them.
        unit: (row, column) of a map, or the number of a token or logit.

    Returns:
        `(height, width)`, True where a pixel can reach the unit. A masked attention weight is a path here, for
        masks are values, not structure: for windows made by masks take `reach(input_gradient(...))`.

    Raises:
        ValueError: images, output or unit of another shape; no gradient; an output that is not finite.
    """
    with torch.enable_grad(), _plain_convolutions():
        x, picked = _at_unit(fn, images, unit)
        (gradient,) = torch.autograd.grad(picked, x, torch.full_like(picked, math.nan))
    return gradient.isnan().any(0).any(0).cpu().numpy()


def input_gradient(
    fn: Callable[[Tensor], Tensor], images: Any, unit: Unit, draws: int = 1, seed: int = 0
) -> NDArray[np.float64]:
    r"""The effective receptive field: mean over images of :math:`|\partial u / \partial x|`, summed over colours.

    The unit's channels are joined into u by random normal weights, afresh for each image and draw. Their plain sum
    would not do: after a LayerNorm it is constant, and its gradient is zero everywhere.

    Args:
        fn, images, unit: as in `graph_reach`.
        draws: random weightings an image.
        seed: of the weightings.

    Returns:
        `(height, width)`, non-negative. Errors as in `graph_reach`.

    Source: Luo et al. 2016, arXiv 1701.04128.
    """
    if draws < 1:
        raise ValueError(f"input_gradient needs at least one draw, got {draws}.")
    generator = torch.Generator().manual_seed(seed)
    total: Tensor | float = 0.0
    with torch.enable_grad():
        x, picked = _at_unit(fn, images, unit)
        for left in reversed(range(draws)):
            weights = torch.randn(picked.shape, generator=generator).to(picked)
            (gradient,) = torch.autograd.grad(picked, x, weights, retain_graph=left > 0)
            total = total + gradient.abs().double().sum(1).mean(0) / draws
    assert isinstance(total, Tensor)
    return total.cpu().numpy()


def _map(gradient_map: Any) -> NDArray[np.float64]:
    g = tensor(gradient_map).cpu().double().numpy()
    if g.ndim != 2 or g.size == 0 or not np.isfinite(g).all() or g.min() < 0:
        raise ValueError(f"A gradient map is (height, width), finite and not negative, got shape {g.shape}.")
    if g.max() == 0:
        raise ValueError("The gradient map is zero everywhere; the unit sees nothing, so it has no field.")
    return g


def reach(gradient_map: Any, threshold: float = 0.0) -> NDArray[np.bool_]:
    """The pixels whose gradient exceeds `threshold` times the largest, `(height, width)`; 0 drops only zeros."""
    if not 0 <= threshold < 1:
        raise ValueError(f"The threshold is a share of the largest gradient, in [0, 1), got {threshold}.")
    g = _map(gradient_map)
    return g > threshold * g.max()


def extent(mask: Any) -> tuple[int, int]:
    """Height and width in pixels of the smallest box around the True pixels; (0, 0) if there are none."""
    m = np.asarray(mask, dtype=bool)
    if m.ndim != 2:
        raise ValueError(f"A mask is (height, width), got {m.shape}.")
    if not m.any():
        return 0, 0
    rows, columns = np.flatnonzero(m.any(1)), np.flatnonzero(m.any(0))
    return int(rows[-1] - rows[0] + 1), int(columns[-1] - columns[0] + 1)


def _squares(g: NDArray[np.float64], centre: tuple[float, float] | None) -> NDArray[np.float64]:
    """Squared distance of every pixel from the centre, by default the centre of mass."""
    y, x = np.indices(g.shape)
    cy, cx = centre if centre is not None else ((g * y).sum() / g.sum(), (g * x).sum() / g.sum())
    return np.asarray((y - cy) ** 2 + (x - cx) ** 2)


def radius(gradient_map: Any, mass: float = 0.95, centre: tuple[float, float] | None = None) -> float:
    """The radius in pixels of the smallest disc about `centre` that holds a share `mass` of the gradient.

    `centre` is (y, x) in pixels, by default the map's centre of mass; a patch of side p that starts at pixel s has
    its centre at s + (p - 1) / 2. The disc is read off at pixel centres, so a single pixel has radius 0.
    """
    if not 0 < mass <= 1:
        raise ValueError(f"The mass is a share of the gradient, in (0, 1], got {mass}.")
    g = _map(gradient_map)
    squares = _squares(g, centre)
    order = np.argsort(squares, axis=None, kind="stable")
    held = np.cumsum(g.ravel()[order])
    # The last sum is the whole; taking it as such keeps mass=1 from asking for more than round-off left.
    inside = np.searchsorted(held, mass * held[-1] * (1 - 1e-12))
    return float(math.sqrt(squares.ravel()[order][inside]))


def gaussian_width(gradient_map: Any, centre: tuple[float, float] | None = None) -> float:
    r"""The :math:`\sigma` in pixels of the round Gaussian with this map's mean squared distance from the centre.

    :math:`\sigma^2 = \sum g \, d^2 / (2 \sum g)`; 95 % of such a Gaussian lies within 2.45 sigma.
    """
    g = _map(gradient_map)
    return float(math.sqrt((g * _squares(g, centre)).sum() / (2 * g.sum())))


def theoretical_field(layers: Sequence[tuple[int, int]]) -> list[int]:
    r"""The field of a unit after each layer of a stack of convolutions or poolings, in pixels of the input.

    :math:`r_l = r_{l-1} + (k_l - 1) \prod_{i<l} s_i` with :math:`r_0 = 1`.

    Args:
        layers: (kernel, stride) of each; a dilated kernel counts as (k - 1) dilation + 1.

    Source: Araujo, Norris and Sim 2019, doi 10.23915/distill.00021.
    """
    field, jump, fields = 1, 1, []
    for kernel, stride in layers:
        if kernel < 1 or stride < 1:
            raise ValueError(f"A layer is (kernel, stride), both 1 or more, got {(kernel, stride)}.")
        field, jump = field + (kernel - 1) * jump, jump * stride
        fields.append(field)
    return fields
