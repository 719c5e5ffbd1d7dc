"""Where a stream's pictures come from: class folders, tar files, and whatever timm's readers read."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from .folders import Listing, list_split
from .imageset import whole
from .pixels import Unreadable, decode, square, to_rgb

# What reads the names that begin with it.
PACKAGES = {"wds": "webdataset", "hfds": "datasets", "hfids": "datasets", "tfds": "tensorflow_datasets"}


class Reader(Protocol):
    """What timm calls a reader: an open file, or the way to one, and a label for each index."""

    def __getitem__(self, index: int) -> tuple[Any, int]: ...

    def __len__(self) -> int: ...

    def filename(self, index: int, basename: bool = False, absolute: bool = False) -> str:
        """Return what file an index stands for."""
        ...


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures read when they are asked for: uint8 `(3, height, width)` and a label, by index.

    They are decoded as `data.load` decodes them, byte for byte. Raises `ValueError` that names a picture that
    cannot be read.
    """

    def __init__(self, reader: Reader, size: int | None = None) -> None:
        self.reader = reader
        self.size = size

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file, label = self.reader[index]
        try:
            picture = decode(file, self.size)
        except Unreadable as error:
            name = self.reader.filename(index, absolute=True)
            raise ValueError(f"{name} cannot be read ({error}): replace or remove it.") from error
        return _planes(picture), int(label)


class Folders:
    """The files of a split of class folders, in the order of `data.load`."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def __len__(self) -> int:
        return len(self.listing.files)

    def __getitem__(self, index: int) -> tuple[Path, int]:
        return self.listing.root / self.listing.files[index], int(self.listing.labels[index])

    def filename(self, index: int, basename: bool = False, absolute: bool = False) -> str:
        """Return the way to a file."""
        return str(self.listing.root / self.listing.files[index])


class Prepare:
    """A decoded picture as uint8 `(3, height, width)`, the centred square of it where `size` is given."""

    def __init__(self, size: int | None) -> None:
        self.size = size

    def __call__(self, picture: Image.Image) -> Tensor:
        rgb = to_rgb(picture)
        return _planes(np.asarray(rgb if self.size is None else square(rgb, self.size)))


def reader(
    name: str | Path, split: str | None = None, size: int | None = None, **options: Any
) -> Pictures | IterableDataset[tuple[Tensor, int]]:
    """Open a data set for a `Stream`: each sample a uint8 tensor `(3, height, width)` and a label.

    name     a folder of class folders, as a path or as `folder:PATH`, or a set of `data.names()` that lies in
             folders; a tar file with a folder a class; or a name of timm's: `wds/`, `hfds/`, `hfids/` or `tfds/`
             and what its reader expects
    split    as in `data.load`; for timm's names as its reader expects, and then it must be given
    size     the side in pixels, as in `data.load`; None leaves pictures as they are, all of one size
    options  for timm's names, what `timm.data.create_dataset` takes: root, is_training, num_samples, seed ...

    Folders, tar files and `hfds/` can be read in any order, so that a step's batch is found at once and each
    process reads its own share. The others are read from their beginning; webdataset skips what it cannot decode,
    and says so in the log.

    Raises:
        FileNotFoundError, ValueError: no such folder, set or split.
        ImportError: the package that reads such names is not installed.
    """
    size = None if size is None else whole(size, "size")
    prefix = str(name).split("/")[0].lower()
    if prefix in PACKAGES and isinstance(name, str):
        return _foreign(name, PACKAGES[prefix], split, size, options)
    if options:
        raise ValueError(f"Folders and tar files take no option {next(iter(options))!r}.")
    if str(name).lower().endswith(".tar") and Path(name).is_file():
        from timm.data.readers.reader_image_in_tar import ReaderImageInTar

        return Pictures(ReaderImageInTar(str(name), cache_tarfiles=False, cache_tarinfo=False), size)
    return Pictures(Folders(_listing(str(name), split)), size)


def _listing(name: str, split: str | None) -> Listing:
    from vitlab import data

    if name not in data.names() and not name.startswith("folder:"):
        name = f"folder:{name}"
    split = data._split(name, split)
    folder = data._local(name)
    if folder is None and name in data._FOLDERS:
        from .public import fetch

        folder = fetch(name)
    if folder is None:
        raise ValueError(f"{name} does not lie in folders: load it into memory, with data.load({name!r}).")
    return list_split(folder, split)


def _foreign(
    name: str, package: str, split: str | None, size: int | None, options: dict[str, Any]
) -> Pictures | IterableDataset[tuple[Tensor, int]]:
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f"{name} is read by the package {package}, which is not installed: pip install {package}."
        )
    if split is None:
        raise ValueError(f"{name} needs a split, as timm's reader of it expects.")
    import timm.data

    # timm's own conversion to RGB would cut 16 bits off and drop what lies under transparency: ours is used.
    opened = timm.data.create_dataset(name, split=split, input_img_mode="", **options)
    if not isinstance(opened, IterableDataset):
        return Pictures(opened.reader, size)
    opened.transform = Prepare(size)
    if hasattr(opened.reader, "dist_num_replicas"):
        # The stream cuts the shares of the processes itself.
        opened.reader.dist_rank, opened.reader.dist_num_replicas = 0, 1
    return opened


def _planes(picture: np.ndarray) -> Tensor:
    """(height, width, 3) -> (3, height, width), a copy: Pillow's own memory is closed to writing."""
    return torch.from_numpy(np.array(picture.transpose(2, 0, 1), order="C"))
