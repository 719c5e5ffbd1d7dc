"""The house style: one palette on a light and a dark ground, and sizes that a phone can still show.

The palette is Okabe and Ito's idea (blue, vermilion, green, purple, neutral; https://jfly.uni-koeln.de/color/)
moved until each colour has 4.5:1 on its ground, so that it can be the ink of a label too, and until any two of the
five stay apart under the colour vision deficiencies of Machado et al., 2009
(https://doi.org/10.1109/TVCG.2009.113).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cycler import cycler

# A page shows an inch of figure as 92 px, so the usual 7 inches are 644 px: a book's column. On a phone of 375 px
# the same picture is 343 px wide and 13 pt letters are still 8.9 px high.
PIXELS_PER_INCH = 92
OVERSAMPLE = 2
FONT_POINTS = 13


@dataclass(frozen=True)
class Look:
    """One of the two looks: its ground, its inks, and five colours for data, strongest contrast of kind first."""

    name: str
    ground: str
    ink: str
    muted: str
    faint: str
    colours: tuple[str, ...]


LIGHT = Look(
    name="light",
    ground="#ffffff",
    ink="#1f2328",
    muted="#5b6169",
    faint="#d9dde2",
    colours=("#1b72d8", "#c2410c", "#12574a", "#8a1c7c", "#767676"),
)
DARK = Look(
    name="dark",
    ground="#14181d",
    ink="#e3e7ec",
    muted="#a3abb5",
    faint="#3a414b",
    colours=("#3da5ff", "#ee8a3c", "#4fd0a4", "#d65fae", "#f0eee6"),
)


def parameters(look: Look) -> dict[str, Any]:
    """Give matplotlib's parameters for a look."""
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": look.muted,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.labelcolor": look.ink,
        "axes.labelsize": FONT_POINTS,
        "axes.linewidth": 0.9,
        "axes.prop_cycle": cycler(color=look.colours),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": look.ink,
        "axes.titlelocation": "left",
        "axes.titlesize": FONT_POINTS,
        "axes.titleweight": "bold",
        "figure.dpi": PIXELS_PER_INCH * OVERSAMPLE,
        "figure.facecolor": "none",
        "figure.titlesize": FONT_POINTS,
        "font.family": ["DejaVu Sans"],  # the one font matplotlib brings along: the same picture on every machine
        "font.size": FONT_POINTS,
        "grid.color": look.faint,
        "grid.linewidth": 0.8,
        "image.cmap": "viridis",
        "image.interpolation": "nearest",
        "legend.frameon": False,
        "legend.fontsize": FONT_POINTS,
        "lines.linewidth": 2.2,
        "lines.markersize": 6,
        "lines.solid_capstyle": "round",
        "patch.edgecolor": look.ground,
        "text.color": look.ink,
        "xtick.color": look.muted,
        "xtick.labelcolor": look.ink,
        "xtick.labelsize": FONT_POINTS,
        "xtick.major.size": 4,
        "ytick.color": look.muted,
        "ytick.labelcolor": look.ink,
        "ytick.labelsize": FONT_POINTS,
        "ytick.major.size": 0,
    }


_current: list[Look] = [LIGHT]


def look() -> Look:
    """Give the look being drawn, for a colour matplotlib's parameters do not hold."""
    return _current[-1]


@contextmanager
def wearing(chosen: Look) -> Iterator[None]:
    """Draw in one look, starting from matplotlib's defaults so that no reader's own settings show through."""
    import matplotlib.style

    with matplotlib.style.context(["default", parameters(chosen)]):
        _current.append(chosen)
        try:
            yield
        finally:
            _current.pop()
