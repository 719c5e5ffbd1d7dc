"""The public data sets: where they are published, their sums, and how their archives are read.

cifar10, cifar100  Krizhevsky, 2009, Learning Multiple Layers of Features from Tiny Images; 32 px
tinyimagenet       Stanford CS231n, 200 classes of ImageNet at 64 px; ImageNet's terms (non-commercial research)
ucmerced           Yang and Newsam, 2010, Bag-of-Visual-Words and Spatial Extensions for Land-Use Classification;
                   USGS imagery in the public domain, 256 px (44 images a few pixels less)
imagenet100        100 classes of ImageNet-1k (Tian, Krishnan and Isola, 2020, Contrastive Multiview Coding,
                   publish the list as imagenet100.txt in github.com/HobbitLong/CMC); needs a copy of ImageNet
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import archives, download


@dataclass(frozen=True)
class Source:
    """One published archive: addresses in order of preference, its sum, how its contents become class folders."""

    urls: tuple[str, ...]
    known_hash: str
    arrange: Callable[[Path], Path]


def fetch(name: str) -> Path:
    """The folder with the unpacked public set `name`, downloaded at its first use.

    Raises `FileNotFoundError` offline, `RuntimeError` for a file that is not the published one, `OSError` for a
    full disk; each says in one sentence what to do.
    """
    source = SOURCES[name]
    root = download.cache_root()
    folder = root / name
    if folder.is_dir():
        return folder
    with download.locked(root / f"{name}.lock"), download.writing(name, root):
        archives.sweep(root, name)
        archive = download.fetch(name, source.urls, source.known_hash, root / "downloads" / name)
        return archives.unpack(archive, folder, source.arrange)


def cifar(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Images `(N, 32, 32, 3)`, labels and class names from an unpacked CIFAR-10 or CIFAR-100 (fine labels)."""
    fine = (folder / "meta").exists()
    meta = unpickle(folder / ("meta" if fine else "batches.meta"))
    batches = [split] if fine else [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    parts = [unpickle(folder / batch) for batch in batches]
    flat = np.concatenate([np.asarray(part["data"], dtype=np.uint8) for part in parts])
    labels = np.concatenate([np.asarray(part["fine_labels" if fine else "labels"], np.int64) for part in parts])
    images = np.ascontiguousarray(flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, labels, tuple(meta["fine_label_names" if fine else "label_names"])


def unpickle(path: Path) -> Any:
    """The contents of a pickle of plain values and numpy arrays; `ValueError` for one that asks for more."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: delete its folder and load again.")
    with path.open("rb") as file:
        try:
            return _Plain(file, encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"{path} is no plain data file ({error}): delete its folder and load again."
            ) from error


class _Plain(pickle.Unpickler):
    """An unpickler that can build numpy arrays and nothing else, so that a data file cannot run code."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        super().__init__(file, encoding=encoding)

    def find_class(self, module: str, name: str) -> Any:
        # The files were written under Python 2, when numpy's parts had other addresses.
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _arrange_cifar(room: Path) -> Path:
    (inner,) = room.iterdir()
    return inner


def _arrange_ucmerced(room: Path) -> Path:
    images = room / "UCMerced_LandUse" / "Images"
    out = room / "arranged"
    out.mkdir()
    images.rename(out / "all")
    return out


def _arrange_tinyimagenet(room: Path) -> Path:
    """To <split>/<class>/<file>, a class being its WordNet number and first name: n01443537_goldfish."""
    raw, out = room / "tiny-imagenet-200", room / "arranged"
    words = dict(line.split("\t", 1) for line in (raw / "words.txt").read_text("utf-8").splitlines())
    wanted = (raw / "wnids.txt").read_text("utf-8").split()
    folders = {wnid: f"{wnid}_{words[wnid].split(',')[0].strip().replace(' ', '_')}" for wnid in wanted}
    for wnid, name in folders.items():
        (out / "val" / name).mkdir(parents=True)
        (out / "train").mkdir(exist_ok=True)
        (raw / "train" / wnid / "images").rename(out / "train" / name)
    for line in (raw / "val" / "val_annotations.txt").read_text("utf-8").splitlines():
        file, wnid = line.split("\t")[:2]
        os.rename(raw / "val" / "images" / file, out / "val" / folders[wnid] / file)
    return out


SOURCES = {
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        "md5:c58f30108f718f92721af3b95e74349a",
        _arrange_cifar,
    ),
    "cifar100": Source(
        ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
        "md5:eb9058c3a382ffc7106e4002c42a8d85",
        _arrange_cifar,
    ),
    "tinyimagenet": Source(
        ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
        "md5:90528d7ca1a48142e341f4ef8d21d0de",
        _arrange_tinyimagenet,
    ),
    # The authors' own server speaks no HTTPS; the second address is TorchGeo's copy of the
    # same file.
    "ucmerced": Source(
        (
            "http://weegee.vision.ucmerced.edu/datasets/UCMerced_LandUse.zip",
            "https://huggingface.co/datasets/torchgeo/ucmerced/resolve/7c5ef3454d9b1cccfa7ccde0c01fc8f00a45909a/"
            "UCMerced_LandUse.zip",
        ),
        "md5:5b7ec56793786b6dc8a908e8854ac0e4",
        _arrange_ucmerced,
    ),
}
