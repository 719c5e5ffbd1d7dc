"""Two processes train what one would have trained, the first alone writes, and a lost one ends the run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pair
import pytest
import torch
from toys import assert_near, assert_same, one_sentence


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pair.py in two processes, as torchrun does."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    return subprocess.run(
        [sys.executable, *command, str(Path(pair.__file__)), str(folder), *arguments],
        env={k: v for k, v in os.environ.items() if k != "VITLAB_DEADLINE"} | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes got, and where they left it."""
    folder = tmp_path_factory.mktemp("two")
    run = launch(folder)
    assert run.returncode == 0, run.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)], folder


@pytest.fixture(scope="module")
def one():
    """What one process gets."""
    return pair.training()


def assert_close(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=1e-5)
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        assert_near(a, b, atol=1e-5)


def assert_equal(ours, theirs):
    assert torch.equal(ours[0], theirs[0])
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("kind", ["whole", "in parts"])
def test_losses_weights_and_averages_are_those_of_one_process(kind, one, two):
    (first, second), _ = two
    assert_equal(first[kind], second[kind])
    assert_close(first[kind], one)


def test_they_stop_together_and_go_on_to_the_bit(two):
    (first, second), _ = two
    assert first["said"] == second["said"] and "after 20 of 24 steps" in one_sentence(first["said"][0])
    assert first["step"] == second["step"] == [20]
    assert_equal(first["resumed"], second["resumed"])
    assert_equal(first["resumed"], first["whole"])


def test_the_first_alone_writes(two):
    _, folder = two
    assert sorted(p.name for p in folder.glob("wrote-*")) == ["wrote-stopped-0"]
    assert len((folder / "wrote-stopped-0").read_text()) == 4  # steps 10 and 20, the stop at 20, the end
    assert [p.name for p in folder.glob("*.safetensors*")] == ["stopped.safetensors"]


def test_one_process_reads_what_two_have_left(one, two):
    assert_close(pair.training(checkpoint=two[1] / "stopped.safetensors"), one)


def test_a_killed_process_ends_the_run(tmp_path):
    run = launch(tmp_path, "fall")
    assert time.time() - float((tmp_path / "fell").read_text()) < 30
    assert run.returncode != 0 and not list(tmp_path.glob("ended-*"))
