"""Feeds: a batch follows from the seed and the step alone, whoever asks and in whatever order."""

from __future__ import annotations

import torch

from vitlab.data.feeds import InMemory
from vitlab.data.views import Colour, Flip, Shift, View


def feed(images=20, batch_size=8, seed=0):
    pixels = torch.randint(
        0, 256, (images, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return InMemory((pixels, torch.arange(images)), batch_size, View(Shift(2), Flip(), Colour(0.4)), seed, "cpu")


def test_an_epoch_shows_every_image_once():
    seen = torch.cat([feed()(step)[1] for step in range(10)])
    assert all(sorted(epoch.tolist()) == list(range(20)) for epoch in seen.split(20))
    assert not torch.equal(seen[:20], seen[20:40])


def test_shares_are_parts_of_the_whole_batch():
    whole, labels = feed()(3)
    shares = [feed()(3, rank, 4) for rank in range(4)]
    assert torch.equal(torch.cat([views for views, _ in shares]), whole)
    assert torch.equal(torch.cat([some for _, some in shares]), labels)
