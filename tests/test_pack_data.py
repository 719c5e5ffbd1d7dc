"""Packs of class folders: every pixel kept, balanced, nested, small enough, and whole or not there."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import io
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from vitlab import data
from vitlab.data.pixels import decode

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "pack_data.py"
spec = importlib.util.spec_from_file_location("pack_data", TOOL)
assert spec and spec.loader
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

COUNTS = {"train": {"apple": 6, "bee": 9, "cup": 4}, "val": {"apple": 3, "bee": 2, "cup": 3}}


def noise(seed, side=12):
    """A picture that WebP makes no smaller."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


def grain(seed, side=12):
    """A picture that WebP makes smaller: a gradient with a little noise."""
    grains = np.random.default_rng(seed).integers(0, 16, (side, side, 3), dtype=np.uint8)
    smooth = noise(seed, 3).resize((side, side), Image.Resampling.BICUBIC)
    return Image.fromarray(np.asarray(smooth) // 8 + grains)


def make_set(root, counts=COUNTS):
    """PNG files at root/<split>/<class>/<number>.png, of both kinds."""
    seed = 0
    for split, classes in counts.items():
        for label, count in classes.items():
            folder = root / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                seed += 1
                (noise, grain)[seed % 2](seed).save(folder / f"{i:03d}.png")
    return root


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def entries(pack):
    with zipfile.ZipFile(pack) as archive:
        return [name for name in archive.namelist() if name != "pack.json"]


def forge(path, members, about=None, infos=()):
    """A pack that somebody wrote by hand, its sums as they should be."""
    names = [*members, *(info.filename for info, _ in infos)]
    sums = {k: hashlib.sha256(v).hexdigest() for k, v in [*members.items(), *((i.filename, b) for i, b in infos)]}
    lines = "".join(f"{sums[name]} {name}\n" for name in sorted(sums))
    counts = Counter([*name.split("/"), ""][1] for name in names)
    own = {"format": 1, "set": "s", "images": counts, "of": counts}
    own["sha256"] = hashlib.sha256(lines.encode()).hexdigest()
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
        for info, body in infos:
            archive.writestr(info, body)
        archive.writestr("pack.json", json.dumps(own | (about or {})))
    return path


def said(capsys, *arguments):
    """The one sentence that a failing command says."""
    assert tool.main([str(a) for a in arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and "Traceback" not in printed.err
    return printed.err.strip()


@pytest.fixture
def images(tmp_path):
    return make_set(tmp_path / "here" / "cifar100")


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


class TestPixels:
    def test_what_is_loaded_there_is_what_is_loaded_here(self, images, there, tmp_path, monkeypatch, capsys):
        Image.fromarray(np.full((12, 12, 3), 7, np.uint8)).save(images / "train" / "apple" / "flat.bmp")
        assert tool.main(["pack", str(images), str(tmp_path / "p" / "c.zip")]) == 0
        assert tool.main(["unpack", str(tmp_path / "p" / "c.zip"), str(there)]) == 0
        out = capsys.readouterr().out
        assert "cifar100: train 20 of 20 images, val 8 of 8 images" in out
        assert min(len(list(there.rglob(f"*{ending}"))) for ending in (".png", ".webp")) > 5
        for options in ({}, {"size": 7}, {"limit": 5, "seed": 3}):
            for split in ("train", "val"):
                loaded = []
                for root in (images.parent, there):
                    monkeypatch.setenv("VITLAB_DATA", str(root))
                    loaded.append(data.load("cifar100", split, **options))
                before, after = loaded
                assert np.array_equal(before.images, after.images)
                assert np.array_equal(before.labels, after.labels)
                assert before.classes == after.classes and before.name == after.name

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
    def test_every_kind_of_png(self, tmp_path, mode):
        wide = np.random.default_rng(1).integers(0, 65536, (9, 14), dtype=np.uint16)
        picture = Image.fromarray(wide) if mode == "I;16" else noise(2).convert(mode)
        if mode in ("LA", "RGBA"):
            picture.putalpha(noise(3).convert("L"))
        file = tmp_path / "x.png"
        picture.save(file)
        name, body = tool._smallest(file)
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / name).write_bytes(body)
        assert np.array_equal(decode(tmp_path / "new" / name), decode(file))
        assert len(body) <= file.stat().st_size

    @settings(max_examples=40, deadline=None)
    @given(
        width=st.integers(1, 20), height=st.integers(1, 20), levels=st.integers(1, 256), seed=st.integers(0, 2**32)
    )
    def test_webp_is_lossless(self, tmp_path_factory, width, height, levels, seed):
        file = tmp_path_factory.mktemp("one") / "x.bmp"
        pixels = np.random.default_rng(seed).integers(0, levels, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
        _, body = tool._smallest(file)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(body)).convert("RGB")), pixels)

    def test_a_jpeg_stays_as_it_is(self, images, tmp_path):
        smooth = noise(5, 4).resize((64, 64), Image.Resampling.BICUBIC)
        exif = Image.Exif()
        exif[0x0112] = 6  # turned
        smooth.save(images / "val" / "bee" / "photo.JPG", quality=80, exif=exif)
        tool.pack(images, tmp_path / "c.zip", 1)
        with zipfile.ZipFile(tmp_path / "c.zip") as archive:
            body = archive.read("cifar100/val/bee/photo.JPG")
        assert body == (images / "val" / "bee" / "photo.JPG").read_bytes()

    def test_a_picture_that_webp_would_change_is_stored_as_it_is(self, images, monkeypatch):
        file = images / "val" / "bee" / "000.png"
        monkeypatch.setattr(tool.np, "array_equal", lambda *_: False)
        assert tool._smallest(file) == ("000.png", file.read_bytes())

    def test_a_picture_too_large_for_webp_is_stored_as_it_is(self, tmp_path):
        Image.new("RGB", (16384, 1)).save(tmp_path / "long.bmp")
        assert tool._smallest(tmp_path / "long.bmp") == ("long.bmp", (tmp_path / "long.bmp").read_bytes())

    def test_a_set_that_nobody_has_divided_is_divided_the_same_there(self, tmp_path, there):
        flat = make_set(tmp_path / "x", {"ucmerced": {"train": 7, "val": 5, "zoo": 2}}) / "ucmerced"
        tool.pack(flat, tmp_path / "u.zip", 1)
        tool.unpack(tmp_path / "u.zip", there)
        assert sorted(p.name for p in (there / "ucmerced").iterdir()) == ["all"]
        for split in ("all", "train", "val"):
            here = data.load(f"folder:{flat}", split)
            then = data.load(f"folder:{there / 'ucmerced'}", split)
            assert np.array_equal(here.images, then.images) and np.array_equal(here.labels, then.labels)


