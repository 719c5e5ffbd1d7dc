"""Real pictures that come with scikit-image and scikit-learn: here at once, without a network.

The textures are brick (Bricks25 of CC0Textures), grass (by LinoLafett) and gravel (Gravel04 of CC0Textures), all
CC0, grey, 512x512, as scikit-image prepared them.

The photographs, with the terms that scikit-image states for each:

| name | shows | credit | terms |
|---|---|---|---|
| astronaut | Eileen Collins | NASA | public domain |
| chelsea | a cat | Stefan van der Walt | CC0 |
| coffee | a cup of coffee | Rachel Michetti, courtesy of Pikolo Espresso Bar | CC0 |
| rocket | the launch of DSCOVR | SpaceX | public domain |
| camera | a photographer, grey | Lav Varshney | CC0 |
| retina | a human retina | Mikael Häggström | CC0 |
| hubble | the Hubble eXtreme Deep Field | NASA | public domain |

The digits are those of scikit-learn: 1,797 handwritten digits of 8x8 pixels from the UCI Machine Learning
Repository (Alpaydin and Kaynak, 1998, CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from .imageset import ImageSet, balanced, whole
from .pixels import decode, square

TEXTURES = ("brick", "grass", "gravel")
PHOTOS = {
    "astronaut": "astronaut.png",
    "chelsea": "chelsea.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "camera": "camera.png",
    "retina": "retina.jpg",
    "hubble": "hubble_deep_field.jpg",
}
TEXTURE_SPLITS = {"train": (0, 352, 3000), "val": (352, 512, 600)}


def textures(
    split: str, size: int | None = None, limit: int | None = None, seed: int = 0, crop: int = 64
) -> ImageSet:
    """Crops of `crop` pixels a side from brick, grass and gravel (the classes), turned and mirrored at random.

    `train` (3,000) is cut from the upper 352 rows of each picture and `val` (600) from the lower 160, so no
    pixel is in both. Image i depends on `seed`, the split and i alone. `size` resizes the crops, None leaves
    them as they are. Raises `ValueError` for a crop that does not fit.
    """
    top, bottom, count = TEXTURE_SPLITS[split]
    crop = whole(crop, "crop", 8)
    if crop > bottom - top:
        raise ValueError(f"A crop of the {split} textures has at most {bottom - top} pixels a side, not {crop}.")
    sources = [np.asarray(Image.open(_bundled(f"{name}.png")).convert("L"))[top:bottom] for name in TEXTURES]
    rows, columns = sources[0].shape
    labels = np.arange(count) % len(TEXTURES)
    chosen = np.arange(count) if limit is None else balanced(labels, limit, seed)
    side = crop if size is None else size
    images = np.empty((len(chosen), side, side, 3), dtype=np.uint8)
    for place, i in enumerate(chosen):
        rng = np.random.default_rng((seed, top, int(i)))
        y, x = rng.integers(rows - crop + 1), rng.integers(columns - crop + 1)
        patch = np.rot90(sources[labels[i]][y : y + crop, x : x + crop], int(rng.integers(4)))
        patch = patch[:, ::-1] if rng.integers(2) else patch
        picture = Image.fromarray(np.ascontiguousarray(patch)).convert("RGB")
        images[place] = np.asarray(square(picture, side))
    return ImageSet(images, labels[chosen], TEXTURES, "textures", split)


def photos(size: int | None = None, limit: int | None = None, seed: int = 0) -> ImageSet:
    """The seven photographs listed above, each a class of its own, as centred squares of `size` (224) pixels."""
    side = 224 if size is None else size
    images = np.stack([decode(_bundled(file), side) for file in PHOTOS.values()])
    every = ImageSet(images, np.arange(len(PHOTOS)), tuple(PHOTOS), "photos", "all")
    return every if limit is None else every.subset(balanced(every.labels, limit, seed))


def digits() -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The 1,797 digits: images `(N, 8, 8, 3)` (grey, 0..16 scaled to 0..255), labels and class names."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    grey = np.rint(raw.images * (255 / 16)).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1), raw.target.astype(np.int64), tuple("0123456789")


def _bundled(file: str) -> Path:
    # The path, not skimage.data's functions: those may reach for the network where a file is missing.
    import skimage

    path = Path(skimage.__file__).parent / "data" / file
    if not path.is_file():
        raise FileNotFoundError(f"This scikit-image does not hold {file}: install scikit-image 0.25 or 0.26.")
    return path
