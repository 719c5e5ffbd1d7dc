"""Pictures and class folders for the tests of vitlab.data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int = 0, width: int = 12, height: int = 10) -> Image.Image:
    """A smooth colour picture, no two alike."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (3, 3, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def class_folders(root: Path, classes: int = 3, each: int = 4, width: int = 12, height: int = 10) -> Path:
    """PNG files at root/<class>/<number>.png."""
    for c in range(classes):
        folder = root / f"class{c}"
        folder.mkdir(parents=True)
        for i in range(each):
            picture(100 * c + i, width, height).save(folder / f"{i:02d}.png")
    return root