class TestChoice:
    def test_each_class_gives_as_many_as_asked_or_all_it_has(self, images, tmp_path):
        tool.pack(images, tmp_path / "c.zip", 1, {"train": 5, "val": None})
        counts = Counter(tuple(name.split("/")[1:3]) for name in entries(tmp_path / "c.zip"))
        assert counts == {
            ("train", "apple"): 5,
            ("train", "bee"): 5,
            ("train", "cup"): 4,
            ("val", "apple"): 3,
            ("val", "bee"): 2,
            ("val", "cup"): 3,
        }

    def test_splits_that_are_not_named_stay_away(self, images, tmp_path):
        line = tool.pack(images, tmp_path / "c.zip", 1, {"val": 1})
        assert line.startswith(f"{tmp_path / 'c.zip'}: val 3 of 8 images, 0.0 MiB")
        assert {name.split("/")[1] for name in entries(tmp_path / "c.zip")} == {"val"}

    def test_a_smaller_choice_lies_inside_a_larger_one(self, images, tmp_path):
        chosen = []
        for most in range(1, 10):
            tool.pack(images, tmp_path / "c.zip", 1, {"train": most})
            chosen.append(set(entries(tmp_path / "c.zip")))
        assert all(a < b for a, b in itertools.pairwise(chosen))

    def test_the_order_is_that_of_the_sums_of_class_and_name(self, images, tmp_path):
        tool.pack(images, tmp_path / "c.zip", 1, {"train": 1})
        stems = [f"bee/{i:03d}" for i in range(COUNTS["train"]["bee"])]
        first = min(stems, key=lambda stem: hashlib.sha256(stem.encode()).hexdigest())
        assert [name for name in entries(tmp_path / "c.zip") if f"train/{first}." in name]

    @settings(max_examples=40, deadline=None)
    @given(
        names=st.lists(st.text("abc01", min_size=1, max_size=6), unique=True, min_size=1, max_size=30),
        less=st.integers(1, 12),
        more=st.integers(0, 12),
        seed=st.integers(0, 99),
    )
    def test_the_choice_is_balanced_nested_and_of_names_alone(self, names, less, more, seed):
        files = [f"{label}/{name}.png" for label in "xy" for name in names]
        small = {file for _, _, file in tool._chosen("s", files, less)}
        assert small <= {file for _, _, file in tool._chosen("s", files, less + more)}
        assert Counter(file[0] for file in small) == dict.fromkeys("xy", min(less, len(names)))
        assert {job[0] for job in tool._chosen("s", files, less)} == set(range(min(less, len(names))))
        mixed = list(np.random.default_rng(seed).permutation(files))
        assert {file for _, _, file in tool._chosen("s", mixed, less)} == small
        ending = [file.replace(".png", ".webp") for file in files]
        assert {file.replace(".webp", ".png") for _, _, file in tool._chosen("s", ending, less)} == small

    def test_a_pack_of_a_pack_is_the_smaller_pack(self, images, there, tmp_path):
        tool.pack(images, tmp_path / "large.zip", 1)
        tool.unpack(tmp_path / "large.zip", there)
        tool.pack(images, tmp_path / "a.zip", 1, {"train": 2})
        tool.pack(there / "cifar100", tmp_path / "b.zip", 1, {"train": 2})
        assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()

    def test_the_same_pictures_give_the_same_bytes(self, images, tmp_path):
        tool.pack(images, tmp_path / "a.zip", 1)
        for file in images.rglob("*.png"):
            os.utime(file, (1, 1))
        (images / ".complete").touch()
        tool.pack(images, tmp_path / "b.zip", 1)
        assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
        with zipfile.ZipFile(tmp_path / "a.zip") as archive:
            assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


