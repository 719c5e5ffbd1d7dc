"""Batches that worker processes read ahead: what `feeds.Stream` asks of torch's DataLoader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

Sample = tuple[Tensor, int]


class Batches:
    """The batches of one step after another, read ahead by `workers` processes.

    What a worker cannot read comes back as a sentence, because an error that crosses processes loses its type and
    drags its traceback along.

    Args:
        chosen: which samples make up the part of a step's batch that is wanted; not asked of an `IterableDataset`.
        batch_size: of the whole batch.
        first: the step to begin with.
        generator: what the workers' own seeds are drawn from, so that torch's global generator is left alone.
    """

    def __init__(
        self,
        dataset: Dataset[Sample],
        chosen: Callable[[int], Tensor],
        batch_size: int,
        first: int,
        workers: int,
        prefetch: int,
        generator: Generator,
        pin: bool,
    ) -> None:
        self.in_order = isinstance(dataset, IterableDataset)
        options: dict[str, Any] = {}
        if self.in_order:
            # Workers deliver in turn, and the first of them begins: so it can begin at their multiples.
            skipped = first // workers * batch_size
            options = {"dataset": Endless(dataset, skipped), "batch_size": batch_size}
        else:
            steps = map(torch.Tensor.tolist, map(chosen, itertools.count(first)))
            options = {"dataset": Guarded(dataset), "batch_sampler": steps}
        loader = DataLoader(
            **options,
            num_workers=workers,
            prefetch_factor=prefetch if workers else None,
            collate_fn=collate,
            pin_memory=pin,
            generator=generator,
        )
        self.workers = workers
        self._iterator = iter(loader)
        for _ in range(first % workers if self.in_order else 0):
            self._next()

    def read(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return the next images `(share, channels, height, width)` uint8 and labels `(share,)` int64."""
        images, labels = self._next()
        return (images[rows], labels[rows]) if self.in_order else (images, labels)

    def _next(self) -> tuple[Tensor, Tensor]:
        try:
            batch = next(self._iterator)
        except BaseException as error:
            # The error's traceback would keep the workers alive, in a notebook until the next error.
            self.close()
            told = isinstance(error, RuntimeError) and "DataLoader worker" in str(error)
            # A batch that a worker had ready cannot be fetched once it is dead. (What a picture file raises comes
            # as a sentence.)
            if not told and not (self.workers and isinstance(error, OSError | EOFError)):
                raise
            what = (str(error) or type(error).__name__).splitlines()[0]
            raise RuntimeError(
                f"A process that reads pictures died ({what}): most often memory ran out; "
                "read with fewer workers, or smaller batches."
            ) from error
        if isinstance(batch, str):
            self.close()
            raise ValueError(batch)
        return batch

    def close(self) -> None:
        """End the workers."""
        if self.workers:
            self._iterator._shutdown_workers()


class Guarded(Dataset[Sample | str]):
    """A data set whose failures are sentences."""

    def __init__(self, dataset: Dataset[Sample]) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Sample | str:
        try:
            return self.dataset[index]
        except (OSError, ValueError) as error:
            return str(error)


class Endless(IterableDataset[Sample | str]):
    """A stream begun again whenever it ends, without its first `skipped` samples in each worker."""

    def __init__(self, dataset: IterableDataset[Sample], skipped: int) -> None:
        self.dataset = dataset
        self.skipped = skipped

    def __iter__(self) -> Iterator[Sample | str]:
        return itertools.islice(self._samples(), self.skipped, None)

    def _samples(self) -> Iterator[Sample | str]:
        own_reader: Any = getattr(self.dataset, "reader", None)
        if hasattr(own_reader, "epoch_count"):
            # timm's workers share one count of epochs, and they do not reach the end of an epoch together.
            own_reader.epoch_count = type(own_reader.epoch_count)()
        for epoch in itertools.count():
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(epoch)
            empty = True
            try:
                for sample in self.dataset:
                    empty = False
                    yield sample
            except (OSError, ValueError) as error:
                yield str(error)
            if empty:
                while True:
                    yield "A worker found no part of the stream to read: take no more workers than it has files."


def collate(samples: Sequence[Sample | str]) -> tuple[Tensor, Tensor] | str:
    """Return samples as images `(batch, channels, height, width)` and labels `(batch,)`, or what hinders it."""
    images: list[Tensor] = []
    labels: list[int] = []
    for sample in samples:
        if isinstance(sample, str):
            return sample
        image, label = sample
        if not isinstance(image, Tensor) or image.dtype != torch.uint8 or image.ndim != 3:
            what = f"{image.dtype} {tuple(image.shape)}" if isinstance(image, Tensor) else str(type(image))
            return f"A stream takes uint8 tensors (channels, height, width), not {what}."
        if images and image.shape != images[0].shape:
            a, b = (tuple(some.shape) for some in (images[0], image))
            return f"The pictures of a stream are all of one size, not {a} and {b}: give the reader a size."
        if isinstance(label, bool) or not hasattr(label, "__index__"):
            return f"A stream takes a whole number as a label, not {label!r}."
        images.append(image)
        labels.append(int(label))
    return torch.stack(images), torch.tensor(labels)


def length(dataset: Any, workers: int) -> int:
    """Return how many samples an epoch of `dataset` has; raises `ValueError` where it has none or does not say."""
    if isinstance(dataset, IterableDataset) and not workers:
        raise ValueError("A stream that is read from its beginning needs at least one worker: set workers=1.")
    if hasattr(dataset, "set_loader_cfg"):
        dataset.set_loader_cfg(num_workers=max(1, workers))
    try:
        found = len(dataset)
    except TypeError:
        found = 0
    if found < 1:
        raise ValueError(f"A stream's data set has a length of 1 or more, and {type(dataset).__name__} has none.")
    return found
