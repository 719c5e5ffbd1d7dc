"""Downloads that go on where they stopped, checked against the published sum before anyone sees them."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLUMBING = True  # a change here cannot change a recorded number

TIMEOUT = (10, 60)  # seconds to connect, seconds without a byte
RETRIES = 5  # in a row, of a connection that was answered and broke off before it brought anything new
CONNECTIONS = 100  # in one call, in all
PAUSE = 1.0  # seconds before the first retry, then longer
CHUNK = 2**14  # bytes at a time; what a broken connection leaves of the last piece is lost


class Unreachable(Exception):
    """A source that did not deliver the whole file; the message is the reason."""


def cache_root() -> Path:
    """The folder of downloads and packed sets: $VITLAB_CACHE, else the system's cache folder for vitlab."""
    import pooch

    chosen = os.environ.get("VITLAB_CACHE")
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("vitlab"))


def fetch(name: str, urls: Sequence[str], known_hash: str, folder: Path) -> Path:
    """The file in `folder`, from the first of `urls` that delivers it, checked against `known_hash` ("md5:...").

    An interrupted download stays beside it as `<file>.part` and is continued by the next call. A file that is
    there already is checked again and used. Call it inside `locked`.

    Raises `FileNotFoundError` where no source could be reached, `RuntimeError` where what came is not the
    published file (it is removed), `OSError` where the disk is full or the folder cannot be written.
    """
    reasons: list[str] = []
    differs = False
    with writing(name, folder):
        folder.mkdir(parents=True, exist_ok=True)
        # pooch's own temporary files, left by a process that was killed; we hold the lock, so nobody needs
        # them.
        for stray in folder.glob("tmp*"):
            stray.unlink()
        for url in urls:
            try:
                return _retrieve(name, url, known_hash, folder)
            except Unreachable as error:
                reasons.append(f"{url}: {error}")
            except ValueError:
                differs = True
                reasons.append(f"{url}: not the published file, its {known_hash.split(':')[0]} sum differs")
    reason = "; ".join(reasons)
    if differs:
        raise RuntimeError(
            f"{name} could not be downloaded ({reason}); what came was removed: try again later, or put class "
            f"folders at $VITLAB_DATA/{name} and set VITLAB_DATA."
        )
    raise FileNotFoundError(
        f"{name} is not on this machine and could not be downloaded ({reason}): connect once, or put class "
        f"folders at $VITLAB_DATA/{name} and set VITLAB_DATA."
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time through; the others wait, and say so."""
    from filelock import FileLock, Timeout

    with writing(path.stem, path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=2)
        except Timeout:
            print(f"Waiting for another process that is fetching {path.stem} ...", flush=True)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _retrieve(name: str, url: str, known_hash: str, folder: Path) -> Path:
    import pooch

    filename = url.rsplit("/", 1)[-1]
    downloader = _Resuming(folder / f"{filename}.part", name)
    logger: logging.Logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # the progress bar says what is going on
    try:
        try:
            path = pooch.retrieve(url, known_hash, fname=filename, path=folder, downloader=downloader)
        except ValueError:
            if not downloader.resumed:
                raise
            # The first half may have been of another file: what was put together is gone, so start from
            # nothing.
            path = pooch.retrieve(url, known_hash, fname=filename, path=folder, downloader=downloader)
    finally:
        logger.setLevel(level)
    return Path(path)


@contextmanager
def writing(name: str, folder: Path) -> Iterator[None]:
    """Turn a full or closed disk, met while `name` is written to `folder`, into one sentence."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # not the system's: a sentence of ours, or a network error of requests
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(name, folder) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise PermissionError(
                f"{name} cannot be written to {folder} ({error.strerror}): set VITLAB_CACHE to a folder of yours."
            ) from error
        raise


def _disk_full(name: str, folder: Path, needed: str = "more room") -> OSError:
    full = OSError(
        f"The disk that holds {folder} is full, {name} needs {needed}: free some, or set VITLAB_CACHE to a larger "
        "disk, and load again."
    )
    full.errno = errno.ENOSPC
    return full


class _Resuming:
    """A downloader for pooch that keeps what has come in `part` until all of it is there."""

    def __init__(self, part: Path, name: str) -> None:
        self.part = part
        self.name = name
        self.resumed = False
        self.answered = False

    def __call__(self, url: str, output_file: str, pooch: Any, check_only: bool = False) -> None:
        import requests

        self.resumed = False
        failures = 0
        for _ in range(CONNECTIONS):
            before = self._size()
            self.answered = False
            try:
                self._continue(url)
            except requests.HTTPError as error:
                raise Unreachable(f"the server answered {str(error)[:3]}") from error
            except requests.RequestException as error:
                failures = 1 if self._size() > before else failures + 1
                # A source that does not answer is given up at once, so that "offline" is said at once.
                if not self.answered:
                    raise Unreachable(_short(error)) from error
                if failures > RETRIES:
                    break
                time.sleep(PAUSE * failures)
            else:
                os.replace(self.part, output_file)
                return
        raise Unreachable(f"the connection broke off after {self._size():,} bytes")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _continue(self, url: str) -> None:
        import requests
        from tqdm.auto import tqdm

        have = self._size()
        # Without compression on the way, so that bytes on the disk and bytes at the source are the same ones.
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            content_range = response.headers.get("Content-Range", "")
            if response.status_code == 416:  # nothing lies beyond what we have: it is all there, or it is wrong
                self.resumed = True
                if content_range == f"bytes */{have}":
                    return
                self.part.unlink()
                return self._continue(url)
            response.raise_for_status()
            self.answered = True
            continues = response.status_code == 206 and content_range.startswith(f"bytes {have}-")
            if have and not continues:
                have = 0  # a server that cannot continue sends the whole file
            self.resumed = self.resumed or have > 0
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            if total is not None and total - have > shutil.disk_usage(self.part.parent).free:
                raise _disk_full(self.name, self.part.parent, f"{(total - have) / 1e6:,.0f} MB more")
            bar = tqdm(
                total=total, initial=have, unit="B", unit_scale=True, desc=self.name, delay=0.5, leave=False
            )
            with bar, self.part.open("ab" if have else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
        if total is not None and self._size() != total:
            raise requests.ConnectionError(f"the connection ended after {self._size():,} of {total:,} bytes")


def _short(error: Exception) -> str:
    """The last link of a chain of network errors, which is the one that names the cause."""
    while isinstance(inner := (getattr(error, "reason", None) or (error.args and error.args[0])), Exception):
        error = inner
    text = str(error)
    return text.rsplit(": ", 1)[-1] if ": " in text else text or type(error).__name__
