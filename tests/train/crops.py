"""A self-distillation small enough to be run whole, in parts, killed, and in two processes; see its tests.

    python crops.py FOLDER

Runs those killed and those in two processes, each a fork of this one, so that torch is imported once.
"""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from killed import after, child, same
from torch import Tensor
from toys import weights

from vitlab import train
from vitlab.data.feeds import InMemory
from vitlab.data.views import Crop, MultiCrop, Shift, View
from vitlab.models.dino import DINO, DINOConfig, HeadConfig
from vitlab.models.vit import ViTConfig
from vitlab.train import checkpoints

K = 16
STEPS = 14
VIEWS = MultiCrop([View(Shift(1)), View(Shift(1)), View(Crop((0.5, 1.0), size=4)), View(Crop((0.5, 1.0), size=4))])


def quarters(count: int = 48, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of 8 px, each of four squares of any colour: no two alike. Their labels say nothing."""
    rng = np.random.default_rng(seed)
    squares = rng.integers(0, 256, (count, 3, 2, 2)).repeat(4, 2).repeat(4, 3)
    return torch.tensor(squares, dtype=torch.uint8), torch.zeros(count, dtype=torch.long)


def feed(batch_size: int = 16, views: Any = VIEWS) -> InMemory:
    """Crops of those images."""
    return InMemory(quarters(), batch_size, views, 0, "cpu")


def network(outputs: int = K, **sizes: Any) -> DINO:
    """A network of 16 units, one block and a small head, the same at every call."""
    torch.manual_seed(1)
    small: dict[str, Any] = {"image_size": 8, "patch_size": 4, "dim": 16, "depth": 1, "heads": 2, "classes": 0}
    return DINO(DINOConfig(ViTConfig(**(small | sizes)), HeadConfig(outputs, 8, 16, 2)))


def training(checkpoint: Path | None = None, accumulate: int = 1, **sizes: Any) -> list[Any]:
    """Train with all that has a schedule; return losses, the student's weights, teacher, centre and step."""
    model = network(**sizes)
    objective = train.dino(
        model,
        STEPS,
        teacher_temperature=0.07,
        warm_temperature=0.05,
        warm_steps=9,
        momentum=0.8,
        centre_momentum=0.7,
        frozen_steps=4,
    )
    recipe = train.Recipe(
        STEPS,
        16,
        lr=1e-3,
        warmup=3,
        weight_decay=0.04,
        final_weight_decay=0.4,
        clip=3.0,
        accumulate=accumulate,
        seed=3,
    )
    done = train.fit(model, feed(), objective, recipe, checkpoint=checkpoint)
    return [torch.tensor(done.losses), weights(model), weights(objective)]


def kill(folder: Path) -> None:
    """Train in peace, then killed at five steps: in a backward pass, between the updates of centre and teacher."""
    torch.set_num_threads(1)
    checkpoints.SECONDS, checkpoints.TIMES = 0.0, 0  # a save a step
    sizes = {"dropout": 0.1, "drop_path": 0.2, "depth": 2}
    lerp, backward = torch.Tensor.lerp_, torch.Tensor.backward
    teachers = len(list(network(**sizes).parameters()))

    def run(file: Path | None, result: str) -> None:
        torch.save(training(file, accumulate=2, **sizes), folder / result)

    def moments(number: int) -> None:
        if number % 2:
            torch.Tensor.lerp_ = after(2 * teachers + 3, lerp)
        else:
            torch.Tensor.backward = after(5, backward)  # two a step: it dies in the second half of the third

    assert child(lambda: run(None, "whole.pt"))
    file = folder / "run" / "c.safetensors"
    for number in range(5):

        def work(number: int = number) -> None:
            moments(number)
            run(file, "never.pt")

        assert not child(work) and checkpoints.load(file)[1]["step"] == 2 * (number + 1)
    assert child(lambda: run(file, "killed.pt"))
    assert child(lambda: run(file, "again.pt"))  # from the file of a training that is done
    whole, killed, again = (torch.load(folder / f"{name}.pt") for name in ("whole", "killed", "again"))
    assert same(killed, whole) and same(again, whole)
    assert not (folder / "never.pt").exists()
    print("killed 5 times")


def two(folder: Path) -> None:
    """Train in two processes, whole and in parts; keep what each gave either."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]

    def one(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        torch.save([training(), training(accumulate=2)], folder / f"{rank}.pt")
        torch.distributed.destroy_process_group()

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda rank: child(lambda: one(rank)), range(2)))
    print("trained in two")


if __name__ == "__main__":
    kill(Path(sys.argv[1]))
    two(Path(sys.argv[1]))
