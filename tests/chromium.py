"""The browser that tests look through: Debian's Chromium, headless and quiet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def absent(what: str) -> None:
    """Fail in the CI, and elsewhere leave the test out, because something it needs is not there."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)


@contextmanager
def launched() -> Iterator[Any]:
    """A running Chromium; on a reader's machine without one the tests that need it are left out."""
    found = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if not found:
        absent("No Chromium: install it (Debian: apt install chromium), or name its file in CHROMIUM.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()
