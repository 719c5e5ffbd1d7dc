r"""What a shift of the image does to features, which should shift along, and to predictions, which should not.

A map f from images to features is shift-equivariant when :math:`f(T x) = T' f(x)`, where T moves the image by d
pixels and T' the features by d / stride cells. A strided layer keeps that only for multiples of its stride.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitlab.analysis.arrays import tensor

Mode = Literal["circular", "zero", "reflect"]
Shift = int | tuple[int, int]


def _source(size: int, by: int, mode: str) -> Tensor:
    """For each place the place its content comes from, or `size` where that is outside and filled by zero."""
    at = torch.arange(size) - by
    if mode == "circular":
        return at % size
    if mode == "zero":
        return torch.where((at >= 0) & (at < size), at, size)
    period = max(2 * (size - 1), 1)  # reflection about the border pixel: 2 1 | 0 1 2 3 | 2 1
    at = at % period
    return torch.minimum(at, period - at) if size > 1 else torch.zeros_like(at)


def shift(images: Any, dx: int, dy: int, mode: Mode = "circular") -> Any:
    """Move the content `dx` pixels to the right and `dy` down; negative moves left and up.

    Args:
        images: torch or numpy, `(..., height, width)`.
        dx, dy: whole pixels.
        mode: what enters at the border: "circular" what left at the other side, "zero" nothing, "reflect" the
            mirror image about the border pixel.

    Returns:
        The same kind and shape as `images`. Raises ValueError for another mode, shape or a broken pixel.
    """
    if mode not in ("circular", "zero", "reflect"):
        raise ValueError(f"A shift is 'circular', 'zero' or 'reflect', got {mode!r}.")
    if int(dx) != dx or int(dy) != dy:
        raise ValueError(f"A shift is in whole pixels, got dx={dx}, dy={dy}.")
    x = tensor(images)
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"A shift takes (..., height, width), got {tuple(x.shape)}.")
    rows = _source(x.shape[-2], int(dy), mode).to(x.device)
    columns = _source(x.shape[-1], int(dx), mode).to(x.device)
    if mode == "zero":
        x = torch.nn.functional.pad(x, (0, 1, 0, 1))  # one zero row and column to take from
    moved = x.index_select(-2, rows).index_select(-1, columns)
    return moved if isinstance(images, Tensor) else moved.numpy()


def _pair(by: Shift) -> tuple[int, int]:
    """A shift as (dx, dy); a single number moves along x."""
    return (by, 0) if isinstance(by, int | np.integer) else (by[0], by[1])


def _run(fn: Callable[[Tensor], Tensor], images: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    x = tensor(images)
    if x.ndim != 4 or x.numel() == 0 or not x.is_floating_point() or not x.isfinite().all():
        raise ValueError(
            f"Images are finite floats (batch, channels, height, width), got {tuple(x.shape)} {x.dtype}."
        )

    def run(batch: Tensor) -> Tensor:
        with torch.no_grad():
            out = fn(batch)
        if not isinstance(out, Tensor) or len(out) != len(batch) or not out.isfinite().all():
            raise ValueError(
                "The function should give one finite tensor, a row an image; look at what it returns."
            )
        return out.detach()

    return x, run


def _as_map(features: Tensor, grid: tuple[int, int] | None) -> Tensor:
    """Features as float64 `(batch, channels, rows, columns)`; tokens lose what comes before the patches."""
    f = features.double()
    if f.ndim == 4:
        return f
    if f.ndim != 3 or grid is None:
        raise ValueError(
            f"Features are a 4-d map, or 3-d tokens with their grid, got {tuple(f.shape)} and {grid=}."
        )
    prefix = f.shape[1] - grid[0] * grid[1]
    if prefix < 0:
        raise ValueError(f"A grid of {grid[0]} x {grid[1]} needs at least as many tokens, got {f.shape[1]}.")
    return f[:, prefix:].transpose(1, 2).unflatten(2, grid)


def _moves(d: int, stride: int, match: str) -> list[tuple[int, float]]:
    """Whole cells to move by, each with its share, for a shift of d pixels."""
    low, rest = divmod(d, stride)
    if rest == 0:
        return [(low, 1.0)]
    if match == "nearest":
        return [(low + (2 * rest >= stride), 1.0)]
    return [(low, 1 - rest / stride), (low + 1, rest / stride)]


def feature_shift_error(
    fn: Callable[[Tensor], Tensor],
    images: Any,
    shifts: Sequence[Shift],
    stride: int,
    grid: tuple[int, int] | None = None,
    mode: Mode = "circular",
    match: Literal["nearest", "best", "linear"] = "nearest",
    relative_to: Literal["norm", "variation"] = "norm",
) -> NDArray[np.float64]:
    r"""How far the features of the shifted image are from the shifted features, for each shift and image.

    With a = f(T x), b = T' f(x) and norms over channels and cells, the error is :math:`\lVert a - b \rVert` over
    :math:`\lVert b \rVert` ("norm"), or over :math:`\sqrt{\lVert a - m \rVert^2 + \lVert b - m \rVert^2}` with m
    the mean of b over cells ("variation": 1 is as far apart as unrelated places, whatever all places share).

    Args:
        fn: images to features: a map `(batch, channels, rows, columns)`, or tokens `(batch, tokens, dim)` of which
            the last rows * columns are patches; what stands before them (CLS) is dropped.
        images: `(batch, channels, height, width)`, float.
        shifts: pixels to the right, or pairs (dx, dy).
        stride: pixels a feature cell.
        grid: rows and columns of cells; tokens need it.
        mode: how the image is shifted, see `shift`. Circular features roll. In the other modes cells that drew on
            what entered the image are left out; what a wide receptive field saw of the border stays in.
        match: T' where d is no multiple of the stride: "nearest" moves by d / stride rounded half up, "best" takes
            for each image the smallest error among the whole moves on either side, "linear" blends those moves.
        relative_to: what the error is a share of, as above.

    Returns:
        `(shifts, batch)`; average over the images last, for their spread is the uncertainty.

    Raises:
        ValueError: features that do not fit the grid or the stride, no cell left to compare, features all zero.
    """
    if match not in ("nearest", "best", "linear") or relative_to not in ("norm", "variation"):
        raise ValueError(
            f"match is nearest, best or linear, relative_to norm or variation, got {match, relative_to}."
        )
    x, run = _run(fn, images)
    still = _as_map(run(x), grid)
    if (still.shape[2] * stride, still.shape[3] * stride) != tuple(x.shape[2:]):
        cells = " x ".join(map(str, still.shape[2:]))
        raise ValueError(
            f"{cells} cells of {stride} px do not tile images {tuple(x.shape[2:])}; check the stride."
        )
    fill: Mode = "circular" if mode == "circular" else "zero"
    errors = []
    for dx, dy in map(_pair, shifts):
        moved = _as_map(run(shift(x, dx, dy, mode)), grid)
        corners = [
            (shift(still, cx, cy, fill), wx * wy)
            for (cx, wx), (cy, wy) in itertools.product(_moves(dx, stride, match), _moves(dy, stride, match))
        ]
        if match == "linear":
            corners = [(torch.stack([f * w for f, w in corners]).sum(0), 1.0)]
        keep = torch.ones(still.shape[2:], dtype=still.dtype, device=still.device)
        if mode != "circular":  # away from zero: a cell that drew on the border in part is out
            out_x, out_y = (int(np.sign(d)) * -(-abs(d) // stride) for d in (dx, dy))
            keep = shift(keep, out_x, out_y, "zero")
            if not keep.any():
                raise ValueError(f"A shift by ({dx}, {dy}) leaves no cell to compare; shift by less.")
        errors.append(torch.stack([_error(moved, f, keep, relative_to) for f, _ in corners]).amin(0))
    return torch.stack(errors).cpu().numpy()


def _error(a: Tensor, b: Tensor, keep: Tensor, relative_to: str) -> Tensor:
    """The relative error of each image, `(batch,)`, over the cells kept."""

    def norm(f: Tensor) -> Tensor:
        return (f * keep).flatten(1).norm(dim=1)

    scale = norm(b)
    if relative_to == "variation":
        m = (b * keep).sum((2, 3), keepdim=True) / keep.sum()
        scale = torch.hypot(norm(a - m), norm(b - m))
    if (scale == 0).any():
        raise ValueError("The features of an image do not vary or are all zero, so no error is relative to them.")
    return norm(a - b) / scale


def _logits(run: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    out = run(batch)
    if out.ndim != 2 or out.shape[1] < 2:
        raise ValueError(f"Predictions are logits (batch, classes), got {tuple(out.shape)}.")
    return out


def prediction_flips(
    fn: Callable[[Tensor], Tensor], images: Any, shifts: Sequence[Shift], mode: Mode = "circular"
) -> NDArray[np.bool_]:
    """Whether the largest logit is another one after the shift, `(shifts, batch)`; its mean is the share of flips.

    `fn` maps images `(batch, channels, height, width)` to logits `(batch, classes)`; shifts as in
    `feature_shift_error`.
    """
    x, run = _run(fn, images)
    still = _logits(run, x).argmax(1)
    flips = [_logits(run, shift(x, *_pair(by), mode)).argmax(1) != still for by in shifts]
    return torch.stack(flips).cpu().numpy()


def logit_error(
    fn: Callable[[Tensor], Tensor], images: Any, shifts: Sequence[Shift], mode: Mode = "circular"
) -> NDArray[np.float64]:
    r"""How far a shift moves the logits, :math:`\lVert f(Tx) - f(x) \rVert / \lVert f(x) \rVert`.

    Shape `(shifts, batch)`. Logits are centred over the classes first, for the softmax does not see their mean.
    """
    x, run = _run(fn, images)

    def centred(batch: Tensor) -> Tensor:
        out = _logits(run, batch).double()
        return out - out.mean(1, keepdim=True)

    still = centred(x)
    scale = still.norm(dim=1)
    if (scale == 0).any():
        raise ValueError("An image's logits are all equal, so no error is relative to them; train or initialise.")
    errors = [(centred(shift(x, *_pair(by), mode)) - still).norm(dim=1) / scale for by in shifts]
    return torch.stack(errors).cpu().numpy()