class TestSize:
    @pytest.mark.parametrize("kib", [5, 7, 9, 12])
    def test_what_is_said_to_fit_fits_and_one_more_does_not(self, images, tmp_path, capsys, kib):
        target, mib = tmp_path / "packs" / "c.zip", f"{kib / 1024}"
        sentence = said(capsys, "pack", images, target, "--mib", mib)
        assert not target.parent.exists()
        assert sentence.startswith(f"cifar100 does not fit into {kib / 1024:g} MiB: pack ")
        fit, advice = int(sentence.split("pack ")[1].split()[0]), sentence.split("--split ")[1].rstrip(".")
        assert advice == f"train={fit},val={min(fit, 3)}"
        assert tool.main(["pack", str(images), str(target), "--mib", mib, "--split", advice]) == 0
        assert target.stat().st_size <= kib * 1024
        capsys.readouterr()
        advice = f"train={fit + 1},val={fit + 1}"
        assert f"pack {fit} images a class" in said(
            capsys, "pack", images, target, "--mib", mib, "--split", advice
        )

    def test_its_size_is_known_but_for_the_end_record_of_a_large_zip(self, images, tmp_path):
        tool.pack(images, tmp_path / "c.zip", 1)
        size = (tmp_path / "c.zip").stat().st_size
        with pytest.raises(ValueError, match="does not fit"):
            tool.pack(images, tmp_path / "d.zip", (size - 1) / 2**20)
        tool.pack(images, tmp_path / "d.zip", (size + 76) / 2**20)

    def test_room_for_nothing(self, images, tmp_path, capsys):
        assert said(capsys, "pack", images, tmp_path / "c.zip", "--mib", "0.001") == (
            "Not even one image of each class of cifar100 fits into 0.001 MiB: give a larger --mib."
        )

    @pytest.mark.parametrize("mib", ["0", "-1", "nan", "inf", "2001"])
    def test_sizes_that_are_none(self, images, tmp_path, capsys, mib):
        sentence = said(capsys, "pack", images, tmp_path / "c.zip", "--mib", mib)
        assert sentence == f"--mib takes more than 0 and at most 2000, not {mib}."


