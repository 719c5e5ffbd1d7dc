"""Downloads: resumed, checked, all or nothing, one at a time, and every failure in one sentence."""

from __future__ import annotations

import errno
import hashlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vitlab.data import download

BODY = np.random.default_rng(0).bytes(300_000)
HASH = "md5:" + hashlib.md5(BODY).hexdigest()

FETCH = """
import sys
from pathlib import Path
from types import SimpleNamespace
from vitlab.data import download
folder = Path(sys.argv[2])
print("ready", flush=True)
with download.locked(folder.parent / "set.lock"):
    print(download.fetch("set", [sys.argv[1]], sys.argv[3], folder), flush=True)
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.01)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads" / "set"


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_once_and_is_kept(server, folder):
    server.files["a.zip"] = BODY
    path = download.fetch("set", [server.url("a.zip")], HASH, folder)
    assert path.read_bytes() == BODY and left_in(folder) == ["a.zip"]
    assert download.fetch("set", [server.url("a.zip")], HASH, folder) == path
    assert len(server.ranges) == 1


def test_a_kept_file_that_was_damaged_is_fetched_again(server, folder):
    server.files["a.zip"] = BODY
    path = download.fetch("set", [server.url("a.zip")], HASH, folder)
    path.write_bytes(BODY[:-1] + b"?")
    assert download.fetch("set", [server.url("a.zip")], HASH, folder).read_bytes() == BODY


def test_a_broken_connection_is_continued_in_the_same_call(server, folder):
    server.files["a.zip"] = BODY
    server.die_after = [100_000, 50_000]
    assert download.fetch("set", [server.url("a.zip")], HASH, folder).read_bytes() == BODY
    starts = [int(r.removeprefix("bytes=").removesuffix("-")) for r in server.ranges[1:]]
    assert server.ranges[0] is None and 0 < starts[0] <= 100_000 and starts[0] < starts[1] <= 150_000


def test_what_came_before_the_end_of_all_tries_is_continued_by_the_next_call(server, folder, monkeypatch):
    monkeypatch.setattr(download, "RETRIES", 0)
    server.files["a.zip"] = BODY
    server.die_after = [150_000]
    with pytest.raises(FileNotFoundError, match=r"the connection broke off after [0-9,]+ bytes"):
        download.fetch("set", [server.url("a.zip")], HASH, folder)
    assert left_in(folder) == ["a.zip.part"]
    have = (folder / "a.zip.part").stat().st_size
    assert BODY.startswith((folder / "a.zip.part").read_bytes()) and have > 0
    assert download.fetch("set", [server.url("a.zip")], HASH, folder).read_bytes() == BODY
    assert server.ranges == [None, f"bytes={have}-"] and left_in(folder) == ["a.zip"]


def test_a_server_without_range_sends_it_all_again(server, folder):
    server.files["a.zip"] = BODY
    server.supports_range = False
    server.die_after = [100_000]
    assert download.fetch("set", [server.url("a.zip")], HASH, folder).read_bytes() == BODY


@pytest.mark.parametrize("part", [BODY, BODY + b"more"])
def test_a_part_that_is_complete_or_too_long(server, folder, part):
    server.files["a.zip"] = BODY
    folder.mkdir(parents=True)
    (folder / "a.zip.part").write_bytes(part)
    assert download.fetch("set", [server.url("a.zip")], HASH, folder).read_bytes() == BODY


def test_a_part_of_another_file_is_found_out_and_fetched_from_the_start(server, folder):
    server.files["a.zip"] = BODY
    folder.mkdir(parents=True)
    (folder / "a.zip.part").write_bytes(b"x" * 1000)
    assert download.fetch("set", [server.url("a.zip")], HASH, folder).read_bytes() == BODY
    assert server.ranges == ["bytes=1000-", None]


def test_wrong_bytes_are_removed_and_said(server, folder):
    server.files["a.zip"] = b"<html>please sign in to the hotel's network</html>"
    with pytest.raises(RuntimeError, match=r"set could not be downloaded .*md5 sum differs.*removed.*VITLAB_DATA"):
        download.fetch("set", [server.url("a.zip")], HASH, folder)
    assert left_in(folder) == []


def test_the_second_source_is_asked_when_the_first_fails(server, folder):
    server.files["good/a.zip"] = BODY
    server.files["wrong/a.zip"] = b"wrong"
    for first in ("missing/a.zip", "wrong/a.zip"):
        path = download.fetch("set", [server.url(first), server.url("good/a.zip")], HASH, folder)
        assert path.read_bytes() == BODY
        path.unlink()


def test_offline_is_one_sentence_that_says_what_to_do(folder):
    with socket.socket() as closed:  # a port that nobody listens on
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/a.zip"
    start = time.perf_counter()
    with pytest.raises(FileNotFoundError) as caught:
        download.fetch("set", [url], HASH, folder)
    message = str(caught.value)
    assert message.startswith("set is not on this machine and could not be downloaded (")
    assert "refused" in message and "\n" not in message and len(message) < 400
    assert message.endswith("connect once, or put class folders at $VITLAB_DATA/set and set VITLAB_DATA.")
    assert time.perf_counter() - start < 5, "said at once"


def test_a_refusing_server_is_named_with_its_answer(server, folder):
    server.status = 503
    with pytest.raises(FileNotFoundError, match="the server answered 503"):
        download.fetch("set", [server.url("a.zip")], HASH, folder)


def test_a_full_disk_is_one_sentence_and_leaves_no_file(server, folder):
    """/dev/full answers every write as a full disk does."""
    server.files["a.zip"] = BODY
    folder.mkdir(parents=True)
    (folder / "a.zip.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"The disk that holds .* is full, set needs more room: free some") as caught:
        download.fetch("set", [server.url("a.zip")], HASH, folder)
    assert caught.value.errno == errno.ENOSPC and "Errno" not in str(caught.value)
    assert not (folder / "a.zip").exists()


def test_a_disk_too_small_is_known_before_anything_is_fetched(server, folder, monkeypatch):
    server.files["a.zip"] = BODY
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="set needs 0 MB more"):
        download.fetch("set", [server.url("a.zip")], HASH, folder)
    assert not (folder / "a.zip").exists()


def test_a_closed_folder_is_one_sentence(server, folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PermissionError, match=r"set cannot be written to .* set VITLAB_CACHE"):
        download.fetch("set", [server.url("a.zip")], HASH, folder)


def start(server, folder) -> subprocess.Popen:
    command = [sys.executable, "-c", FETCH, server.url("a.zip"), str(folder), HASH]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_process_leaves_a_part_that_the_next_continues(server, folder, sent):
    server.files["a.zip"] = BODY
    server.pause = 0.05
    process = start(server, folder)
    part = folder / "a.zip.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(sent)
    process.communicate(timeout=30)
    assert process.returncode != 0 and not (folder / "a.zip").exists()
    have = part.stat().st_size
    assert 0 < have < len(BODY)
    server.pause = 0
    second = start(server, folder)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert server.ranges[-1] == f"bytes={have}-" and (folder / "a.zip").read_bytes() == BODY
    assert left_in(folder) == ["a.zip"]


def test_two_processes_do_not_fetch_the_same_twice(server, folder):
    server.files["a.zip"] = BODY
    server.pause = 0.02
    both = [start(server, folder) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert len(server.ranges) == 1 and (folder / "a.zip").read_bytes() == BODY


def test_the_cache_is_where_the_environment_says(cache, monkeypatch):
    assert download.cache_root() == cache
    monkeypatch.delenv("VITLAB_CACHE")
    assert download.cache_root().name == "vitlab" and download.cache_root().is_absolute()
