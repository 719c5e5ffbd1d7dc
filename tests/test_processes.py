"""Several processes as one run: the same records, one voice, and an end when one of them is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from vitlab import cli, digest, processes, records

# Each process sums its share of what one process would sum whole. What it does beside that is asked for by files.
CHAPTER = """
import os, sys, time
from pathlib import Path

import torch
import torch.distributed as dist
from vitlab import lab

lab.start()
HERE = Path(__file__).parent


def measure(seed):
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    file = lab.checkpoint("sum")
    values = torch.rand(8)
    done, total = (int(x) for x in file.read_text().split()) if file.exists() else (0, 0)
    while done < 4:
        stop = [lab.time_is_up()]
        if world > 1:
            dist.broadcast_object_list(stop)
        if stop[0]:
            if rank == 0:
                file.write_text(f"{done} {total}")
            raise lab.OutOfTime("The time is up.")
        part = (values[rank::world] * 1000).round().sum()
        if world > 1:
            dist.all_reduce(part)
        total += int(part)
        done += 1
        (HERE / f"at{rank}").write_text(f"{os.getpid()} {done}")
        if (HERE / "stop").exists() and done == 2:
            os.environ["VITLAB_DEADLINE"] = "0"
        if (HERE / f"fail{rank}").exists():
            raise ZeroDivisionError(f"broken in process {rank}")
        while (HERE / "hold").exists():
            time.sleep(0.05)
    print("measured", seed)
    return {"total": total, "values": values}


lab.record("small", measure, seeds=2)
"""


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """A chapter whose measurement shares its work between processes; its records stand apart."""
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("VITLAB_SCALE", "laptop")
    monkeypatch.delenv("VITLAB_DEADLINE", raising=False)
    file = tmp_path / "notebooks" / "small.py"
    file.parent.mkdir()
    file.write_text(CHAPTER)
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


class Run:
    """A recording of a chapter in two processes, under torchrun or as a cluster's own launcher starts them."""

    def __init__(self, chapter: Path, *options: str, torchrun: bool = False) -> None:
        port = str(free_port())
        command = ["-m", "vitlab.lab", "record", str(chapter), *options]
        if torchrun:
            launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
            self.processes = [self.start([*launch, *command], {})]
        else:
            shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
            self.processes = [self.start(command, shared | {"RANK": k, "LOCAL_RANK": k}) for k in "01"]

    def start(self, command: list[str], more: dict[str, str]) -> subprocess.Popen:
        root = Path(__file__).resolve().parents[1]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, *command], cwd=root, env=os.environ | more, **pipes)

    def wait_for(self, *files: Path) -> None:
        """Wait until these files are written."""
        patience = time.monotonic() + 180
        while not all(file.exists() and file.stat().st_size for file in files):
            assert self.alive and time.monotonic() < patience
            time.sleep(0.05)

    @property
    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def finish(self) -> tuple[list[int], str, str]:
        """Return the exit statuses, and all that was printed."""
        out, err = zip(*(process.communicate(timeout=300) for process in self.processes), strict=True)
        return [process.returncode for process in self.processes], "".join(out), "".join(err)


def alone(chapter: Path) -> None:
    """Record a chapter in this process, as one process does."""
    kept = sys.modules["__main__"], os.environ.copy(), Path.cwd()
    digest._texts.pop(chapter, None)
    try:
        assert cli.main(["record", str(chapter)]) == 0
    finally:
        assert sys.modules["__main__"] is kept[0]
        os.environ.clear()
        os.environ.update(kept[1])
        os.chdir(kept[2])


def stored(seed: int) -> dict[str, np.ndarray]:
    return records.read(records.seed_file("small", "laptop", seed))[0]