class TestPackRefuses:
    def test_what_is_no_set(self, images, tmp_path, capsys):
        assert "There is no folder" in said(capsys, "pack", tmp_path / "no", tmp_path / "c.zip")
        (images / "val" / "bee" / "notes.txt").touch()
        assert "notes.txt is not a picture file" in said(capsys, "pack", images, tmp_path / "c.zip")
        assert not (tmp_path / "c.zip").exists()

    def test_a_broken_picture(self, images, tmp_path, capsys):
        file = images / "train" / "cup" / "002.png"
        file.write_bytes(file.read_bytes()[:-30])
        sentence = said(capsys, "pack", images, tmp_path / "c.zip")
        assert f"{file} cannot be read (" in sentence and sentence.endswith("replace or remove it.")
        assert not (tmp_path / "c.zip").exists()

    def test_a_split_that_is_not_there(self, images, tmp_path, capsys):
        sentence = said(capsys, "pack", images, tmp_path / "c.zip", "--split", "test=3")
        assert sentence == f"{images} has no split 'test': it has train, val."

    @pytest.mark.parametrize(
        "text", ["", "train=", "train=0", "train=-1", "train=x", "=3", "train=1,train=2", "train=1,"]
    )
    def test_splits_that_cannot_be_understood(self, images, tmp_path, capsys, text):
        with pytest.raises(SystemExit) as stopped:
            tool.main(["pack", str(images), str(tmp_path / "c.zip"), "--split", text])
        assert stopped.value.code == 2
        assert "expected train=200,val=50, or train=200,val, not" in capsys.readouterr().err

    def test_a_folder_as_its_file(self, images, tmp_path, capsys):
        assert "is a folder: name the file" in said(capsys, "pack", images, tmp_path)

    @pytest.mark.parametrize(
        ("names", "sentence"),
        [
            (("a.bmp", "a.tif"), "Two files would both become 's/train/c/a.webp': rename one."),
            (("a.bmp", "a.q.bmp"), "A file of {root}/train would change places as 'a.q.webp': rename it."),
        ],
    )
    def test_files_that_would_become_one_or_change_places(self, tmp_path, capsys, names, sentence):
        make_set(tmp_path / "s", {"train": {"c": 1}, "val": {"c": 1}})
        for i, name in enumerate(names):
            grain(i).save(tmp_path / "s" / "train" / "c" / name)
        assert said(capsys, "pack", tmp_path / "s", tmp_path / "c.zip") == sentence.format(root=tmp_path / "s")
        assert not (tmp_path / "c.zip").exists()

    @pytest.mark.parametrize("name", ["a\\b.png", "a\nb.png", "a\udcffb.png"])
    def test_a_name_that_another_machine_would_not_take(self, images, tmp_path, capsys, name):
        noise(9).save(images / "val" / "cup" / name)
        assert "is no name that every machine takes: rename it." in said(
            capsys, "pack", images, tmp_path / "c.zip"
        )

    def test_a_full_disk_leaves_the_old_pack(self, images, tmp_path, capsys, monkeypatch):
        (tmp_path / "p").mkdir()
        target = tmp_path / "p" / "c.zip"
        target.write_bytes(b"old")

        write = Path.write_bytes

        def full(path, body):
            write(path, bytes(body)[:99])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        assert "No space left on device: nothing half done was left" in said(capsys, "pack", images, target)
        monkeypatch.undo()
        assert files(tmp_path / "p") == {"c.zip": b"old"}


