"""The tools and the book's extension are no package: tests find them here."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "book" / "_ext"), str(ROOT / "tests" / "site")]
