"""What ships with scikit-image and scikit-learn is there without a network; and `load` as a whole."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from vitlab import data
from vitlab.data import bundled


def test_textures_are_crops_of_the_three_pictures(no_network):
    s = data.load("textures", limit=30)
    assert s.images.shape == (30, 64, 64, 3) and s.classes == ("brick", "grass", "gravel")
    assert np.array_equal(np.bincount(s.labels), [10, 10, 10])
    assert (s.images[..., 0] == s.images[..., 1]).all(), "grey"
    assert np.array_equal(s.images, data.load("textures", limit=30).images)
    assert not np.array_equal(s.images, data.load("textures", limit=30, seed=1).images)


def test_texture_splits_share_no_pixel(monkeypatch):
    """Each row of the pictures is numbered; no number is in both splits."""
    rows = Image.fromarray(np.repeat(np.arange(512)[:, None] // 2, 512, 1).astype(np.uint8))
    monkeypatch.setattr(Image, "open", lambda path: rows)
    train, val = (
        set(np.unique(data.load("textures", split=s, limit=200, crop=32).images)) for s in ("train", "val")
    )
    assert not train & val and len(train) > 160 and len(val) > 70


def test_texture_crops_are_resized_and_must_fit():
    assert data.load("textures", limit=3, crop=128, size=32).images.shape == (3, 32, 32, 3)
    assert data.load("textures", limit=3, size=96).images.shape == (3, 96, 96, 3)
    with pytest.raises(ValueError, match="at most 160 pixels a side, not 200"):
        data.load("textures", split="val", crop=200)


def test_photos_ship_with_the_package(no_network):
    s = data.load("photos")
    assert s.images.shape == (7, 224, 224, 3) and s.classes == tuple(bundled.PHOTOS)
    assert s.images.reshape(7, -1).std(1).min() > 5
    assert data.load("photos", size=64, limit=3).images.shape == (3, 64, 64, 3)


def test_every_photo_has_its_credit_and_terms():
    for name in bundled.PHOTOS:
        (line,) = [line for line in bundled.__doc__.splitlines() if line.startswith(f"| {name} |")]
        assert line.rstrip("| ").endswith(("CC0", "public domain"))


def test_a_scikit_image_without_the_picture_is_one_sentence():
    with pytest.raises(FileNotFoundError, match=r"does not hold eagle\.png"):
        bundled._bundled("eagle.png")


def test_digits(no_network):
    s = data.load("digits")
    assert len(s) == 1797 and s.images.shape[1:] == (8, 8, 3) and s.images.max() == 255
    train, val = data.load("digits", split="train"), data.load("digits", split="val", size=32)
    assert len(train) + len(val) == 1797 and val.images.shape[1:] == (32, 32, 3)
    assert np.abs(np.bincount(val.labels) * 5 - np.bincount(s.labels)).max() <= 4


def test_names_and_splits():
    assert data.names()[0] == "scenes" and data.names()[-1] == "folder:PATH"
    assert data.splits("cifar100") == ("train", "test") and data.splits("photos") == ("all",)
    assert data.splits("scenes") == ("train", "val", "test") and data.splits("digits") == ("all", "train", "val")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "mnist"}, "no image set 'mnist': there are scenes, textures"),
        ({"name": "scenes", "split": "dev"}, "no split 'dev': it has train, val, test"),
        ({"name": "photos", "split": "train"}, "no split 'train': it has all"),
        ({"name": "digits", "size": 0}, "size must be a whole number of at least 1, not 0"),
        ({"name": "digits", "limit": 2.5}, "limit must be a whole number"),
        ({"name": "digits", "limit": 0}, "limit"),
        ({"name": "digits", "seed": None}, "seed"),
        ({"name": "digits", "crop": 8}, "digits has no option 'crop'"),
    ],
)
def test_wrong_requests_are_one_sentence(arguments, words):
    with pytest.raises(ValueError, match=words) as caught:
        data.load(**arguments)
    assert "\n" not in str(caught.value)


def test_held_out_needs_something_held_out():
    with pytest.raises(ValueError, match="photos has no split 'held_out'"):
        data.load("photos", split="held_out")
    assert data.load("scenes", split="held_out", size=8, limit=6).split == "test"


def test_importing_the_data_part_is_light():
    heavy = "torch,skimage,sklearn,pooch,requests,PIL,vitlab.data.scenes"
    code = f"import sys, vitlab.data; print([m for m in {heavy.split(',')!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_parts_are_reached_by_name():
    assert data.scenes.TEXTURES
    with pytest.raises(AttributeError, match=r"vitlab\.data has .*not 'sounds'"):
        _ = data.sounds
