"""What chapters draw again and again: lines with bands, references, matrices, and a map laid over an image.

Nothing here estimates: means, intervals and maps come ready made, and a missing number is refused, not skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from vitlab.show import page, style

_END_LABEL = "vl-end-label"


def array(value: Any, what: str, ndim: int | None = None) -> np.ndarray:
    """Take a tensor or anything numpy reads as an array of finite numbers.

    Raises ValueError when it is empty, holds NaN or infinity, or has other than `ndim` dimensions.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # bfloat16 has no numpy counterpart.
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    try:
        out = np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{what} must be numbers in one regular array: the rows given differ in length."
        ) from None
    if out.dtype.kind not in "fiub":
        raise ValueError(f"{what} must be real numbers, not {out.dtype}: convert them first.")
    if ndim is not None and out.ndim != ndim:
        raise ValueError(f"{what} must have {ndim} dimension{'s' * (ndim != 1)}, not the shape {out.shape}.")
    if not out.size:
        raise ValueError(f"{what} must hold at least one number, not the shape {out.shape}.")
    if out.dtype.kind == "f" and not np.isfinite(out).all():
        bad = int((~np.isfinite(out)).sum())
        raise ValueError(
            f"{what} must be finite, but {bad} of {out.size} are NaN or infinite: find out why first."
        )
    return out


def lines(
    ax: Axes,
    x: Any,
    mean: Any,
    low: Any = None,
    high: Any = None,
    *,
    label: str | None = None,
    colour: str | None = None,
    dashed: bool = False,
    markers: bool = False,
) -> str:
    """Draw a line, a band from `low` to `high` about it, and its name at its end; return its colour.

    `x`, `mean`, `low`, `high` have the shape (points,). Name in the caption what the band is (an interval over
    seeds, say). Labels of lines that end close together are moved apart when the figure is finished.

    Raises ValueError for shapes that differ, numbers that are not finite, or a band that does not hold its line.
    """
    x, mean = array(x, "x", 1), array(mean, "The line's values", 1)
    if (low is None) != (high is None):
        raise ValueError("A band needs both its edges: give low and high, or neither.")
    edges = (
        [] if low is None else [array(low, "The band's lower edge", 1), array(high, "The band's upper edge", 1)]
    )
    if any(values.shape != x.shape for values in (mean, *edges)):
        shapes = ", ".join(str(values.shape) for values in (mean, *edges))
        raise ValueError(f"x has the shape {x.shape}, so the line and its band must have it too, not {shapes}.")
    (line,) = ax.plot(
        x, mean, color=colour, linestyle=(0, (4, 2.5)) if dashed else "-", marker="o" if markers else None
    )
    drawn = to_hex(line.get_color())
    if edges:
        slack = 1e-9 * (1 + np.abs(mean).max())
        if (edges[0] > mean + slack).any() or (edges[1] < mean - slack).any():
            raise ValueError("The band does not hold its line: low must not exceed the mean, nor the mean high.")
        ax.fill_between(x, edges[0], edges[1], color=drawn, alpha=0.22, linewidth=0)
    if label:
        name = ax.annotate(
            label, (x[-1], mean[-1]), (7, 0), textcoords="offset points", color=drawn, va="center",
            annotation_clip=False,
        )  # fmt: skip
        name.set_gid(_END_LABEL)
    return drawn


def reference(ax: Axes, value: float, label: str) -> None:
    """Draw a dashed level across the axes, in muted ink, with its name above its left end.

    Raises ValueError when the value is not one finite number.
    """
    level = float(array(value, "A reference", 0))
    ink = style.look().muted
    ax.axhline(level, color=ink, linewidth=1.4, linestyle=(0, (4, 2.5)), zorder=1.5)
    ax.annotate(
        label, (0, level), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points", color=ink
    )  # fmt: skip


