"""Time two things in turn, so that whatever else the machine does meets both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How many times faster `ours` is than `theirs`: the median over rounds, and the middle half of them."""

    name: str
    ours: float  # seconds, median
    theirs: float
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.name:<44} {self.median:5.2f}x  (middle half {self.low:.2f} to {self.high:.2f}; "
            f"{self.ours * 1e3:.0f} ms against {self.theirs * 1e3:.0f} ms)"
        )


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 15) -> Ratio:
    """Run both in turn, the order alternating, after one warm-up each; return the ratio theirs / ours."""
    if rounds < 2:
        raise ValueError(f"A median with its middle half needs two rounds or more, got {rounds}; ask for more.")
    pair = (ours, theirs)
    for function in pair:
        function()
    times: list[tuple[float, float]] = []
    for round_ in range(rounds):
        spent = [0.0, 0.0]
        for i in (0, 1) if round_ % 2 else (1, 0):
            begun = time.perf_counter()
            pair[i]()
            spent[i] = time.perf_counter() - begun
        times.append((spent[0], spent[1]))
    ratios = sorted(b / a for a, b in times)
    low, _, high = statistics.quantiles(ratios, n=4)
    return Ratio(
        name,
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(ratios),
        low,
        high,
    )
