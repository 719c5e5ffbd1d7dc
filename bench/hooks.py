"""What watching costs: ViT-S/16 bare, and with 15 taps each feeding a streaming covariance.

    OMP_NUM_THREADS=1 python bench/hooks.py --rounds 15

Bare and watched passes alternate in one process, so that whatever else the machine does falls on both alike, and
the median of the rounds' ratios is reported: of processor time, which a busy neighbour does not stretch as it does
the clock, and of wall time. Memory is the process's own: how much it grows from the third batch, when everything
has been allocated, to the last.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

BATCH = 8
REACH = 1.10  # the cost the course promises


def measure(rounds: int = 11, threads: int | None = None) -> dict[str, Any]:
    """Time `rounds` pairs of passes of 8 images of 224 px and return the numbers, in seconds of processor time.

    `threads` sets torch's; other libraries follow OMP_NUM_THREADS, which must be set before Python starts.
    """
    import psutil
    import timm
    import torch

    from vitlab import hooks
    from vitlab.analysis.spectra import Covariance

    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = timm.create_model("vit_small_patch16_224").eval()
    images = torch.randn(BATCH, 3, 224, 224)
    wanted = ["patch_embed", "pos_embed", *(f"block.{i}" for i in range(12)), "cls_norm"]
    covariances = {name: Covariance(model.embed_dim) for name in wanted}

    def bare() -> tuple[float, float]:
        start = time.process_time(), time.perf_counter()
        model(images)
        return time.process_time() - start[0], time.perf_counter() - start[1]

    def watched() -> tuple[float, float]:
        start = time.process_time(), time.perf_counter()
        with hooks.taps(model, {name: c.update for name, c in covariances.items()}):
            model(images)
        return time.process_time() - start[0], time.perf_counter() - start[1]

    process = psutil.Process()
    plain, tapped, memory = [], [], []
    with torch.inference_mode():
        for i in range(rounds + 2):
            # Whichever runs second finds warmer caches and a hotter chip: take turns.
            pair = (bare(), watched()) if i % 2 == 0 else (watched(), bare())[::-1]
            if i >= 2:  # the first two warm up
                plain.append(pair[0])
                tapped.append(pair[1])
                memory.append(process.memory_info().rss)
    ratios = [t[0] / p[0] for t, p in zip(tapped, plain, strict=True)]
    return {
        "taps": len(wanted),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "bare": statistics.median(p[0] for p in plain),
        "watched": statistics.median(t[0] for t in tapped),
        "ratio": statistics.median(ratios),
        "wall_ratio": statistics.median(t[1] / p[1] for t, p in zip(tapped, plain, strict=True)),
        "ratios": ratios,
        "rows": covariances["block.0"].count,
        "growth_mb": (memory[-1] - memory[0]) / 2**20,
        "reach": REACH,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    m = measure(arguments.rounds, arguments.threads)
    print(
        f"ViT-S/16, batch {BATCH}, {m['threads']} thread(s), {m['rounds']} alternating rounds\n"
        f"  bare forward    {m['bare'] * 1e3:7.1f} ms of processor time\n"
        f"  with {m['taps']} taps    {m['watched'] * 1e3:7.1f} ms\n"
        f"  median ratio    {m['ratio']:.3f}  (from {min(m['ratios']):.3f} to {max(m['ratios']):.3f}; "
        f"to reach: {m['reach']:.2f})\n"
        f"  of wall time    {m['wall_ratio']:.3f}\n"
        f"  memory growth   {m['growth_mb']:+.1f} MB over {m['rounds'] - 1} batches ({m['rows']} rows a block)"
    )


if __name__ == "__main__":
    main()
