"""How a picture file becomes 8-bit RGB, and how it becomes a square of a given size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

GREY_16 = ("I;16", "I;16L", "I;16B", "I;16N", "I")


class Unreadable(ValueError):
    """A picture file that cannot be read whole; the message is the reason, without the file's name."""


def decode(path: Path, size: int | None = None) -> np.ndarray:
    """The picture at `path` as uint8 `(H, W, 3)`, turned as its EXIF says, or `(size, size, 3)`.

    Grey is repeated over the channels, a palette is looked up, CMYK is converted; 16 bits are scaled by 255/65535,
    not cut off; transparency is laid on white. Raises `Unreadable` for a broken, truncated or unfit file.
    """
    try:
        with Image.open(path) as picture:
            # A phone's MPO holds a preview beside the photograph; any other file of several frames is
            # ambiguous.
            if (frames := getattr(picture, "n_frames", 1)) > 1 and picture.format != "MPO":
                raise Unreadable(f"it holds {frames} frames, and one is expected")
            upright = ImageOps.exif_transpose(picture)
            rgb = to_rgb(upright)
            return np.asarray(rgb if size is None else square(rgb, size))
    except Unreadable:
        raise
    # Pillow's decoders raise whatever their format's parser met: OSError, SyntaxError, struct.error,
    # zlib.error ...
    except Exception as error:
        raise Unreadable(str(error).replace(str(path), "it") or type(error).__name__) from error


def to_rgb(picture: Image.Image) -> Image.Image:
    """`picture` in mode RGB, 8 bits a channel. Raises `Unreadable` for a picture of floats."""
    if picture.mode in GREY_16:
        values = np.asarray(picture).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise Unreadable(f"its values run from {values.min()} to {values.max()}, outside 16 bits")
        grey = ((values * 255 + 32767) // 65535).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if picture.mode == "F":
        raise Unreadable("it holds floating-point values, which have no agreed white: save it with 8 or 16 bits")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return picture.convert("RGB")


def square(picture: Image.Image, size: int) -> Image.Image:
    """The largest centred square of an RGB picture, resized to `size` pixels a side.

    The filter is Lanczos with its support widened when shrinking, so that shrinking does not alias. It is the
    usual "shorter side to `size`, then centre crop" in one step. A picture already of that size is left as it
    is.
    """
    if picture.size == (size, size):
        return picture
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return picture.resize((size, size), Image.Resampling.LANCZOS, box=box)
