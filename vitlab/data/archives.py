"""Unpacking a downloaded archive: nothing outside its folder, nothing half done under the final name."""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

PLUMBING = True  # a change here cannot change a recorded number

MAX_BYTES = 8 * 2**30
MAX_MEMBERS = 1_000_000
BLOCK = 2**20

BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def unpack(
    archive: Path,
    folder: Path,
    arrange: Callable[[Path], Path] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Unpack a tar (plain or compressed) or zip file into `folder`, which appears only when all of it is there.

    `arrange` may move things about in the unpacked folder and returns the part of it that is to become `folder`.
    Raises `ValueError` for an archive that would write outside its folder, or holds links, devices or more than
    `max_bytes`; `RuntimeError` for one that is corrupted. In every case nothing is left behind.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", suffix=".partial", dir=folder.parent) as partial:
        room = Path(partial) / "contents"
        room.mkdir()
        try:
            _write(archive, room, max_bytes)
        except BROKEN as error:
            raise RuntimeError(_corrupted(archive, error)) from error
        except OSError as error:
            # gzip tells of a bad file by an OSError without a number; one with a number is the disk's.
            if error.errno is None:
                raise RuntimeError(_corrupted(archive, error)) from error
            raise
        (arrange(room) if arrange else room).rename(folder)
    return folder


def sweep(parent: Path, name: str) -> None:
    """Remove what an unpacking of `name` that was killed left in `parent`; hold the lock when calling."""
    for partial in parent.glob(f".{name}-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


def _corrupted(archive: Path, error: Exception) -> str:
    reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
    return f"The archive {archive} is corrupted ({reason}): delete it and load again."


def _write(archive: Path, room: Path, max_bytes: int) -> None:
    members = 0
    left = max_bytes
    for name, size, stream in _members(archive):
        members += 1
        left -= size
        if left < 0 or members > MAX_MEMBERS:
            raise ValueError(
                f"The archive {archive} holds more than {max_bytes:,} bytes or {MAX_MEMBERS:,} files: "
                "it is not the published data set and was not unpacked."
            )
        target = room / _safe(archive, name)
        if stream is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise ValueError(f"The archive {archive} holds {name!r} twice and was not unpacked.")
        # Both libraries stop at the announced size, and a zip whose announcement was a lie then fails its sum.
        with target.open("wb") as file:
            shutil.copyfileobj(stream, file, BLOCK)


def _safe(archive: Path, name: str) -> PurePosixPath:
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    outside = path.is_absolute() or windows.drive or windows.root or ".." in windows.parts
    if outside or "\\" in name or "\0" in name:
        raise ValueError(f"The archive {archive} would write outside its folder ({name!r}) and was not unpacked.")
    return path


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """Name, announced size and contents of each member; contents are None for a folder."""
    with archive.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    if is_zip:
        with zipfile.ZipFile(archive) as pack:
            for info in pack.infolist():
                mode = info.external_attr >> 16
                if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _special(archive, info.filename)
                if info.is_dir():
                    yield info.filename, 0, None
                    continue
                with pack.open(info) as stream:
                    yield info.filename, info.file_size, stream
        return
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise _special(archive, member.name)
            yield member.name, member.size if member.isfile() else 0, tar.extractfile(member)
        _check_end(tar)


def _check_end(tar: tarfile.TarFile) -> None:
    # tarfile takes a file cut between two members for a complete one. The iteration has read one block past
    # the last member; a complete archive has a second block of zeros there. Reading on to the end makes gzip
    # check its own sum as well.
    assert tar.fileobj is not None
    mark = tar.fileobj.read(tarfile.BLOCKSIZE)
    if len(mark) < tarfile.BLOCKSIZE or any(mark):
        raise EOFError("it ends before its end mark")
    while tar.fileobj.read(BLOCK):
        pass


def _special(archive: Path, name: str) -> ValueError:
    return ValueError(f"The archive {archive} holds a link or device ({name!r}) and was not unpacked.")
