"""How a scene is painted: colours, textures, shapes. All lengths are in image units: the side is 1, y runs down.

Every edge is a signed distance turned into the part of a pixel that is covered, so nothing is jagged and a
scene is the same picture at every size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

F = np.float32
WAVES = 32


@dataclass(frozen=True, eq=False)
class Palette:
    """Colours of n scenes: two background tones `(n, 3)`, and the hue that objects stand away from `(n,)`."""

    ground: np.ndarray
    figure: np.ndarray
    hue: np.ndarray


@dataclass(frozen=True, eq=False)
class Objects:
    """One object in each of n scenes: shape index, centre, radius `(n,)`, numbers for its look `(n, >=4)`."""

    shape: np.ndarray
    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    random: np.ndarray


def oklch(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """sRGB `(..., 3)` in [0, 1] of colours in OKLCH (Ottosson, 2020), where equal lightness looks equal."""
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    mid = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.stack(
        [
            4.0767416621 * long - 3.3077115913 * mid + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * mid - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * mid + 1.7076147010 * short,
        ],
        axis=-1,
    ).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055).astype(F)


def palette(random: np.ndarray) -> Palette:
    """Muted backgrounds in two tones of related hues; `random` `(n, >=6)` in [0, 1)."""
    hue = 2 * np.pi * random[:, 0]
    dark = oklch(0.36 + 0.14 * random[:, 1], 0.03 + 0.06 * random[:, 2], hue)
    light = oklch(0.72 + 0.17 * random[:, 3], 0.02 + 0.06 * random[:, 4], hue + 1.6 * (random[:, 5] - 0.5))
    swap = (random[:, 6] < 0.5)[:, None]
    return Palette(np.where(swap, light, dark), np.where(swap, dark, light), hue)


def background(texture: np.ndarray, random: np.ndarray, colours: Palette, size: int) -> np.ndarray:
    """The textures `(n,)` painted on canvases `(n, size, size, 3)` float32; `random` `(n, >=100)` in [0, 1)."""
    tone = np.empty((len(texture), size, size), dtype=F)
    for index, paint in enumerate(TEXTURES.values()):
        rows = np.flatnonzero(texture == index)
        if len(rows):
            tone[rows] = paint(random[rows].astype(F), size)
    canvas = colours.ground[:, None, None] + tone[..., None] * (colours.figure - colours.ground)[:, None, None]
    # A slow fall of light across the scene, from a random side.
    x, y = _grid(size)
    angle = (2 * np.pi * random[:, -1]).astype(F)[:, None, None]
    canvas *= (1 + F(0.22) * ((x - F(0.5)) * np.cos(angle) + (y - F(0.5)) * np.sin(angle)))[..., None]
    return canvas


def add_objects(canvas: np.ndarray, rows: np.ndarray, objects: Objects, colours: Palette, size: int) -> None:
    """Paint one object onto each of the canvases `rows`, in place, with its shadow, rim and shading."""
    for index, (distance, scale) in enumerate(SHAPES.values()):
        mine = rows[objects.shape[rows] == index]
        if not len(mine):
            continue
        r = objects.random[mine]
        radius = (objects.radius[mine] * scale).astype(F)[:, None, None]
        hue = colours.hue[mine] + 1.8 + 2.7 * r[:, 0]
        face = oklch(0.66 + 0.14 * r[:, 1], 0.13 + 0.06 * r[:, 2], hue)
        angle = (0.6 * (r[:, 3] - 0.5)).astype(F)[:, None, None]
        # Only the square window that the object and its shadow can reach is touched.
        reach = float(radius.max()) * 1.45 + 0.06
        side = min(size, int(np.ceil(2 * reach * size)) + 2)
        corner = [
            np.clip(np.floor((c[mine] - reach) * size), 0, size - side).astype(int) for c in (objects.x, objects.y)
        ]
        columns = corner[0][:, None, None] + np.arange(side)[None, None, :]
        lines = corner[1][:, None, None] + np.arange(side)[None, :, None]
        x = (columns.astype(F) + F(0.5)) / F(size) - objects.x[mine].astype(F)[:, None, None]
        y = (lines.astype(F) + F(0.5)) / F(size) - objects.y[mine].astype(F)[:, None, None]
        cos, sin = np.cos(angle), np.sin(angle)

        def signed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            """Distance to the edge in image units, negative inside."""
            return distance((x * cos + y * sin) / radius, (y * cos - x * sin) / radius) * radius  # noqa: B023

        pixels = canvas[mine[:, None, None], lines, columns]
        away = F(0.1) * radius + F(0.008)
        shadow = np.clip(F(0.5) - signed(x - away, y - away * F(1.4)) / (away * F(1.5)), 0, 1)
        pixels *= (1 - F(0.42) * shadow)[..., None]
        edge = signed(x, y)
        light = 1 - F(0.14) * (x * F(0.5) + y) / radius
        light *= 1 - F(0.34) * np.clip(1 + (edge - F(0.002)) / (F(0.05) * radius + F(0.006)), 0, 1)
        cover = np.clip(F(0.5) - edge * F(size), 0, 1)[..., None]
        pixels += cover * (face[:, None, None] * light[..., None] - pixels)
        canvas[mine[:, None, None], lines, columns] = pixels


# Textures: random numbers (n, >=100) and a size -> tones (n, size, size) in [0, 1].


def _grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    centres = (np.arange(size, dtype=F) + F(0.5)) / F(size)
    return centres[None, None, :], centres[None, :, None]


def _turned(random: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates turned by a random angle about a random point."""
    x, y = _grid(size)
    angle = F(2 * np.pi) * random[:, 0, None, None]
    x, y = x - random[:, 1, None, None], y - random[:, 2, None, None]
    return x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)


