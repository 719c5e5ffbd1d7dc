"""A folder of pages served to a browser, and what goes wrong when one is opened."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing of what was served."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder's files are served while the block runs."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@dataclass
class Visit:
    """An opened page and what went wrong meanwhile."""

    page: Any
    base: str
    faults: list[str] = field(default_factory=list)

    def watch(self) -> None:
        def request(it: Any) -> None:
            if not it.url.startswith((self.base, "data:", "blob:")):
                self.faults.append(f"asks another host for {it.url}")

        def response(it: Any) -> None:
            if it.status >= 400:
                self.faults.append(f"gets {it.status} for {it.url}")

        def console(it: Any) -> None:
            # A request that fails is told by the two above.
            if it.type in ("error", "warning") and not it.text.startswith("Failed to load resource"):
                self.faults.append(f"says on the console: {it.text}")

        self.page.on("request", request)
        self.page.on("response", response)
        self.page.on("console", console)
        self.page.on("pageerror", lambda error: self.faults.append(f"raises: {error}"))

    def settle(self) -> None:
        """Wait until nothing is loading, formulas are set and boxes that scroll are marked."""
        self.page.wait_for_load_state("networkidle")
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        self.page.wait_for_timeout(600)

    def axe(self) -> list[str]:
        """What axe finds, one line an element; it must fetch nothing itself."""
        found = (
            Axe().run(self.page, options={"preload": False, "resultTypes": ["violations"]}).response["violations"]
        )
        return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]


@contextmanager
def visit(browser: Any, base: str, path: str, scheme: str = "light", width: int = 1280) -> Iterator[Visit]:
    """Open a page in a context of its own; `path` may be empty to open nothing yet."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    it = Visit(context.new_page(), base)
    it.watch()
    it.page.goto(base + path)
    it.settle()
    yield it
    context.close()
