"""Class folders: every kind of picture comes out right, and whatever is broken is named."""

from __future__ import annotations

import shutil
import struct
import zlib

import numpy as np
import pytest
from pictures import class_folders, picture
from PIL import Image, ImageFile

from vitlab import data
from vitlab.data import pixels

GREY = np.linspace(0, 65535, 120).reshape(10, 12)


def load(path, **options):
    return data.load(f"folder:{path}", **options)


def one(tmp_path, name, save):
    """A set of one picture, written by `save(path)`, as it is loaded."""
    folder = tmp_path / "set" / "class"
    folder.mkdir(parents=True)
    save(folder / name)
    return load(tmp_path / "set").images[0]


# Layout


def test_classes_without_splits_are_one_set(tmp_path):
    s = load(class_folders(tmp_path / "set"))
    assert s.classes == ("class0", "class1", "class2") and np.array_equal(s.labels, np.repeat([0, 1, 2], 4))
    assert np.array_equal(s.images[5], np.asarray(picture(101))) and s.split == "all"
    assert s.name == "folder:set", "without the way to it"


def test_split_folders_are_splits(tmp_path):
    class_folders(tmp_path / "set" / "train", each=3)
    class_folders(tmp_path / "set" / "val", each=2)
    name = f"folder:{tmp_path / 'set'}"
    assert data.splits(name) == ("train", "val")
    assert len(data.load(name)) == 9 and len(data.load(name, split="held_out")) == 6
    with pytest.raises(ValueError, match=r"no split 'test': it has train, val"):
        data.load(name, split="test")


def test_a_set_nobody_divided_is_divided_by_every_fifth(tmp_path):
    root = class_folders(tmp_path / "set", classes=2, each=10)
    every, train, val = (load(root, split=split) for split in ("all", "train", "val"))
    assert np.array_equal(val.images, every.images[[0, 5, 10, 15]]) and len(train) == 16
    assert not {i.tobytes() for i in train.images} & {i.tobytes() for i in val.images}
    (tmp_path / "moved").mkdir()
    shutil.move(root, tmp_path / "moved" / "all")  # the same with the single split folder `all`
    again = load(tmp_path / "moved", split="val")
    assert np.array_equal(again.images, val.images) and data.splits(f"folder:{tmp_path / 'moved'}")[0] == "all"


def test_a_class_too_small_to_divide_is_named(tmp_path):
    root = class_folders(tmp_path / "set", classes=2, each=1)
    with pytest.raises(ValueError, match="single picture of the class 'class0'"):
        load(root, split="train")


def test_local_copies_come_before_downloads(tmp_path, monkeypatch, no_network):
    class_folders(tmp_path / "here" / "cifar100" / "train", classes=2)
    class_folders(tmp_path / "here" / "imagenet100" / "val", classes=2, each=1)
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path / "here"))
    s = data.load("cifar100", limit=4)
    assert (s.name, s.split, len(s)) == ("cifar100", "train", 4) and np.array_equal(np.bincount(s.labels), [2, 2])
    assert len(data.load("imagenet100", split="val")) == 2


def test_imagenet100_says_where_its_list_is():
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded freely.*imagenet100\.txt.*VITLAB_DATA"):
        data.load("imagenet100")


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda root: (root / "empty").mkdir(), ValueError, r"no picture of 'empty'"),
        (lambda root: (root / "class0" / "notes.txt").write_text("x"), ValueError, r"notes\.txt is not a picture"),
        (
            lambda root: (root / "class0" / "deep").mkdir(),
            ValueError,
            r"'class0' holds folders, 'class1' does not",
        ),
        (lambda root: shutil.rmtree(root), FileNotFoundError, "There is no folder"),
        (lambda root: [shutil.rmtree(p) for p in root.iterdir()], ValueError, "holds no folders"),
    ],
)
def test_a_wrong_layout_is_one_sentence(tmp_path, spoil, error, words):
    root = class_folders(tmp_path / "set")
    spoil(root)
    with pytest.raises(error, match=words) as caught:
        load(root)
    assert "\n" not in str(caught.value)


def test_hidden_files_and_clutter_are_no_pictures(tmp_path):
    root = class_folders(tmp_path / "set")
    for name in (".DS_Store", "Thumbs.db"):
        (root / "class0" / name).write_bytes(b"x")
    (root / ".complete").touch()
    assert len(load(root)) == 12


# Pictures


def test_grey_is_repeated(tmp_path):
    grey = (GREY / 257).astype(np.uint8)
    image = one(tmp_path, "a.png", Image.fromarray(grey).save)
    assert np.array_equal(image, np.repeat(grey[..., None], 3, 2))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_grey_is_scaled_not_cut_off(tmp_path, suffix):
    image = one(tmp_path, f"a.{suffix}", Image.fromarray(GREY.astype(np.uint16)).save)
    assert np.abs(image[..., 0] - GREY * 255 / 65535).max() <= 0.51
    assert image.max() == 255 and image.min() == 0 and len(np.unique(image)) > 100


