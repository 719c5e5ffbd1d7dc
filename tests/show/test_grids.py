"""Grids show images pixel for pixel, and say in a sentence what is not an image."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab import show
from vitlab.show.grids import pixels

from .conftest import Tree

WORDS: dict[str, Any] = {"alt": "Noise in every tile.", "caption": "Tiles of noise."}


@pytest.fixture
def stack() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)


def drawn(shown: Any) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(shown.pair.light.data)).convert("RGBA"))


def test_every_pixel_becomes_a_crisp_square(stack: np.ndarray) -> None:
    seen = drawn(show.images(stack[:2], scale=4, **WORDS))
    side = 8 * 4 * 2
    assert seen.shape == (side, 2 * side + 14, 4)
    for place, left in enumerate((0, side + 14)):
        tile = seen[:, left : left + side]
        assert (tile[..., 3] == 255).all()
        assert (tile[4::8, 4::8, :3] == stack[place]).all()
        assert (tile[..., :3] == stack[place].repeat(8, 0).repeat(8, 1)).all()


@pytest.mark.parametrize("kind", ["numpy", "torch", "list"])
def test_floats_in_channels_first_show_the_same(stack: np.ndarray, kind: str) -> None:
    floats: Any = stack.transpose(0, 3, 1, 2).astype(np.float32) / 255
    floats = {"numpy": floats, "torch": torch.from_numpy(floats), "list": list(floats)}[kind]
    assert show.images(floats, **WORDS).html == show.images(stack, **WORDS).html


def test_titles_stand_in_the_picture_and_columns_are_obeyed(stack: np.ndarray) -> None:
    bare = drawn(show.images(stack, columns=3, scale=5, **WORDS))
    titled = drawn(show.images(stack, [f"n {k}" for k in range(6)], columns=3, scale=5, **WORDS))
    assert bare.shape == (2 * 80 + 14, 3 * 80 + 28, 4)
    assert titled.shape[1] == bare.shape[1] and titled.shape[0] > bare.shape[0] + 40
    assert titled[:30, :80, 3].any(), "the first title"


def test_large_images_of_any_shape_shrink_into_the_column() -> None:
    shown = show.images([np.zeros((900, 1500, 3), np.uint8), np.zeros((500, 40, 3), np.uint8)], **WORDS)
    light = Tree(shown.html).all("img")[0]
    assert int(light["width"]) <= 644


def test_one_grey_channel_is_shown_as_grey() -> None:
    assert pixels(np.full((1, 2, 2), 0.5)).tolist() == [[[128] * 3] * 2] * 2
    assert pixels(np.full((2, 2, 1), 9, np.uint8)).tolist() == [[[9] * 3] * 2] * 2


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (np.zeros((8, 8, 3), np.uint8), "list them"),
        (np.zeros((2, 3, 8, 8), np.uint8), r"Image 0 of bytes must have the shape \(height, width, 3\)"),
        (np.zeros((2, 8, 8, 3)), r"Image 0 of floats must have the shape \(3, height, width\)"),
        (np.full((1, 3, 8, 8), np.nan), "Image 0 must be finite"),
        (np.full((1, 3, 8, 8), 255.0), "undo the normalisation"),
        (np.full((1, 3, 8, 8), -0.5), "undo the normalisation"),
        (np.zeros((1, 8, 8, 3), np.int64), "uint8, or float"),
        (np.zeros((0, 8, 8, 3), np.uint8), "none was given"),
        ([np.zeros((8, 8), np.uint8)], "3 dimensions"),
        ([np.zeros((3, 0, 8))], "at least one number"),
        (None, "a NoneType"),
        (3, "a int"),
    ],
)
def test_what_is_no_image_is_refused_in_a_sentence(images: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.images(images, **WORDS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"titles": ["one"]}, "6 images and 1 titles"),
        ({"columns": 0}, "columns"),
        ({"scale": 0}, "scale"),
        ({"alt": ""}, "alt text"),
        ({"caption": ""}, "caption"),
    ],
)
def test_wrong_options_are_refused(stack: np.ndarray, options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.images(stack, **(WORDS | options))


def test_maps_lie_over_the_image_on_one_scale(stack: np.ndarray) -> None:
    weights = np.zeros((2, 2, 2))
    weights[0, 0, 0] = 1
    seen = drawn(show.maps(np.full((8, 8, 3), 128, np.uint8), weights, ["a", "b"], label="share", **WORDS)).astype(
        int
    )
    cell = (seen.shape[1] - 2 * 14) // 3
    top = np.flatnonzero(seen[:, cell // 2, 3] == 255)[
        -1
    ]  # within the image's column, whatever the title's height
    middle = {"image": cell // 4, "first": cell + 14 + cell // 4, "second": 2 * (cell + 14) + cell // 4}
    row = 60 + cell // 4
    assert top > row
    assert np.abs(seen[row, middle["image"], :3] - 128).max() <= 3
    assert seen[row, middle["first"], 0] > 180, "the weight is bright"
    assert seen[row, middle["second"], :3].max() < 70, "no weight is dark on the same scale"


@pytest.mark.parametrize(
    ("weights", "options", "says"),
    [
        (np.ones((2, 2)), {}, "3 dimensions"),
        (-np.ones((1, 2, 2)), {}, "must not be negative"),
        (np.full((1, 2, 2), np.nan), {}, "finite"),
        (np.ones((1, 2, 2)), {"limits": (1, 0)}, "low below high"),
        (np.ones((1, 2, 2)), {"titles": ["a", "b"]}, "titles"),
        (np.ones((1, 2, 2)), {"label": " "}, "label"),
    ],
)
def test_maps_refuse_what_they_cannot_show(stack: np.ndarray, weights: Any, options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        show.maps(stack[0], weights, **({"label": "share"} | WORDS | options))
