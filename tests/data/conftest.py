"""A small web server that can misbehave, and no way to a reader's real cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Server:
    """Serves `files` by name, counts requests, and fails as told."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []  # the Range header of each request
        self.supports_range = True
        self.die_after: list[int] = []  # one entry a request: break the connection after so many bytes of the body
        self.status = 200
        self.pause = 0.0  # seconds between blocks of 4 KB
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: object) -> None:
                """A client that went away is part of the tests."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/{name}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        body = self.files.get(request.path.lstrip("/"))
        if self.status != 200 or body is None:
            request.send_error(self.status if self.status != 200 else 404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.supports_range else 0
        if asked and self.supports_range and start >= len(body):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(body)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if asked and self.supports_range:
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            request.send_response(200)
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        left = self.die_after.pop(0) if self.die_after else len(body)
        for at in range(start, len(body), 4096):
            block = body[at : at + min(4096, left)]
            try:
                request.wfile.write(block)
                request.wfile.flush()
            except OSError:
                return
            left -= len(block)
            if left <= 0 and at + len(block) < len(body):
                request.close_connection = True
                request.connection.close()
                return
            threading.Event().wait(self.pause)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache of its own and no local data sets."""
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VITLAB_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to open a connection fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked for")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
