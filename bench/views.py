"""Our views against kornia's on the same batch and torchvision's image by image; our feeds against a DataLoader.

    OMP_NUM_THREADS=1 python -m bench.views --rounds 15

Everything is per-image random with the same settings: 64 floats in [0, 1] of 32 and of 224 px, drawing included.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import kornia.augmentation as kornia
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from bench.interleave import Ratio, compare
from vitlab import data
from vitlab.data.feeds import InMemory, Stream, reader
from vitlab.data.views import Colour, Crop, Erase, Flip, Shift, View

BATCH = 64
STEPS = 8  # a round of the feeds
FILES = 1024
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def transforms(size: int) -> dict[str, tuple[Any, Any, Any]]:
    """Return by name what is compared: ours, kornia's and torchvision's."""
    erase: dict[str, Any] = {"p": 0.25, "scale": (0.02, 1 / 3), "ratio": (0.3, 3.3)}
    found = {
        "shift": (
            Shift(4),
            kornia.RandomCrop((size, size), padding=4, padding_mode="reflect", cropping_mode="slice"),
            v2.RandomCrop(size, padding=4, padding_mode="reflect"),
        ),
        "flip": (Flip(), kornia.RandomHorizontalFlip(p=0.5), v2.RandomHorizontalFlip()),
        "colour": (
            Colour(0.4, 0.4, 0.4),
            kornia.ColorJitter(0.4, 0.4, 0.4, 0.0, p=1.0),
            v2.ColorJitter(0.4, 0.4, 0.4),
        ),
        "colour with hue": (
            Colour(0.4, 0.4, 0.4, 0.1),
            kornia.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        ),
        "erase": (Erase(**erase), kornia.RandomErasing(**erase), v2.RandomErasing(**erase)),
        "resized crop": (
            Crop(),
            kornia.RandomResizedCrop(
                (size, size), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), cropping_mode="resample"
            ),
            v2.RandomResizedCrop(size),
        ),
        "crop to half": (
            Crop(size=size // 2),
            kornia.RandomResizedCrop(
                (size // 2, size // 2), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), cropping_mode="slice"
            ),
            v2.RandomResizedCrop(size // 2),
        ),
    }
    return found


def batched(transform: Any, images: Tensor) -> Callable[[], object]:
    """Return a function that draws and applies one of ours."""
    generator = torch.Generator().manual_seed(0)
    count, size = len(images), (images.shape[-2], images.shape[-1])
    return lambda: transform(images, **transform.draw(count, generator, size))


def one_by_one(transform: Any, images: Tensor) -> Callable[[], object]:
    """Return a function that applies one of torchvision's to each image."""
    return lambda: torch.stack([transform(image) for image in images])


def augmenting(size: int, rounds: int) -> Iterator[Ratio]:
    """Compare each transform, and a chain of them with the normalisation, at one size."""
    images = torch.rand(BATCH, 3, size, size, generator=torch.Generator().manual_seed(0))
    parts = transforms(size)
    for name, (ours, theirs, torchvisions) in parts.items():
        own = batched(ours, images)
        yield compare(f"{name}, {size} px, ours / kornia", own, lambda t=theirs: t(images), rounds)  # type: ignore[misc]
        yield compare(
            f"{name}, {size} px, ours / torchvision one by one", own, one_by_one(torchvisions, images), rounds
        )
    ours, theirs, torchvisions = zip(*(parts[name] for name in ("shift", "flip", "colour", "erase")), strict=True)
    view, generator = View(*ours, mean=MEAN, std=STD), torch.Generator().manual_seed(0)
    chain = kornia.AugmentationSequential(*theirs, kornia.Normalize(MEAN, STD))
    single = v2.Compose([*torchvisions, v2.Normalize(MEAN, STD)])
    name = f"shift, flip, colour, erase, {size} px"
    yield compare(f"{name}, ours / kornia", lambda: view(images, generator), lambda: chain(images), rounds)
    yield compare(
        f"{name}, ours / torchvision one by one",
        lambda: view(images, generator),
        one_by_one(single, images),
        rounds,
    )


def feeding(rounds: int) -> Iterator[Ratio]:
    """Compare batches from memory, and from files, with a DataLoader that augments picture by picture."""
    view = View(Shift(4), Flip(), Colour(0.4, 0.4, 0.4), mean=MEAN, std=STD)
    theirs = v2.Compose(
        [
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomCrop(32, padding=4, padding_mode="reflect"),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.4, 0.4, 0.4),
            v2.Normalize(MEAN, STD),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        pixels = np.random.default_rng(0).integers(0, 256, (FILES, 32, 32, 3), dtype=np.uint8)
        for i, picture in enumerate(pixels):
            place = Path(folder) / f"{i % 8}"
            place.mkdir(exist_ok=True)
            Image.fromarray(picture).save(place / f"{i:04d}.png")
        loader = DataLoader(
            ImageFolder(folder, theirs),
            BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            drop_last=True,
        )
        memory = InMemory(data.load(f"folder:{folder}"), BATCH, view, 0, "cpu")
        stream = Stream(reader(folder), BATCH, view, 0, 2, "cpu")
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        for name, feed in (("in memory", memory), ("from files", stream)):
            steps = itertools.count()

            def ours(feed: Any = feed, steps: Iterator[int] = steps) -> None:
                for step in itertools.islice(steps, STEPS):
                    feed(step)

            yield compare(
                f"{STEPS} batches of 32 px {name} / DataLoader",
                ours,
                lambda: [next(batches) for _ in range(STEPS)],
                rounds,
            )


def measure(rounds: int = 15) -> Iterator[Ratio]:
    """Compare everything; the large size takes a third of the rounds."""
    yield from augmenting(32, rounds)
    yield from augmenting(224, max(3, rounds // 3))
    yield from feeding(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    for ratio in measure(parser.parse_args().rounds):
        print(ratio, flush=True)


if __name__ == "__main__":
    main()
