"""Decoding many picture files at once, and keeping what came out, so that the second load is quick."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import ImageFile

from .download import cache_root
from .pixels import Unreadable

PLUMBING = True  # a change here cannot change a recorded number

FORMAT = "1"  # raise it when `pixels` decodes differently, so that no old pack is used
SMALLEST = 1000  # files; fewer are decoded quicker than a pack is worth
LARGEST = 2 * 2**30  # bytes; a larger pack would fill a reader's disk unasked
NAMED = 5


Decoder = Callable[[Path, "int | None"], np.ndarray]


def read_all(
    decode: Decoder,
    root: Path,
    files: Sequence[str],
    size: int | None,
    chosen: np.ndarray | None = None,
    tag: str = "images",
) -> np.ndarray:
    """The pictures `files` under `root` as uint8 `(N, H, W, 3)`, or only those at the indices `chosen`.

    `decode(path, size)` reads one; it comes from outside, so that this module stays free of what decides a pixel.

    All of a large folder is decoded once and kept in the cache, under a key of the files' names, sizes and times.
    Raises `ValueError` naming the files that cannot be read, or two of different sizes where `size` is None;
    `MemoryError` where the images would not fit.
    """
    pack = _pack(root, size, tag)
    key = ""
    if len(files) >= SMALLEST:
        key = _key(root, files, size)
        images = _load(pack, key)
        if images is not None:
            return images if chosen is None else images[chosen]
    wanted = files if chosen is None else [files[i] for i in chosen]
    images = _decode_all(decode, root, wanted, size)
    if key and chosen is None and images.nbytes <= LARGEST:
        _save(pack, key, images)
    return images


def _decode_all(decode: Decoder, root: Path, files: Sequence[str], size: int | None) -> np.ndarray:
    from tqdm.auto import tqdm

    # Some libraries switch this on for the whole process, and Pillow then fills up broken pictures with grey.
    lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    images: np.ndarray | None = None
    broken: list[str] = []
    try:
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            found = pool.map(lambda file: _try(decode, root / file, size), files)
            for i, picture in enumerate(
                tqdm(found, total=len(files), desc="reading images", delay=1, leave=False)
            ):
                if isinstance(picture, Unreadable):
                    broken.append(f"{root / files[i]} ({picture})")
                    continue
                if images is None:
                    images = _allocate(len(files), picture)
                    first = files[i]
                if picture.shape != images.shape[1:]:
                    pool.shutdown(wait=False, cancel_futures=True)
                    a, b = ("x".join(map(str, shape[:2])) for shape in (images.shape[1:], picture.shape))
                    raise ValueError(
                        f"The pictures in {root} differ in size ({first}: {a}, {files[i]}: {b}): pass size=, "
                        "for example size=64, to make them square and equal."
                    )
                images[i] = picture
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient
    if broken:
        more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
        raise ValueError(
            f"{len(broken)} of {len(files)} pictures cannot be read: {', '.join(broken[:NAMED])}{more}; "
            "replace or remove them."
        )
    assert images is not None
    return images


def _try(decode: Decoder, path: Path, size: int | None) -> np.ndarray | Unreadable:
    try:
        return decode(path, size)
    except Unreadable as error:
        return error


def _allocate(count: int, picture: np.ndarray) -> np.ndarray:
    needed = count * picture.nbytes
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > memory:
        raise MemoryError(
            f"{count:,} images of {picture.shape[0]}x{picture.shape[1]} need {needed / 1e9:.1f} GB, this machine "
            f"has {memory / 1e9:.1f} GB: pass limit=, or a smaller size=."
        )
    return np.empty((count, *picture.shape), dtype=np.uint8)


def _pack(root: Path, size: int | None, tag: str) -> Path:
    place = hashlib.sha256(f"{root.resolve()}|{size}".encode()).hexdigest()[:12]
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in tag)[-60:]
    return cache_root() / "packed" / f"{safe}-{size or 'own'}-{place}.npz"


def _key(root: Path, files: Sequence[str], size: int | None) -> str:
    digest = hashlib.sha256(f"{FORMAT}|{size}".encode())
    for file in files:
        status = os.stat(root / file)
        digest.update(f"|{file}|{status.st_size}|{status.st_mtime_ns}".encode())
    return digest.hexdigest()


def _load(pack: Path, key: str) -> np.ndarray | None:
    """The packed images, or None where there are none, or other ones, or damaged ones (zip checks its sums)."""
    try:
        with np.load(pack, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                return None
            images = stored["images"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(f"The packed copy {pack} is damaged ({error}) and is made anew.", stacklevel=5)
        return None
    return images


def _save(pack: Path, key: str, images: np.ndarray) -> None:
    """Keep `images`, whole or not at all; a full or closed disk costs only the speed of the next load."""
    partial = None
    try:
        pack.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=pack.parent, suffix=".partial", delete=False) as file:
            partial = Path(file.name)
            np.savez(file, key=np.array(key), images=images)
        os.replace(partial, pack)
    except OSError as error:
        warnings.warn(f"The decoded images could not be kept in {pack.parent} ({error}).", stacklevel=5)
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
