"""What each of two processes does for test_distributed.py, and what one process does to compare.

python -m torch.distributed.run --nproc-per-node 2 pair.py FOLDER [fall]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from toys import CLASSES, feed, vit, weights

from vitlab import lab, train
from vitlab.train import checkpoints
from vitlab.train.loop import Progress

STEPS = 24
STOP = 13  # where the first process learns that time is up; they agree on it every ten steps


def training(**more: Any) -> list[Any]:
    """Train a network; return its losses, its weights, and their averages."""
    accumulate = more.pop("accumulate", 1)
    model = vit()
    result = train.fit(
        model,
        feed(),
        train.supervised(CLASSES, label_smoothing=0.1),
        train.Recipe(STEPS, 8, lr=1e-3, warmup=3, ema=0.8, accumulate=accumulate, seed=2),
        **more,
    )
    assert result.ema is not None
    return [torch.tensor(result.losses), weights(model), weights(result.ema)]


def main(folder: Path, rank: int) -> None:
    """Train whole, in parts, and with a stop after which it goes on; keep what each gave this process."""
    write = checkpoints.write

    def noted(path: Path, *rest: Any) -> None:
        with (folder / f"wrote-{path.stem}-{rank}").open("a") as file:
            file.write("x")
        write(path, *rest)

    def stop(now: Progress) -> None:
        if now.step == STOP and rank == 0:
            os.environ["VITLAB_DEADLINE"] = "0"

    checkpoints.write = noted
    kept = {"whole": training(), "in parts": training(accumulate=2)}
    checkpoints.SECONDS, checkpoints.TIMES = 0.0, 0
    try:
        training(checkpoint=folder / "stopped.safetensors", callbacks=[stop])
    except lab.OutOfTime as error:
        kept["said"] = [str(error)]
    os.environ.pop("VITLAB_DEADLINE", None)
    torch.distributed.barrier()
    kept["step"] = [checkpoints.load(folder / "stopped.safetensors")[1]["step"]]
    torch.distributed.barrier()
    kept["resumed"] = training(checkpoint=folder / "stopped.safetensors")
    torch.save(kept, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def fall(folder: Path, rank: int) -> None:
    """Train until the second process is killed."""

    def die(now: Progress) -> None:
        if now.step == 5 and rank == 1:
            (folder / "fell").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

    training(callbacks=[die])
    (folder / f"ended-{rank}").touch()


if __name__ == "__main__":
    (fall if sys.argv[2:] == ["fall"] else main)(Path(sys.argv[1]), int(os.environ["RANK"]))
