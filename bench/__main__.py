"""`make bench`: our models, views and feeds against their peers, and the cost of watching and of the loop."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    """Print the ratios; above 1 ours is the faster."""
    from bench import hooks, models, train, views

    parser = argparse.ArgumentParser(prog="python -m bench", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds of each comparison")
    rounds = parser.parse_args().rounds
    for row in models.table(rounds):
        print(row, flush=True)
    cost = hooks.measure(rounds)
    print(
        f"{'ViT-S/16 with 15 spectral taps / bare':<44} {cost['ratio']:5.2f}x  "
        f"(to reach: at most {cost['reach']:.2f}x; memory {cost['growth_mb']:+.1f} MB over {rounds} batches)"
    )
    for ratio in views.measure(rounds):
        print(ratio)
    for loop in train.measure(rounds):
        print(loop)


if __name__ == "__main__":
    main()
