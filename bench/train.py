"""What the training loop costs: steps of `fit` against bare forward, backward and step, of the same network.

    OMP_NUM_THREADS=1 python -m bench.train --rounds 15

Bare is the least a training can do: one fixed batch on the device, loss, gradients, AdamW. The loop feeds from
memory, augments (Shift and Flip), sets rates, clips, seeds every step, keeps losses and watches them. It is timed
from the beginning of its first step to the end of its last: what is set up once is left out. Loop, bare and feed
alone take turns. On a CPU it is processor time that is compared, which a busy neighbour does not stretch as it
does the clock; images a second, and their share of the peak, are by the clock.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from torch import nn

from bench.interleave import Ratio
from vitlab import lab, train
from vitlab.data.feeds import InMemory
from vitlab.data.views import Flip, Shift, View
from vitlab.models.convnet import ConvNet, ConvNetConfig
from vitlab.models.vit import ViT, ViTConfig
from vitlab.train.recipe import adamw

BATCH, CLASSES, IMAGES = 64, 10, 1000
STEPS = 5  # a round
LOOP, FEED = 0.95, 0.10  # to reach: the loop at least so fast, feed and views at most that share of a step

Times = tuple[float, float]


@dataclass(frozen=True)
class Cost:
    """The loop against bare steps, the share of a step that feed and views take, and how near the peak it is."""

    ratio: Ratio
    feed: float
    images_per_second: float
    share_of_peak: float

    def __str__(self) -> str:
        return (
            f"{self.ratio}\n        to reach: at least {LOOP:.2f}x; feed and views {self.feed:.1%} of a step "
            f"(to reach: at most {FEED:.0%}); {self.images_per_second:,.0f} images/s, "
            f"{self.share_of_peak:.0%} of the peak"
        )


def bare(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, recipe: train.Recipe
) -> Callable[[], Times]:
    """Return a function that trains on one batch for a round, and says what time it took."""
    optimizer = adamw(model.train(), recipe)

    def run() -> Times:
        begun = now(images.device)
        for _ in range(STEPS):
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        return since(begun, images.device)

    return run


def loop(model: nn.Module, feed: InMemory, recipe: train.Recipe) -> Callable[[], Times]:
    """Return a function that lets `fit` train for a round, and says what time its steps took."""

    def run() -> Times:
        marks: list[Times] = []  # before the first step, and after the last
        look = train.every(STEPS, lambda _: marks.append(now(feed.device)))
        train.fit(model, feed, train.supervised(CLASSES), recipe, callbacks=[look])
        return marks[1][0] - marks[0][0], marks[1][1] - marks[0][1]

    return run


def fed(feed: InMemory) -> Callable[[], Times]:
    """Return a function that feeds and augments a round of batches, and says what time it took."""

    def run() -> Times:
        begun = now(feed.device)
        for step in range(STEPS):
            feed(step)
        return since(begun, feed.device)

    return run


def now(device: torch.device) -> Times:
    """The processor's time and the clock's, when the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.process_time() if device.type == "cpu" else time.perf_counter(), time.perf_counter()


def since(begun: Times, device: torch.device) -> Times:
    """What has passed, by both."""
    ended = now(device)
    return ended[0] - begun[0], ended[1] - begun[1]


def cost(name: str, model: nn.Module, rounds: int, peak: float) -> Cost:
    """Measure one network: loop, bare and feed in turn, the order changing."""
    random = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=random)
    classes = torch.randint(0, CLASSES, (IMAGES,), generator=random)
    feed = InMemory((pictures, classes), BATCH, View(Shift(4), Flip()), seed=0)
    recipe = train.Recipe(STEPS, BATCH, precision="fp32")
    images, labels = feed(0)
    model = model.to(feed.device)
    parts = [
        loop(copy.deepcopy(model), feed, recipe),
        bare(copy.deepcopy(model), images, labels, recipe),
        fed(feed),
    ]
    for part in parts:
        part()  # warms up
    times, clock = [], []
    for round_ in range(rounds):
        spent = [0.0] * len(parts)
        for i in sorted(range(len(parts)), reverse=round_ % 2 == 0):
            spent[i], by_clock = parts[i]()
            if i == 0:
                clock.append(by_clock)
        times.append(spent)
    ratios = [without / whole for whole, without, _ in times]
    low, _, high = statistics.quantiles(ratios, n=4)
    ours, theirs, _ = (statistics.median(column) for column in zip(*times, strict=True))
    speed = STEPS * BATCH / statistics.median(clock)
    return Cost(
        Ratio(f"{name}, {STEPS} steps, loop / bare", ours, theirs, statistics.median(ratios), low, high),
        statistics.median(feeding / whole for whole, _, feeding in times),
        speed,
        train.share_of_peak(speed, train.flops(model, images), peak),
    )


def measure(rounds: int = 15) -> Iterator[Cost]:
    """Measure the ViT and the convolutional network that a laptop trains."""
    torch.manual_seed(0)
    peak = train.peak(lab.device(), "fp32")
    vit = ViT(ViTConfig(image_size=32, patch_size=4, classes=CLASSES, dim=64, depth=6, heads=4))
    yield cost("ViT, 64 wide", vit, rounds, peak)
    yield cost(
        "ConvNet, 16 to 128 wide", ConvNet(ConvNetConfig(classes=CLASSES, widths=(16, 32, 64, 128))), rounds, peak
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    for found in measure(parser.parse_args().rounds):
        print(found, flush=True)


if __name__ == "__main__":
    main()
