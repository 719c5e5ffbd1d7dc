"""What every test shares: one thread a process, so that two workers keep two cores busy, and one browser."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import launched

# A shell that starts the tests in the background ignores Ctrl-C for them, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("VITLAB_SCALE", "smoke")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, started when the first test asks for it."""
    with launched() as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def records_untouched() -> Iterator[None]:
    """No test may leave anything in the course's own records, where the next check would find it."""

    def there() -> dict[Path, int]:
        files = (Path(__file__).resolve().parents[1] / "data").rglob("*.[jn][sp]*")
        # A recording may be going on beside the tests: its checkpoints are its own affair.
        kept = (f for f in files if "smoke" not in f.parts and not any(p.endswith(".parts") for p in f.parts))
        return {file: file.stat().st_mtime_ns for file in kept}

    before = there()
    yield
    assert there() == before
