"""Show results: figures in light and dark from one call, sliders and charts to choose from that need no server,
tables, and verdicts.

Nothing here estimates; it shows what a chapter measured. Every figure has an alt text, a caption and named axes.
"""

from __future__ import annotations

from vitlab.show.choosing import Axis, choose
from vitlab.show.figures import figure
from vitlab.show.grids import images, maps
from vitlab.show.growing import curve
from vitlab.show.plots import heat, lines, overlay, reference
from vitlab.show.style import look
from vitlab.show.text import say, table, told, verdict
from vitlab.show.widgets import interact, slider

__all__ = [
    "Axis",
    "choose",
    "curve",
    "figure",
    "heat",
    "images",
    "interact",
    "lines",
    "look",
    "maps",
    "overlay",
    "reference",
    "say",
    "slider",
    "table",
    "told",
    "verdict",
]
