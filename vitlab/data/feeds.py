"""From a training step to its batch: the same images and the same views, however often and wherever it is asked.

    feed = InMemory(data.load("cifar100"), batch_size=128, view=View(Shift(4), Flip()), seed=0)
    feed = Stream(reader("/data/imagenet", "train", size=224), batch_size=1024, view=View(Crop(), Flip()), seed=0)
    images, labels = feed(step)

A feed has no state: a batch follows from the seed and the step alone. So a training that is resumed at step s asks
for batch s, and each of `world` processes asks for its own share of the batch that one process would have seen.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import Dataset

from vitlab import lab

from . import loading
from .imageset import ImageSet, whole
from .readers import reader

__all__ = ["InMemory", "Stream", "reader"]

ORDER, VIEW = 1, 2  # what a seed is drawn for
WORKERS = 3


class Look(Protocol):
    """What a feed calls to see its images: a `views.View` or a `views.MultiCrop`."""

    def __call__(
        self, images: Tensor, generator: Generator, rows: slice | None = None, count: int | None = None
    ) -> Any:
        """Return the views of the rows `rows` of a batch of `count` images."""
        ...


class InMemory:
    """Batches of images that lie in memory whole, as bytes, on the device.

    Place i of step s is image k % N of epoch k // N, with k = s * batch_size + i and N the number of images. Each
    epoch has an order of its own and shows every image once; batches run across the borders of epochs, so N may be
    smaller than a batch.

    Args:
        images: an image set, or uint8 `(N, channels, height, width)` with integer labels `(N,)`.
        batch_size: images a step, over all processes.
        view: a `views.View` or `views.MultiCrop`.
        seed: decides the orders and the views.
        device: where images, labels and views are; None is `lab.device()`.

    Raises:
        ValueError: images or labels of another type or shape.
    """

    def __init__(
        self,
        images: ImageSet | tuple[Tensor, Tensor],
        batch_size: int,
        view: Look,
        seed: int,
        device: torch.device | str | None = None,
    ) -> None:
        self.batch_size = whole(batch_size, "batch_size")
        self.view = view
        self.seed = whole(seed, "seed", 0)
        self.device = lab.device() if device is None else torch.device(device)
        if isinstance(images, ImageSet):
            self.name = f"{images.name} {images.split}"
            # (N, H, W, 3) -> (N, 3, H, W), copied: an image set is closed to writing, which torch does not know.
            pixels = torch.from_numpy(np.array(images.images.transpose(0, 3, 1, 2), order="C"))
            labels = torch.tensor(images.labels)
        elif isinstance(images, tuple) and len(images) == 2 and all(isinstance(t, Tensor) for t in images):
            self.name = "own images"
            pixels, labels = images
        else:
            raise ValueError(f"A feed takes an ImageSet, or two tensors (images, labels), not {type(images)}.")
        if pixels.ndim != 4 or pixels.dtype != torch.uint8 or 0 in pixels.shape:
            raise ValueError(
                "A feed takes uint8 images (N, channels, height, width), at least one, "
                f"not {pixels.dtype} {tuple(pixels.shape)}."
            )
        whole_numbers = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
        if labels.shape != pixels.shape[:1] or not whole_numbers or labels.min() < 0:
            raise ValueError(
                f"A feed of {len(pixels)} images takes as many integer labels of 0 or more, "
                f"not {labels.dtype} {tuple(labels.shape)}."
            )
        self.images = pixels.to(self.device).contiguous()
        self.labels = labels.to(self.device, torch.int64)
        self.images_per_epoch = len(pixels)
        self._orders: dict[int, Tensor] = {}

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> tuple[Any, Tensor]:
        """Return the views and the int64 labels `(share,)` of step `step`, on the device.

        Of `world` processes, process `rank` gets the rank-th of `world` equal consecutive shares of the batch.

        Raises:
            ValueError: a step below 0, a rank outside the world, or a batch that cannot be shared equally.
        """
        rows = share(self.batch_size, rank, world)
        places = indices(step, rows, self.batch_size, self.images_per_epoch, self.seed, self._orders)
        chosen = places.to(self.device, non_blocking=True)
        views = self.view(
            self.images.index_select(0, chosen), generator(self.seed, VIEW, step), rows, self.batch_size
        )
        return views, self.labels.index_select(0, chosen)

    def describe(self) -> str:
        """Say in one line what is fed."""
        channels, height, width = self.images.shape[1:]
        size = f"{channels}x{height}x{width}"
        return (
            f"{self.name}: {self.images_per_epoch:,} images of {size} in memory on {self.device}, "
            f"{self.batch_size} a step, seed {self.seed}"
        )


class Stream:
    """Batches read from files while the training goes on, for what does not fit in memory.

    Of a data set that can be read in any order (from `reader`, every folder), a step has the images and the labels
    that `InMemory` would give it with the same seed, and each process reads its own share alone. Asked for the
    next step, the workers have it ready; asked for another, they begin anew there.

    A set that can only be read from its beginning (an `IterableDataset`: webdataset, Hugging Face's streams) comes
    in its own order, epoch after epoch, the same for a seed and a number of workers. It must divide itself among
    the workers, as timm's do. Going on at step s reads past all before it, and every process reads the whole.

    Args:
        dataset: of uint8 tensors `(channels, height, width)`, all of one size, each with a whole number as its
            label; with a length.
        batch_size: images a step, over all processes.
        view: a `views.View` or `views.MultiCrop`.
        seed: decides the orders and the views.
        workers: processes that read; with 0 the training reads for itself, but no `IterableDataset`.
        device: where views and labels are; None is `lab.device()`.
        prefetch: batches that each worker has ready.

    Raises:
        ValueError: a data set without a length, or of no samples; an `IterableDataset` without workers.
    """

    def __init__(
        self,
        dataset: Dataset[tuple[Tensor, int]],
        batch_size: int,
        view: Look,
        seed: int,
        workers: int = 2,
        device: torch.device | str | None = None,
        prefetch: int = 2,
    ) -> None:
        self.dataset = dataset
        self.batch_size = whole(batch_size, "batch_size")
        self.view = view
        self.seed = whole(seed, "seed", 0)
        self.workers = whole(workers, "workers", 0)
        self.device = lab.device() if device is None else torch.device(device)
        self.prefetch = whole(prefetch, "prefetch")
        self.images_per_epoch = loading.length(dataset, self.workers)
        self._batches: loading.Batches | None = None
        self._expected = (-1, 0, 1)  # the step, rank and world that they go on with

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> tuple[Any, Tensor]:
        """Return the views and the int64 labels `(share,)` of step `step`, on the device.

        Of `world` processes, process `rank` gets the rank-th of `world` equal consecutive shares of the batch.

        Raises:
            ValueError: as `InMemory`; a picture that cannot be read, or is not like the others.
            RuntimeError: a worker that died.
        """
        rows = share(self.batch_size, rank, world)
        whole(step, "step", 0)
        if self._batches is None or self._expected != (step, rank, world):
            if self._batches is not None:
                self._batches.close()
            images = self.images_per_epoch
            self._batches = loading.Batches(
                self.dataset,
                partial(indices, rows=rows, batch_size=self.batch_size, images=images, seed=self.seed, orders={}),
                self.batch_size,
                step,
                self.workers,
                self.prefetch,
                generator(self.seed, WORKERS, 0),
                pin=self.device.type == "cuda",
            )
        batches, self._batches = self._batches, None  # whatever interrupts the reading, the next call begins anew
        pixels, labels = batches.read(rows)
        self._batches, self._expected = batches, (step + 1, rank, world)
        chosen = pixels.to(self.device, non_blocking=True)
        views = self.view(chosen, generator(self.seed, VIEW, step), rows, self.batch_size)
        return views, labels.to(self.device, non_blocking=True)

    def describe(self) -> str:
        """Say in one line what is fed."""
        return (
            f"{self.images_per_epoch:,} images an epoch, read by {self.workers} workers for {self.device}, "
            f"{self.batch_size} a step, seed {self.seed}"
        )


def share(batch_size: int, rank: int, world: int) -> slice:
    """Return the rows of a batch that belong to process `rank` of `world`."""
    whole(world, "world")
    if whole(rank, "rank", 0) >= world:
        raise ValueError(f"Of {world} processes the rank is 0 to {world - 1}, not {rank}.")
    if batch_size % world:
        raise ValueError(
            f"A batch of {batch_size} images cannot be shared equally by {world} processes: "
            "choose a multiple of their number."
        )
    size = batch_size // world
    return slice(rank * size, (rank + 1) * size)


def generator(seed: int, what: int, step: int) -> Generator:
    """Return a CPU generator that depends on all three and is independent of any other three."""
    state = np.random.SeedSequence([seed, what, step]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))


def indices(step: int, rows: slice, batch_size: int, images: int, seed: int, orders: dict[int, Tensor]) -> Tensor:
    """Return which of `images` images stand in the rows `rows` of step `step`: int64, on the CPU.

    `orders` keeps the orders of the last two epochs that were asked for.
    """
    first = whole(step, "step", 0) * batch_size + rows.start
    last = first + rows.stop - rows.start
    parts = []
    for epoch in range(first // images, (last - 1) // images + 1):
        if epoch not in orders:
            while len(orders) > 1:
                orders.pop(next(iter(orders)))
            orders[epoch] = torch.randperm(images, generator=generator(seed, ORDER, epoch))
        start = epoch * images
        parts.append(orders[epoch][max(first - start, 0) : last - start])
    return torch.cat(parts)
