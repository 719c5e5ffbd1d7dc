"""Trainings that are killed: a child a training, forked from one process, so that torch is imported once.

    python killed.py FOLDER

Trains once in peace; then again, killed at ten moments, in a save and between them. Fails unless both leave the
same losses, notes, weights and averages, to the bit.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm.data  # noqa: F401  here, so that no child has to
import torch
from toys import CLASSES, feed, vit, weights

from vitlab import train
from vitlab.models.convstem import ConvStemViT
from vitlab.train import checkpoints, loop

STEPS = 40


def training(checkpoint: Path | None, result: Path) -> None:
    """Train with everything that has a state or draws at random, and keep what comes of it."""
    model = vit(ConvStemViT, dropout=0.1, attention_dropout=0.1, drop_path=0.2)

    def look(now: loop.Progress) -> None:
        now.note(norm=now.model.head.weight.norm().clone(), place=[now.step, 1])

    done = train.fit(
        model,
        feed(),
        train.supervised(CLASSES, label_smoothing=0.1, mixup=0.8, cutmix=1.0),
        train.Recipe(STEPS, 8, lr=3e-3, warmup=5, final_weight_decay=0.2, accumulate=2, ema=0.9, seed=3),
        checkpoint=checkpoint,
        callbacks=[train.every(7, look)],
    )
    assert done.ema is not None
    notes = {name: [torch.tensor(part) for part in found] for name, found in done.log.items()}
    torch.save([torch.tensor(done.losses), notes, weights(model), weights(done.ema)], result)


def die(*_: Any, **__: Any) -> None:
    """As a power cut does: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def after(times: int, function: Callable[..., Any], dead: Callable[..., Any] = die) -> Callable[..., Any]:
    """The function, for so many calls; then `dead` in its place."""
    left = [times]

    def call(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        return (function if left[0] >= 0 else dead)(*args, **kwargs)

    return call


def half_a_file(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write the first half of a checkpoint, and die."""
    real_save(tensors, path, metadata)
    os.truncate(path, path.stat().st_size // 2)
    die()


real_save = checkpoints.save_file
replace, backward = os.replace, torch.Tensor.backward

# What is done to a child before it trains: where in the loop it will be killed. A number is seconds, by the clock.
MOMENTS: list[Callable[[], None] | None] = [
    lambda: setattr(checkpoints, "save_file", after(0, real_save)),  # before anything was ever saved
    lambda: setattr(checkpoints, "save_file", after(3, real_save, half_a_file)),
    lambda: setattr(os, "replace", after(2, replace)),  # written whole, and not yet in its place
    lambda: setattr(os, "replace", after(1, replace, lambda a, b: (replace(a, b), die()))),  # just in its place
    lambda: setattr(torch.Tensor, "backward", after(9, backward)),  # in the middle of a step
    lambda: setattr(loop, "set_rates", after(2, loop.set_rates)),
    lambda: setattr(os, "fsync", after(4, os.fsync)),
    None,
    None,
    None,
]


def child(work: Callable[[], None], kill_after: float | None = None) -> bool:
    """Run something in a fork; whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, all the way down."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(same, a, b))


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    checkpoints.SECONDS, checkpoints.TIMES = 0.0, 0  # a save a step
    begun = time.monotonic()
    assert child(lambda: training(None, folder / "whole.pt"))
    whole = time.monotonic() - begun
    rng = random.Random(os.environ.get("KILL_SEED", "0"))
    file = folder / "run" / "c.safetensors"
    killed = saved = 0
    for moment in MOMENTS:

        def work(moment: Callable[[], None] | None = moment) -> None:
            if moment is not None:
                moment()
            training(file, folder / "never.pt")

        for _ in range(100):  # a clock may strike too late, when all is done, or too early to have begun
            if not child(work, None if moment else rng.uniform(0.1, 1.0) * whole):
                break
            file.unlink()
        killed += 1
        saved += file.exists()
    assert killed == 10 and saved >= 8, (killed, saved)
    assert child(lambda: training(file, folder / "killed.pt"))
    ours, theirs = (torch.load(folder / name) for name in ("killed.pt", "whole.pt"))
    assert same(ours, theirs)
    assert [p.name for p in file.parent.iterdir()] == [file.name]  # no part is left
    assert child(lambda: training(file, folder / "again.pt"))  # a training that is done comes back from its file
    assert same(torch.load(folder / "again.pt"), theirs)
    print(f"killed {killed} times")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
