"""Packs of decoded pictures: the second load is quick, and never of other files or of damaged ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from pictures import class_folders, picture

from vitlab import data
from vitlab.data import folders, packed


def load(path, **options):
    return data.load(f"folder:{path}", **options)


@pytest.fixture
def small_packs(monkeypatch):
    monkeypatch.setattr(packed, "SMALLEST", 5)


def count_decoding(monkeypatch):
    seen = []
    original = folders.decode
    monkeypatch.setattr(folders, "decode", lambda path, size: seen.append(path) or original(path, size))
    return seen


def test_the_second_load_decodes_nothing(tmp_path, monkeypatch, small_packs, cache):
    root = class_folders(tmp_path / "set")
    seen = count_decoding(monkeypatch)
    first = load(root)
    assert len(seen) == 12 and len(list((cache / "packed").iterdir())) == 1
    second = load(root)
    assert len(seen) == 12 and np.array_equal(first.images, second.images)
    assert np.array_equal(load(root, limit=4).images, load(root, limit=4).images) and len(seen) == 12


def test_limit_without_a_pack_decodes_only_what_it_takes(tmp_path, monkeypatch, small_packs):
    root = class_folders(tmp_path / "set")
    seen = count_decoding(monkeypatch)
    few = load(root, limit=3)
    assert len(seen) == 3
    every = load(root)
    assert np.array_equal(load(root, limit=3).images, few.images), "with a pack, the same choice"
    assert {i.tobytes() for i in few.images} <= {i.tobytes() for i in every.images}


@pytest.mark.parametrize("change", ["content", "added", "removed", "size"])
def test_a_pack_of_other_files_is_not_used(tmp_path, small_packs, cache, change):
    root = class_folders(tmp_path / "set")
    before = load(root)
    file = root / "class0" / "00.png"
    if change == "content":
        picture(77).save(file)
    elif change == "added":
        picture(77).save(root / "class0" / "zz.png")
    elif change == "removed":
        file.unlink()
    after = load(root, size=8 if change == "size" else None)
    assert after.images.shape != before.images.shape or not np.array_equal(after.images, before.images)
    assert np.array_equal(load(root, size=8 if change == "size" else None).images, after.images)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:100], lambda b: b"", lambda b: b[:-900] + bytes([b[-900] ^ 1]) + b[-899:]]
)
def test_a_damaged_pack_is_made_anew(tmp_path, small_packs, cache, damage):
    root = class_folders(tmp_path / "set")
    first = load(root)
    (pack,) = (cache / "packed").iterdir()
    pack.write_bytes(damage(pack.read_bytes()))
    with pytest.warns(UserWarning, match="damaged"):
        again = load(root)
    assert np.array_equal(first.images, again.images)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(load(root).images, first.images)


def test_a_full_disk_costs_only_the_pack(tmp_path, monkeypatch, small_packs, cache):
    root = class_folders(tmp_path / "set")

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(UserWarning, match="could not be kept"):
        assert len(load(root)) == 12
    assert list((cache / "packed").iterdir()) == []


def test_a_broken_picture_makes_no_pack(tmp_path, small_packs, cache):
    root = class_folders(tmp_path / "set")
    (root / "class0" / "00.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="cannot be read"):
        load(root)
    assert not (cache / "packed").exists()


def test_more_than_the_memory_is_one_sentence():
    with pytest.raises(MemoryError, match=r"1,000,000,000 images of 224x224 need .* GB: pass limit="):
        packed._allocate(10**9, np.zeros((224, 224, 3), np.uint8))