def test_two_make_what_one_makes_and_wait_for_a_lock_together(chapter, tmp_path, monkeypatch):
    held = records.seed_file("small", "laptop", 0)
    held.parent.mkdir(parents=True)
    with FileLock(held.with_suffix(".lock")):
        run = Run(chapter, torchrun=True)
        run.wait_for(records.seed_file("small", "laptop", 1))
        time.sleep(1)
        assert run.alive and not held.exists()
    status, out, err = run.finish()
    assert status == [0], err
    assert out.count("measured 0") == out.count("measured 1") == out.count("2 processes") == 1
    assert err.count("0/2") == 1 and "Traceback" not in err
    assert "2 processes on" in records.read(held)[1]["hardware"]
    two = [stored(seed) for seed in range(2)]
    monkeypatch.setenv("VITLAB_RECORDS", str(tmp_path / "other"))
    alone(chapter)
    for seed in range(2):
        for key, value in stored(seed).items():
            assert np.array_equal(value, two[seed][key])


def test_out_of_time_all_stop_at_a_checkpoint_and_one_goes_on(chapter):
    (chapter.parent / "stop").touch()
    status, out, err = Run(chapter, "--budget", "10m").finish()
    assert status == [0, 0], err
    says = (
        "The time is up: 0 of 2 seeds are kept, seed 0 of small is kept at a checkpoint; the same command goes on"
    )
    assert out.count(says) == 1
    (chapter.parent / "stop").unlink()
    alone(chapter)
    values = stored(0)
    assert values["total"] == 4 * (values["values"] * 1000).round().sum()
    assert records.read(records.seed_file("small", "laptop", 0))[1]["hardware"].count("; ") == 1
    assert not list(records.root().rglob("*.parts"))


@pytest.mark.parametrize(("lost", "torchrun"), [(0, False), (1, False), (1, True)])
def test_a_killed_process_ends_the_run_in_a_sentence(chapter, lost, torchrun):
    (chapter.parent / "hold").touch()
    run = Run(chapter, torchrun=torchrun)
    places = [chapter.parent / f"at{rank}" for rank in range(2)]
    run.wait_for(*places)
    os.kill(int(places[lost].read_text().split()[0]), signal.SIGKILL)
    (chapter.parent / "hold").unlink()
    began = time.monotonic()
    status, _, err = run.finish()
    assert time.monotonic() - began < 120  # far less than a lost process is waited for
    assert 0 not in status
    assert err.count("The run ended: one of its 2 processes was lost") == 1
    assert "vitlab/recording.py" not in err  # no traceback of ours
    assert not list(records.root().rglob("*.npz")) and not list(records.root().rglob("*.part"))
    with FileLock(records.seed_file("small", "laptop", 0).with_suffix(".lock"), timeout=0):
        pass


@pytest.mark.parametrize("broken", [[1], [0, 1]])
def test_an_error_is_told_once_and_ends_the_run(chapter, broken):
    for rank in broken:
        (chapter.parent / f"fail{rank}").touch()
    status, _, err = Run(chapter).finish()
    assert status == [1, 1]
    assert err.count("ZeroDivisionError: broken in process") == 1
    assert f"broken in process {broken[0]}" in err
    assert err.count(f"The run ended: process {broken[0]} of 2 failed, see above") == 1


def test_a_folder_that_cannot_be_written_is_told_once(chapter, monkeypatch):
    monkeypatch.setenv("VITLAB_RECORDS", "/dev/null/records")
    status, _, err = Run(chapter).finish()
    assert status == [1, 1]
    assert err.count("OSError: The record seed-000.npz could not be written") == 1


def test_a_notebook_can_launch_processes_too(chapter):
    script = chapter.parent / "launch.py"
    script.write_text(
        CHAPTER.replace('lab.record("small", measure, seeds=2)', "")
        + "from accelerate import notebook_launcher\n"
        + "def run():\n    return lab.record('small', measure, seeds=2)\n"
        + f"notebook_launcher(run, num_processes=2, use_port='{free_port()}')\n"
        + "print(run()['total'].tolist())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("measured 0") == 1
    assert done.stdout.splitlines()[-1] == str([int(stored(seed)["total"]) for seed in range(2)])


def test_alone_no_group_is_made(monkeypatch):
    import torch.distributed as dist

    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    processes.join()
    assert processes.agree(lambda: 3) == 3
    assert processes.together(lambda: 4) == 4
    assert processes.place() == (0, 1)
    assert not dist.is_initialized()
