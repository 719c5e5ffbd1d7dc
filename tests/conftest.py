"""What every test shares: one thread a process, so that two workers keep two cores busy and no more."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("VITLAB_SCALE", "smoke")
