"""Archives: nothing outside, nothing half done, nothing that is not a plain file."""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.data import archives

NOISE = np.random.default_rng(0).bytes(60_000)
GOOD = {"set/a/one.bin": NOISE, "set/b/two.bin": b"two", "set/empty.bin": b""}


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return path


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, body in members.items():
            pack.writestr(name, body)
    return path


def nothing_left(tmp_path):
    return [p.name for p in tmp_path.iterdir() if p.is_dir()] == []


def test_tar_and_zip_give_their_files(tmp_path):
    packs = [make_zip(tmp_path / "a.zip", GOOD)]
    packs += [make_tar(tmp_path / f"a.{m}", GOOD, f"w:{m}") for m in ("gz", "bz2", "xz", "")]
    for i, pack in enumerate(packs):
        out = archives.unpack(pack, tmp_path / f"out{i}")
        assert {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()} == GOOD
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == [f"out{i}" for i in range(5)]


def test_arrange_chooses_what_is_published(tmp_path):
    out = archives.unpack(make_zip(tmp_path / "a.zip", GOOD), tmp_path / "out", lambda room: room / "set")
    assert (out / "b" / "two.bin").read_bytes() == b"two"


def test_a_finished_folder_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    assert archives.unpack(tmp_path / "missing.zip", tmp_path / "out") == tmp_path / "out"


@pytest.mark.parametrize(
    "name", ["../evil", "set/../../evil", "/tmp/evil", "C:/evil", "C:evil", "..\\evil", "\\\\host\\share\\evil"]
)
@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_a_path_that_climbs_out_is_refused(tmp_path, make, name):
    room = tmp_path / "room"
    room.mkdir()
    pack = make(tmp_path / "evil.pack", {"fine.bin": b"1", name: b"evil"})
    with pytest.raises(ValueError, match="outside its folder"):
        archives.unpack(pack, room / "out")
    assert list(room.iterdir()) == []
    assert not (tmp_path / "evil").exists() and not os.path.exists("/tmp/evil")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = kind, "../../etc/passwd"
        tar.addfile(info)
    with pytest.raises(ValueError, match="link or device"):
        archives.unpack(tmp_path / "a.tar", tmp_path / "out")
    assert nothing_left(tmp_path)


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as pack:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        pack.writestr(info, "../../etc/passwd")
    with pytest.raises(ValueError, match="link or device"):
        archives.unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_an_archive_that_swells_is_refused(tmp_path, make):
    pack = make(tmp_path / "bomb.pack", {"zeros.bin": bytes(3_000_000)})
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        archives.unpack(pack, tmp_path / "out", max_bytes=1_000_000)
    assert nothing_left(tmp_path)


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path):
    pack = make_zip(tmp_path / "a.zip", {"zeros.bin": bytes(50_000)})
    raw = pack.read_bytes().replace((50_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    pack.write_bytes(raw)
    with pytest.raises(RuntimeError, match="corrupted"):
        archives.unpack(pack, tmp_path / "out")
    assert nothing_left(tmp_path)


def test_a_name_that_comes_twice_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for _ in range(2):
            tar.addfile(tarfile.TarInfo("same"))
    with pytest.raises(ValueError, match="twice"):
        archives.unpack(tmp_path / "a.tar", tmp_path / "out")


@pytest.mark.parametrize("make", [make_tar, make_zip, lambda path, members: make_tar(path, members, "w")])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_an_archive_cut_short_is_corrupted(tmp_path, make, part):
    pack = make(tmp_path / "a.pack", GOOD)
    raw = pack.read_bytes()
    # A plain tar is padded with zeros: only what comes before its end mark matters.
    end = len(raw.rstrip(b"\0")) if raw[:2] not in (b"\x1f\x8b", b"PK") else len(raw)
    pack.write_bytes(raw[: int(end * part)])
    with pytest.raises(RuntimeError, match=r"corrupted .*: delete it and load again\.$"):
        archives.unpack(pack, tmp_path / "out")
    assert nothing_left(tmp_path)


def test_a_tar_cut_between_two_members_is_corrupted(tmp_path):
    pack = make_tar(tmp_path / "a.tar", {"one": b"1" * 512, "two": b"2" * 512}, "w")
    pack.write_bytes(pack.read_bytes()[:1024])
    with pytest.raises(RuntimeError, match="end mark"):
        archives.unpack(pack, tmp_path / "out")


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["zip", "gz"]), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_changed_byte_never_gives_changed_files(tmp_path_factory, kind, place, flip):
    """Wherever one byte is changed, the archive is refused or its files come out as they were."""
    room = tmp_path_factory.mktemp("flip")
    pack = make_zip(room / "a.zip", GOOD) if kind == "zip" else make_tar(room / "a.tgz", GOOD)
    raw = bytearray(pack.read_bytes())
    raw[int(place * len(raw))] ^= flip
    pack.write_bytes(raw)
    try:
        out = archives.unpack(pack, room / "out")
    except (RuntimeError, ValueError):
        assert nothing_left(room)
        return
    bodies = sorted(p.read_bytes() for p in out.rglob("*") if p.is_file())
    assert bodies == sorted(GOOD.values())


def test_a_full_disk_while_unpacking_leaves_nothing(tmp_path, monkeypatch):
    pack = make_zip(tmp_path / "a.zip", GOOD)

    def full(source, target, length):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archives.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space"):
        archives.unpack(pack, tmp_path / "out")
    assert nothing_left(tmp_path)


def test_what_a_killed_unpacking_left_is_swept(tmp_path):
    (tmp_path / ".set-abc.partial" / "contents").mkdir(parents=True)
    (tmp_path / ".other-abc.partial").mkdir()
    archives.sweep(tmp_path, "set")
    assert [p.name for p in tmp_path.iterdir()] == [".other-abc.partial"]