def heat(
    ax: Axes,
    matrix: Any,
    *,
    label: str,
    signed: bool = False,
    limits: tuple[float, float] | None = None,
    extent: tuple[float, float, float, float] | None = None,
) -> Colorbar:
    """Draw a matrix (rows, columns) as colours, with a bar that says what they mean.

    `label` names the quantity and its unit. Colours run through viridis, even steps for the eye and safe for the
    colour blind; `signed=True` takes blue for negative and red for positive, white at zero. `limits` are the
    values at the ends of the bar, for panels that must compare; `extent` is (left, right, bottom, top) in axis
    units.

    Raises ValueError for a matrix that is not finite or not two-dimensional, and for limits that are not in order.
    """
    page.sentence(label, "The label of a heat map")
    values = array(matrix, "A heat map", 2).astype(float)
    if limits is None:
        top = float(np.abs(values).max()) or 1.0
        limits = (-top, top) if signed else (float(values.min()), float(values.max()))
    elif not limits[0] < limits[1]:
        raise ValueError(f"A heat map's limits are (low, high) with low below high, not {limits!r}.")
    image = ax.imshow(
        values, cmap="RdBu_r" if signed else "viridis", vmin=limits[0], vmax=limits[1], extent=extent
    )
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    beyond = (bool(values.min() < limits[0]), bool(values.max() > limits[1]))
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond, "neither")
    figure = ax.get_figure()
    assert figure is not None
    # In an inset the bar keeps the height of a matrix drawn with square cells.
    bar = figure.colorbar(image, cax=ax.inset_axes((1.05, 0, 0.06, 1)), extend=extend, label=label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    return bar


def overlay(ax: Axes, picture: np.ndarray, weights: Any, *, limits: tuple[float, float]) -> Any:
    """Lay a map of weights (rows, columns) over an image (height, width, 3) uint8 and return the map's artist.

    The image fades to grey under the colours of inferno; `limits` are the weights at the ends of their scale.
    Raises ValueError for weights that are negative or not finite.
    """
    values = array(weights, "A map over an image", 2).astype(float)
    not_negative(values)
    height, width = picture.shape[:2]
    grey = picture.astype(float) @ (0.299, 0.587, 0.114)
    extent = (0, width, height, 0)
    ax.imshow(grey, cmap="gray", vmin=0, vmax=255, extent=extent, aspect="auto")
    artist = ax.imshow(
        values, cmap="inferno", vmin=limits[0], vmax=limits[1], alpha=0.65, extent=extent, aspect="auto"
    )
    ax.set_axis_off()
    return artist


def not_negative(weights: np.ndarray) -> None:
    """Raise ValueError when a weight to be laid over an image is below zero."""
    if weights.min() < 0:
        raise ValueError(f"A map over an image must not be negative, but its least value is {weights.min():.3g}.")


def settle(figure: Figure) -> None:
    """Move the labels at the ends of lines apart, each as little as it takes."""
    for ax in figure.axes:
        names = [text for text in ax.texts if text.get_gid() == _END_LABEL]
        if len(names) < 2:
            continue
        gap = 1.2 * style.FONT_POINTS * figure.dpi / 72
        wanted = [float(ax.transData.transform(name.xy)[1]) for name in names]  # type: ignore[attr-defined]
        order = sorted(range(len(names)), key=wanted.__getitem__)
        for place, height in zip(order, spread([wanted[i] for i in order], gap), strict=True):
            names[place].set_position((7, (height - wanted[place]) * 72 / figure.dpi))


def spread(wanted: list[float], gap: float) -> list[float]:
    """Give the heights nearest to the sorted ones `wanted` (least squares) that are at least `gap` apart."""
    # With the gaps taken out the heights must only not fall: pool neighbours that do (isotonic regression).
    pools: list[tuple[float, int]] = []
    for place, height in enumerate(wanted):
        mean, count = height - place * gap, 1
        while pools and pools[-1][0] > mean:
            other, size = pools.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        pools.append((mean, count))
    flat = [mean for mean, count in pools for _ in range(count)]
    return [height + place * gap for place, height in enumerate(flat)]