def _between(random: np.ndarray, low: float, high: float) -> np.ndarray:
    return (low + (high - low) * random)[:, None, None].astype(F)


def _bands(x: np.ndarray, period: np.ndarray, part: np.ndarray | float, size: int) -> np.ndarray:
    """1 in bands that take up `part` of each period, 0 between them."""
    phase = x / period
    phase -= np.floor(phase)
    return np.clip(F(0.5) + (F(0.5) * part - np.abs(phase - F(0.5))) * period * F(size), 0, 1)


def _stripes(random: np.ndarray, size: int) -> np.ndarray:
    u, v = _turned(random, size)
    u = u + _between(random[:, 3], 0.0, 0.03) * np.sin(v * _between(random[:, 4], 5, 12))
    return _bands(u, _between(random[:, 5], 0.11, 0.2), _between(random[:, 6], 0.38, 0.62), size)


def _checks(random: np.ndarray, size: int) -> np.ndarray:
    u, v = _turned(random, size)
    period = _between(random[:, 5], 0.2, 0.34)
    a, b = _bands(u, period, 0.5, size), _bands(v, period, 0.5, size)
    return a + b - 2 * a * b


def _dots(random: np.ndarray, size: int) -> np.ndarray:
    u, v = _turned(random, size)
    period = _between(random[:, 5], 0.13, 0.21)
    row = v / (period * F(0.866))
    line = np.floor(row)
    column = u / period + F(0.5) * (line % 2)
    away = np.hypot(column - np.floor(column) - F(0.5), (row - line - F(0.5)) * F(0.866)) * period
    return np.clip(F(0.5) + (_between(random[:, 6], 0.24, 0.36) * period - away) * F(size), 0, 1)


def _weave(random: np.ndarray, size: int) -> np.ndarray:
    u, v = _turned(random, size)
    period = _between(random[:, 5], 0.11, 0.17)
    i, j = np.floor(u / period), np.floor(v / period)
    # Across and along a thread, each from -1 to 1 within a cell; the parity says which thread lies on top.
    a, b = 2 * (u / period - i) - 1, 2 * (v / period - j) - 1
    top = (i + j) % 2 < 1
    across, along = np.where(top, a, b), np.where(top, b, a)
    gap = np.clip(F(0.5) + (F(0.84) - np.abs(across)) * period * F(0.5 * size), 0, 1)
    roundness = (1 - F(0.35) * across**2) * (1 - F(0.3) * along**2)
    return gap * roundness * np.where(top, F(1.0), F(0.62))


def _grain(random: np.ndarray, size: int) -> np.ndarray:
    """Noise of one octave: a sum of plane waves, written as a product of two small matrices."""
    theta = F(2 * np.pi) * random[:, :WAVES]
    phase = F(2 * np.pi) * random[:, WAVES : 2 * WAVES]
    cycles = _between(random[:, -2], 3.5, 5.5)[..., 0] * F(2) ** random[:, 2 * WAVES : 3 * WAVES]
    centres = (np.arange(size, dtype=F) + F(0.5)) / F(size)
    along = np.exp(2j * np.pi * (cycles * np.cos(theta))[:, :, None] * centres).astype(np.complex64)
    down = np.exp(1j * (2 * np.pi * (cycles * np.sin(theta))[:, :, None] * centres + phase[:, :, None]))
    field = np.matmul(down.astype(np.complex64).transpose(0, 2, 1), along).real * F(np.sqrt(2 / WAVES))
    return F(0.5) + F(0.5) * np.tanh(F(1.3) * field)