class TestUnpack:
    @pytest.fixture
    def pack(self, images, tmp_path):
        tool.pack(images, tmp_path / "c.zip", 1)
        return tmp_path / "c.zip"

    def test_twice_is_harmless(self, pack, there, capsys):
        tool.unpack(pack, there)
        (there / "cifar100" / ".complete").touch()
        before = {p: p.stat().st_mtime_ns for p in there.rglob("*")}
        assert tool.main(["unpack", str(pack), str(there)]) == 0
        assert "is there already, with the same pictures: nothing to do" in capsys.readouterr().out
        assert {p: p.stat().st_mtime_ns for p in there.rglob("*")} == before

    @pytest.mark.parametrize("change", ["more", "less", "other", "renamed", "file", "dangling"])
    def test_other_pictures_are_left_as_they_are(self, pack, there, capsys, change):
        folder = there / "cifar100"
        tool.unpack(pack, there)
        one = next(folder.rglob("000.*"))
        if change == "more":
            shutil.copy(one, one.with_name("999.png"))
        elif change == "less":
            one.unlink()
        elif change == "other":
            one.write_bytes(one.read_bytes() + b"\0")
        elif change == "renamed":
            one.rename(one.with_name("zzz.webp"))
        else:
            shutil.rmtree(folder)
            folder.write_bytes(b"x") if change == "file" else folder.symlink_to("nowhere")
        before = files(there)
        sentence = said(capsys, "unpack", pack, there)
        assert f"{folder} holds other pictures than {pack} (" in sentence
        assert sentence.endswith("the pack has 27): move it away, or unpack into another folder.")
        assert files(there) == before

    def test_a_smaller_pack_tells_that_it_is_a_part(self, images, there, tmp_path):
        tool.pack(images, tmp_path / "c.zip", 1, {"train": 2})
        line = tool.unpack(tmp_path / "c.zip", there / "new" / "folder")
        assert line == f"{there / 'new' / 'folder' / 'cifar100'}: train 6 of 19 images"

    def test_no_file(self, there, capsys):
        assert "There is no file" in said(capsys, "unpack", there / "c.zip", there)
        assert "There is no file" in said(capsys, "unpack", there, there)

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
    def test_a_truncated_pack(self, pack, there, capsys, share):
        pack.write_bytes(pack.read_bytes()[: int(share * pack.stat().st_size)])
        sentence = said(capsys, "unpack", pack, there)
        assert f"{pack} is no whole pack (" in sentence
        assert sentence.endswith("make it again, or carry it here again.")
        assert not any(there.iterdir())

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(where=st.integers(0, 2**16), flip=st.integers(1, 255), end=st.booleans())
    def test_one_changed_byte_is_found_or_changes_nothing(self, pack, tmp_path_factory, where, flip, end):
        body = bytearray(pack.read_bytes())
        tail = body.rindex(b'{"format"')
        body[tail + where % (len(body) - tail) if end else where % len(body)] ^= flip
        room = tmp_path_factory.mktemp("changed")
        (room / "c.zip").write_bytes(body)
        (room / "out").mkdir()
        try:
            tool.unpack(room / "c.zip", room / "out")
        except ValueError as error:
            assert str(room / "c.zip") in str(error)
            assert not any((room / "out").iterdir())
        else:
            # Times and the like may differ, and the totals of the set that the pack was made from.
            (found,) = (room / "out").iterdir()
            with zipfile.ZipFile(pack) as archive:
                assert files(found) == {n.removeprefix("cifar100/"): archive.read(n) for n in entries(pack)}

    @pytest.mark.parametrize(
        "name",
        [
            "../train/c/x.png",
            "s/../../x.png",
            "s/train/../x.png",
            "/s/train/x.png",
            "s//c/x.png",
            "s/train/c/d/x.png",
            "s/train/x.png",
            "t/train/c/x.png",
            "s/train/.c/x.png",
            "s/train/c/.x.png",
            "s/train/c/",
            "s/train/c\\..\\..\\..\\x/y.png",
            "s/train/c/x\n.png",
        ],
    )
    def test_a_path_that_leads_elsewhere(self, tmp_path, there, capsys, name):
        pack = forge(tmp_path / "c.zip", {"s/train/c/a.png": b"a", name: b"b"})
        sentence = said(capsys, "unpack", pack, there)
        assert f"holds {name!r}, not a <set>/<split>/<class>/<file>: it was not unpacked." in sentence
        assert not any(there.iterdir()) and not (tmp_path / "x.png").exists()

    @pytest.mark.parametrize("name", ["..", "/tmp", "", ".", "a/b", 3, None])
    def test_a_set_that_leads_elsewhere(self, tmp_path, there, capsys, name):
        pack = forge(tmp_path / "c.zip", {f"{name}/train/c/a.png": b"a"}, {"set": name})
        assert "it was not unpacked" in said(capsys, "unpack", pack, there)
        assert not any(there.iterdir())

    def test_links(self, tmp_path, there, capsys):
        link = zipfile.ZipInfo("s/train/c/b.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        pack = forge(tmp_path / "c.zip", {"s/train/c/a.png": b"a"}, infos=[(link, b"/etc/passwd")])
        assert "holds a link or device ('s/train/c/b.png') and was not unpacked." in said(
            capsys, "unpack", pack, there
        )
        assert not any(there.iterdir())

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_the_same_name_twice(self, tmp_path, there, capsys):
        name = "s/train/c/a.png"
        pack = forge(tmp_path / "c.zip", {name: b"a"}, infos=[(zipfile.ZipInfo(name), b"b")])
        assert f"holds {name!r} twice and was not unpacked." in said(capsys, "unpack", pack, there)
        assert not any(there.iterdir())

    @pytest.mark.parametrize(
        ("about", "reason"),
        [
            ({"format": 2}, "images are not those"),
            ({"sha256": "0" * 64}, "images are not those"),
            ({"images": {"train": 2}}, "counts are not those"),
            ({"images": {"train": 1, "val": 1}, "of": {"train": 1, "val": 1}}, "counts are not those"),
            ({"images": 3}, "no whole pack"),
            ({"of": {}}, "no whole pack"),
        ],
    )
    def test_a_list_that_does_not_fit_its_images(self, tmp_path, there, capsys, about, reason):
        pack = forge(tmp_path / "c.zip", {"s/train/c/a.png": b"a"}, about)
        assert reason in said(capsys, "unpack", pack, there)
        assert not any(there.iterdir())

    def test_a_zip_that_is_no_pack(self, tmp_path, there, capsys):
        with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
            archive.writestr("s/train/c/a.png", b"a")
        assert "There is no item named 'pack.json'" in said(capsys, "unpack", tmp_path / "c.zip", there)
        with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("pack.json", b" " * 10**6)
        assert "its entries have been compressed" in said(capsys, "unpack", tmp_path / "c.zip", there)
        assert not any(there.iterdir())

    @pytest.mark.parametrize("reason", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
    def test_a_full_disk_or_an_interrupt_leaves_nothing(self, pack, there, capsys, monkeypatch, reason):
        count = 0
        copy = shutil.copyfileobj

        def fail(*arguments):
            nonlocal count
            count += 1
            if count == 10:
                raise reason
            copy(*arguments)

        monkeypatch.setattr(shutil, "copyfileobj", fail)
        code = tool.main(["unpack", str(pack), str(there)])
        assert count == 10 and not any(there.iterdir())
        err = capsys.readouterr().err
        if isinstance(reason, KeyboardInterrupt):
            assert code == 130 and err == "\nInterrupted: nothing half done was left.\n"
        else:
            assert code == 1 and "No space left on device: nothing half done was left" in err
        monkeypatch.undo()
        tool.unpack(pack, there)

    @pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
    def test_a_stopped_unpacking_leaves_nothing(self, tmp_path, there, sent):
        bodies = {f"s/train/c/{i:05d}.png": b"x" for i in range(10_000)}
        pack = forge(tmp_path / "c.zip", bodies)
        process = subprocess.Popen([sys.executable, TOOL, "unpack", pack, there], stderr=subprocess.PIPE)
        try:
            end = time.monotonic() + 120
            while not any(there.rglob("*.png")) and time.monotonic() < end:
                time.sleep(0.005)
            process.send_signal(sent)
            _, err = process.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert process.returncode == 130 and b"nothing half done was left" in err
        assert not any(there.iterdir())


def test_help_says_what_each_command_takes():
    def helped(*arguments):
        return subprocess.run(
            [sys.executable, *arguments, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    assert "pack_data.py pack $VITLAB_DATA/cifar100 packs/cifar100.zip --mib 60" in helped(TOOL)
    assert "--split SPLIT=N" in helped("-m", "tools.pack_data", "pack")
