"""A curve that grows while a cell runs, for whoever trains in a live notebook."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from vitlab.show import page
from vitlab.show.figures import ShownFigure, figure
from vitlab.show.plots import lines
from vitlab.show.widgets import live

SECONDS = 1.0  # between two drawings, each of which takes a fraction of one


def curve(label: str, xlabel: str) -> Callable[[float, float], None]:
    """Return `point(x, y)`, which adds a point to a curve under the running cell, if a kernel answers there.

    It is redrawn at most once a second. A value that is not finite is left out: what stops a training says so
    itself. Raises ValueError for labels that say nothing.
    """
    page.sentence(label, "The label of a curve")
    page.sentence(xlabel, "The label of a curve's axis")
    points: list[tuple[float, float]] = []
    shown: dict[str, Any] = {"at": -math.inf, "handle": None}

    def point(x: float, y: float) -> None:
        if math.isfinite(x) and math.isfinite(y):
            points.append((x, y))
        if not live() or len(points) < 2 or time.monotonic() - shown["at"] < SECONDS:
            return
        from IPython.display import display

        picture = drawn(points, label, xlabel)
        if shown["handle"] is None:
            shown["handle"] = display(picture, display_id=True)
        else:
            shown["handle"].update(picture)
        shown["at"] = time.monotonic()

    return point


def drawn(points: list[tuple[float, float]], label: str, xlabel: str) -> ShownFigure:
    """Draw the curve as far as it has come."""

    def draw(fig: Any) -> None:
        ax = fig.add_subplot()
        lines(ax, *zip(*points, strict=True))
        ax.set(xlabel=xlabel, ylabel=label)

    last = f"{label}, {points[-1][1]:.3g} at {xlabel} {points[-1][0]:g}"
    return figure(draw, alt=f"A growing curve: {last}.", caption=f"So far: {last}.", size=(7, 3))