def test_16_bit_colour_is_scaled_too(tmp_path):
    values = np.random.default_rng(0).integers(0, 65536, (4, 5, 3), dtype=np.uint16)

    def save(path):
        """Pillow writes no 16-bit colour, so the few chunks of a PNG are put together here."""
        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
        chunks = [
            (b"IHDR", struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress(rows)),
            (b"IEND", b""),
        ]
        body = b"".join(
            struct.pack(">I", len(c)) + t + c + struct.pack(">I", zlib.crc32(t + c)) for t, c in chunks
        )
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)

    image = one(tmp_path, "a.png", save)
    assert np.abs(image - values / 257.0).max() <= 1


def test_palette_is_looked_up(tmp_path):
    source = picture().quantize(16)
    assert np.array_equal(one(tmp_path, "a.png", source.save), np.asarray(source.convert("RGB")))


def test_one_bit_is_black_and_white(tmp_path):
    image = one(tmp_path, "a.png", Image.fromarray(GREY > 30000).save)
    assert set(np.unique(image)) == {0, 255}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparency_is_laid_on_white(tmp_path, mode):
    layer = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    layer.paste((40, 40, 40, 255), (0, 0, 4, 8))
    name = "a.tif" if mode == "PA" else "a.png"
    if mode == "PA":  # a palette whose entry is transparent
        source = Image.new("P", (8, 8), 1)
        source.putpalette([40, 40, 40, 0, 0, 0])
        source.paste(0, (0, 0, 4, 8))
        image = one(tmp_path, "a.png", lambda path: source.save(path, transparency=1))
    else:
        image = one(tmp_path, name, layer.convert(mode).save)
    assert (image[:, 4:] == 255).all() and (image[:, :4] == 40).all()


def test_half_transparency_is_half_white(tmp_path):
    image = one(tmp_path, "a.png", Image.new("RGBA", (4, 4), (0, 100, 200, 128)).save)
    np.testing.assert_allclose(image[0, 0], [127, 177, 227], atol=1)


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_cmyk_is_converted(tmp_path, suffix):
    image = one(tmp_path, f"a.{suffix}", Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save)
    np.testing.assert_allclose(image[4, 4], [255, 0, 0], atol=8)


def test_exif_turns_the_picture(tmp_path):
    source = picture()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise for viewing
    image = one(tmp_path, "a.png", lambda path: source.save(path, exif=exif))
    assert np.array_equal(image, np.rot90(np.asarray(source), -1))


def test_floats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a\.tif \(it holds floating-point values"):
        one(tmp_path, "a.tif", Image.fromarray(GREY.astype(np.float32)).save)


def test_several_frames_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds 2 frames"):
        one(tmp_path, "a.tif", lambda path: picture().save(path, save_all=True, append_images=[picture(1)]))


# Broken pictures


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp", "tif"])
@pytest.mark.parametrize("part", [0, 0.2, 0.6, 0.9])
def test_a_truncated_picture_is_named(tmp_path, suffix, part):
    root = class_folders(tmp_path / "set", classes=1)
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    path = root / "class0" / f"broken.{suffix}"
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    for size in (None, 16):
        with pytest.raises(
            ValueError, match=rf"1 of 5 pictures cannot be read: .*broken\.{suffix} \(.*replace or"
        ) as e:
            load(root, size=size)
        assert "\n" not in str(e.value)


def test_a_lenient_pillow_changes_nothing(tmp_path, monkeypatch):
    """Libraries that switch LOAD_TRUNCATED_IMAGES on would have broken pictures filled up with grey."""
    root = class_folders(tmp_path / "set", classes=1)
    path = root / "class0" / "00.png"
    path.write_bytes(path.read_bytes()[:-40])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ValueError, match=r"00\.png"):
        load(root)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_many_broken_pictures_are_counted_and_the_first_named(tmp_path):
    root = class_folders(tmp_path / "set", classes=2, each=6)
    for path in (root / "class1").iterdir():
        path.write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"6 of 12 pictures cannot be read: .*00\.png.*04\.png.* and 1 more"):
        load(root)


def test_different_sizes_need_a_size(tmp_path):
    root = class_folders(tmp_path / "set")
    picture(9, 20, 10).save(root / "class2" / "99.png")
    with pytest.raises(
        ValueError, match=r"differ in size \(class0/00.png: 10x12, class2/99.png: 10x20\): pass size="
    ):
        load(root)
    assert load(root, size=8).images.shape == (13, 8, 8, 3)


# Sizes


def test_square_is_shorter_side_then_centre_crop():
    wide = picture(3, 60, 20)
    expected = wide.resize((30, 10), Image.Resampling.LANCZOS).crop((10, 0, 20, 10))
    np.testing.assert_allclose(np.asarray(pixels.square(wide, 10)), np.asarray(expected), atol=1)
    tall, turned = (p.transpose(Image.Transpose.ROTATE_90) for p in (wide, expected))
    np.testing.assert_allclose(np.asarray(pixels.square(tall, 10)), np.asarray(turned), atol=1)


def test_square_does_not_alias():
    """Stripes finer than the target's pixels become an even grey; taking every eighth pixel would not."""
    fine = np.zeros((128, 128, 3), np.uint8)
    fine[:, ::2] = 255
    small = np.asarray(pixels.square(Image.fromarray(fine), 16)).astype(int)
    assert abs(small[2:-2, 2:-2] - 128).max() <= 2


def test_square_leaves_a_fitting_picture_alone():
    source = picture(0, 16, 16)
    assert pixels.square(source, 16) is source
