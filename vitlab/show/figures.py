"""One call, two pictures: a figure drawn for light pages and for dark ones, with words for who cannot see it."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from vitlab.show import page, style
from vitlab.show.plots import settle

Draw = Callable[[Figure], object]

SHEET = (
    ".vl-figure{margin:1.25em 0;max-width:100%}"
    ".vl-figure img{max-width:100%;height:auto;margin:0;border-radius:0!important;padding:0!important;"
    "filter:none!important;background:var(--vl-g)!important}"
    ".vl-figure .vl-light{display:var(--vl-l)}.vl-figure .vl-dark{display:var(--vl-d)}"
    ".vl-figure figcaption{margin:.6em 0 0;font-size:.9em;line-height:1.5;max-width:44em;text-align:left}"
)


@dataclass(frozen=True)
class Picture:
    """An encoded picture: its bytes (WebP), and its width and height on the page in CSS pixels."""

    data: bytes
    width: int
    height: int

    def img(self, alt: str, kind: str) -> str:
        """Write the <img> element that holds this picture."""
        source = base64.b64encode(self.data).decode("ascii")
        return (
            f'<img class="vl-{kind}" alt="{page.attribute(alt)}" width="{self.width}" height="{self.height}" '
            f'loading="lazy" decoding="async" src="data:image/webp;base64,{source}">'
        )


@dataclass(frozen=True)
class Pair:
    """The light and the dark picture of one drawing, and the words that stand for both."""

    light: Picture
    dark: Picture
    alt: str

    def imgs(self) -> str:
        """Write both <img> elements; the sheet displays one of them."""
        return self.light.img(self.alt, "light") + self.dark.img(self.alt, "dark")


class ShownFigure(page.Shown):
    """A figure as a notebook shows it; `save` writes it to a file."""

    def __init__(self, pair: Pair, caption: str) -> None:
        self.pair, self.alt, self.caption = pair, pair.alt, caption
        body = f'<figure class="vl-figure">{pair.imgs()}<figcaption>{page.inline(caption)}</figcaption></figure>'
        super().__init__(f"<style>{page.THEME}{SHEET}</style>{body}", f"Figure: {pair.alt}")

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> Path:
        """Write the figure on its own ground, at twice its size on the page, in the format the name ends with.

        Raises ValueError when the ending names no picture format, FileNotFoundError when the folder is missing.
        """
        path = Path(path)
        if path.suffix.lower() not in (".png", ".webp", ".jpg", ".jpeg"):
            raise ValueError(
                f"A figure is saved as .png, .webp or .jpg, not as {path.name!r}: change the file's ending."
            )
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"There is no folder {str(path.parent)!r} to save the figure in: create it first."
            )
        picture, look = (self.pair.dark, style.DARK) if dark else (self.pair.light, style.LIGHT)
        drawn = Image.open(BytesIO(picture.data)).convert("RGBA")
        ground = Image.new("RGBA", drawn.size, look.ground)
        ground.alpha_composite(drawn)
        # Written beside its place and moved there, so that an interrupt leaves no half picture.
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=path.suffix)
        try:
            with os.fdopen(handle, "wb") as file:
                ground.convert("RGB").save(file, format=Image.registered_extensions()[path.suffix.lower()])
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        return path


def figure(draw: Draw, *, alt: str, caption: str, size: tuple[float, float] = (7, 3.5)) -> ShownFigure:
    """Show what `draw(fig)` draws on a matplotlib figure, in light and in dark, with alt text and caption.

    `draw` is called twice, each time on a fresh figure of `size` inches (7 fill the column), and must draw the
    same data both times. The alt text says what a reader who cannot see the figure should learn from it; the
    caption says what it is, and may hold inline Markdown. Every axis with numbers on it needs a label that names
    its unit.

    Raises ValueError when the alt text or the caption is missing or one repeats the other, when nothing was drawn,
    when an axis has no label, or when the two drawings differ.
    """
    check_words(alt, caption)
    return ShownFigure(pair(draw, alt=alt, size=size, trim=True), caption)


def check_words(alt: object, caption: object) -> None:
    """Raise ValueError unless alt text and caption are both there and say different things."""
    alt, caption = page.sentence(alt, "A figure's alt text"), page.sentence(caption, "A figure's caption")
    page.finished(alt)
    page.finished(caption)
    if page.plain(alt).rstrip(".").casefold() == page.plain(caption).rstrip(".").casefold():
        raise ValueError("The alt text repeats the caption: let it say what can be seen, for who cannot see it.")


def pair(draw: Draw, *, alt: str, size: tuple[float, float], layout: bool = True, trim: bool = False) -> Pair:
    """Draw both looks of one figure, its empty upper and lower edge cut off if `trim`; see `figure`."""
    if len(size) != 2 or not all(0.1 <= side <= 40 for side in size):
        raise ValueError(f"A figure's size is (width, height) between 0.1 and 40 inches, not {size!r}.")
    pictures, traces = [], []
    for look in (style.LIGHT, style.DARK):
        with style.wearing(look):
            fig = Figure(figsize=size)
            fig.set_layout_engine("constrained" if layout else "none")
            canvas = FigureCanvasAgg(fig)
            draw(fig)
            if not fig.axes and not fig.images:
                raise ValueError(
                    "The function drew nothing on the figure it was given: use that figure, not pyplot's."
                )
            fig.draw_without_rendering()
            check_axes(fig.axes, above=fig)
            traces.append(trace(fig))
            settle(fig)
            canvas.draw()
            drawn = np.asarray(canvas.buffer_rgba())
            if trim:
                inked = np.flatnonzero(drawn[..., 3].any(axis=1))
                # Cut at whole pixels of the page, four beyond the ink.
                first, last = (int(row) // style.OVERSAMPLE for row in (inked[0], inked[-1]))
                drawn = drawn[max(0, first - 4) * style.OVERSAMPLE : (last + 5) * style.OVERSAMPLE]
            pictures.append(encode(drawn))
    if traces[0] != traces[1]:
        raise ValueError(
            "The function drew other data the second time: compute all data before drawing, and change none there."
        )
    return Pair(pictures[0], pictures[1], alt)


def check_axes(axes: Iterable[Axes], above: Figure) -> None:
    """Raise ValueError naming the first visible axis that shows numbers and says nowhere what they are."""
    axes = list(axes)
    shared = {"x": bool(above.get_supxlabel()), "y": bool(above.get_supylabel())}
    for place, ax in enumerate(axes, start=1):
        if not ax.get_visible() or not ax.axison or not (ax.has_data() or hasattr(ax, "_colorbar")):
            continue
        for name, axis in ax._axis_map.items():  # x, y, and z where there is one
            # An axis whose ticks are words names its own things.
            if shared.get(name) or not axis.get_visible() or not any(map(is_number, shown_ticks(axis))):
                continue
            if not axis.label.get_visible() or not axis.get_label_text().strip():
                heading = ax.get_title(loc="left") or ax.get_title()
                title = f" ({heading!r})" if heading else ""
                raise ValueError(
                    f"Axes {place} of {len(axes)}{title} have no {name} label: name the quantity and its unit."
                )


def shown_ticks(axis: object) -> list[str]:
    """List the tick labels of an axis that can be seen."""
    ticks = axis.get_major_ticks()  # type: ignore[attr-defined]
    return [
        label.get_text()
        for tick in ticks
        for label in (tick.label1, tick.label2)
        if tick.get_visible() and label.get_visible() and label.get_text()
    ]


def is_number(text: str) -> bool:
    """Tell whether a tick label is a number, powers written with $ included."""
    bare = text.replace("mathdefault", "")
    return any(letter.isdigit() for letter in bare) and not any(letter.isalpha() for letter in bare)


def trace(fig: Figure) -> str:
    """Digest the data a figure shows, colours left aside."""
    seen = hashlib.sha256()
    for ax in fig.axes:
        for line in ax.lines:
            seen.update(np.asarray(line.get_xydata(), dtype=float).tobytes())
        for image in ax.images:
            seen.update(np.ascontiguousarray(image.get_array()).tobytes())
        for patch in ax.patches:
            seen.update(np.asarray(patch.get_path().vertices).tobytes())
            seen.update(np.asarray(patch.get_patch_transform().get_matrix()).tobytes())
        for collection in ax.collections:
            seen.update(np.asarray(collection.get_offsets(), dtype=float).tobytes())
            for path in collection.get_paths():
                seen.update(np.asarray(path.vertices).tobytes())
        seen.update("\n".join(text.get_text() for text in ax.texts).encode())
    return seen.hexdigest()


def encode(rgba: np.ndarray) -> Picture:
    """Encode pixels (height, width, 4) uint8 as WebP, in the cheapest way that nobody can see."""
    image = Image.fromarray(thrifty(rgba))
    exact = BytesIO()
    image.save(exact, "WEBP", lossless=True, quality=80, method=4)
    data = exact.getvalue()
    if len(data) > 60_000:
        near = BytesIO()
        image.save(near, "WEBP", quality=90, method=4, alpha_quality=100)
        # A photograph shrinks several times; a busy plot does not, and keeps its exact colours.
        if 2 * near.tell() < len(data):
            data = near.getvalue()
    height, width = rgba.shape[:2]
    return Picture(data, round(width / style.OVERSAMPLE), round(height / style.OVERSAMPLE))


def thrifty(rgba: np.ndarray, colours: int = 64, fill: float = 0.001, tolerance: float = 4) -> np.ndarray:
    """Give the shades of a plot's smooth edges to the nearest of a few colours, for a third of the bytes.

    Whatever covers more than the share `fill` of the ink keeps its exact colour. Pixels (height, width, 4) uint8
    come back as they were when such colours alone are too many, as in heat maps and photographs, or when the rest
    would move by more than `tolerance` levels of 255, root mean square.
    """
    flat = np.ascontiguousarray(rgba).view(np.uint32).ravel()
    inked = np.flatnonzero(rgba[..., 3].ravel())
    values, place, count = np.unique(flat[inked], return_inverse=True, return_counts=True)
    kept = [int(place) for place in np.flatnonzero(count > fill * len(inked))]
    if not colours < len(values) <= 20_000 or not 0 < len(kept) < colours:
        return rgba
    shades = values.view(np.uint8).reshape(-1, 4).astype(float)
    shades[:, :3] *= shades[:, 3:] / 255  # distances as they look, not as they are stored
    nearest = np.zeros(len(values), int)
    distance = np.full(len(values), np.inf)
    for turn in range(colours):
        # First the fills; then, one by one, the shade that would be moved farthest, common ones before rare.
        if turn == len(kept):
            kept.append(int(np.argmax(distance * np.sqrt(count))))
        other = ((shades - shades[kept[turn]]) ** 2).sum(1)
        nearest = np.where(other < distance, kept[turn], nearest)
        distance = np.minimum(other, distance)
    if (distance * count).sum() / count.sum() / 4 > tolerance**2:
        return rgba
    out = flat.copy()
    out[inked] = values[nearest][place]
    return out.view(np.uint8).reshape(rgba.shape)
