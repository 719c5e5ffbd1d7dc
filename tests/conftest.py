"""What every test shares: one thread a process, so that two workers keep two cores busy, and one browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from chromium import launched

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("VITLAB_SCALE", "smoke")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, started when the first test asks for it."""
    with launched() as running:
        yield running