def _cells(random: np.ndarray, size: int) -> np.ndarray:
    """Pebbles around jittered points, with walls where two points are equally near (Worley, 1996)."""
    u, v = _turned(random, size)
    period = _between(random[:, 5], 0.15, 0.24)
    u, v = u / period, v / period
    i, j = np.floor(u).astype(np.int32), np.floor(v).astype(np.int32)
    salt = (random[:, 7] * 2**20).astype(np.uint32)[:, None, None]
    first = np.full(np.broadcast_shapes(u.shape, v.shape), 9, dtype=F)
    second, tone = first.copy(), np.zeros_like(first)
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            code = _scramble((i + di).astype(np.uint32) * np.uint32(73856093) ^ (j + dj).astype(np.uint32), salt)
            jitter_u, jitter_v, own = (
                ((code >> np.uint32(k)) & np.uint32(255)).astype(F) / F(255) for k in (0, 8, 16)
            )
            away = np.hypot(i + di + F(0.15) + F(0.7) * jitter_u - u, j + dj + F(0.15) + F(0.7) * jitter_v - v)
            nearer = away < first
            second = np.where(nearer, first, np.minimum(second, away))
            first = np.where(nearer, away, first)
            tone = np.where(nearer, own, tone)
    wall = np.clip(F(0.5) + ((second - first) * F(0.5) - F(0.07)) * period * F(size), 0, 1)
    return wall * (F(0.55) + F(0.45) * tone) * (1 - F(0.25) * first)


def _scramble(code: np.ndarray, salt: np.ndarray) -> np.ndarray:
    """Well-mixed 32-bit numbers from cell numbers."""
    code = (code ^ (salt * np.uint32(0x9E3779B1))) * np.uint32(0x85EBCA6B)
    code = (code ^ (code >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return code ^ (code >> np.uint32(16))


TEXTURES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "stripes": _stripes,
    "checks": _checks,
    "dots": _dots,
    "weave": _weave,
    "cells": _cells,
    "grain": _grain,
}


# Shapes: coordinates in units of the radius -> signed distance in the same unit, negative inside.


def _disc(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.hypot(x, y) - 1


def _box(x: np.ndarray, y: np.ndarray, width: float, height: float, corner: float) -> np.ndarray:
    dx, dy = np.abs(x) - F(width - corner), np.abs(y) - F(height - corner)
    outside = np.hypot(np.maximum(dx, 0), np.maximum(dy, 0))
    return outside + np.minimum(np.maximum(dx, dy), 0) - F(corner)


def _square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _box(x, y, 1, 1, 0.12)


def _triangle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    # Three half-planes; y runs down, so the tip at y = -1 points up.
    return np.maximum(y, F(0.8660254) * np.abs(x) - F(0.5) * y) - F(0.5)


def _star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Five points: folded into one tenth of the turn, where the edge is a single line."""
    tenth = np.pi / 5
    angle = np.arctan2(x, -y)
    folded = np.abs(angle - 2 * tenth * np.round(angle / (2 * tenth)))
    length = np.hypot(x, y)
    px, py = length * np.sin(folded), length * np.cos(folded)
    inner = 0.45
    ex, ey = inner * np.sin(tenth), inner * np.cos(tenth) - 1
    normal = np.hypot(ex, ey)
    return px * F(-ey / normal) + (py - 1) * F(ex / normal)


def _ring(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(np.hypot(x, y) - F(0.76)) - F(0.24)


def _cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.minimum(_box(x, y, 1, 0.36, 0.06), _box(x, y, 0.36, 1, 0.06))


# The second number makes the shapes look equally large: their areas come closer than with equal radii.
SHAPES: dict[str, tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], float]] = {
    "disc": (_disc, 0.98),
    "square": (_square, 0.86),
    "triangle": (_triangle, 1.28),
    "star": (_star, 1.3),
    "ring": (_ring, 1.08),
    "cross": (_cross, 1.1),
}
