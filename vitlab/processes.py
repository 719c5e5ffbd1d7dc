"""Several processes as one run: the first decides and writes, the others follow and are silent.

A launcher (torchrun, accelerate launch, accelerate's notebook_launcher) starts the processes and says in the
environment how many there are. Their group is made when it is first needed, and never where a process is alone.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, TypeVar

PLUMBING = True  # a change here cannot change a recorded number

PATIENCE = datetime.timedelta(minutes=10)  # a process that does not answer for so long is taken for lost
T = TypeVar("T")


def place() -> tuple[int, int]:
    """Return which of how many processes this is, counted from 0: as its group says, else as the launcher did."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if "RANK" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))


def world() -> int:
    """Return how many processes make this run."""
    return place()[1]


def first() -> bool:
    """Whether this process is the one that decides, writes and prints."""
    return place()[0] == 0


def join() -> None:
    """Wait for the other processes, and take this one's own device; nothing where it is alone."""
    if world() > 1:
        _group()


def agree(decide: Callable[[], T]) -> T:
    """Let the first process decide; return its decision, or raise its error, in every one."""
    if world() == 1:
        return decide()
    import torch.distributed as dist

    group = _group()
    answer: list[Any] = [None, None]
    if first():
        try:
            answer[0] = decide()
        except Exception as error:
            answer[1] = error if _pickles(error) else RuntimeError(str(error))
            dist.broadcast_object_list(answer, group=group)
            raise
    dist.broadcast_object_list(answer, group=group)
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


@cache
def _group() -> Any:
    """Make the group of all processes, and return one that talks between CPUs, so that no GPU has to wait."""
    import torch
    import torch.distributed as dist
    from accelerate import PartialState

    cuda = torch.cuda.is_available()
    if not dist.is_initialized():
        PartialState(cpu=not cuda, timeout=PATIENCE, backend="nccl" if cuda else "gloo")
    return dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo", timeout=PATIENCE)


def _pickles(error: Exception) -> bool:
    try:
        return isinstance(pickle.loads(pickle.dumps(error)), Exception)
    except Exception:
        return False


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Print nothing in here, but from the first process."""
    if first():
        yield
    else:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            yield


def together(work: Callable[[], int]) -> int:
    """Do the work of a command, and return its exit status; several processes end with it, and one alone speaks.

    Where a process fails or is lost, all end; the first to know prints why, and none but it.
    """
    if world() == 1:
        return work()

    def stopped(number: int, _: Any) -> NoReturn:
        raise _Lost

    signal.signal(signal.SIGTERM, stopped)  # a launcher sends it to the rest when one process is gone
    try:
        if not first():  # it prints nothing but an error that ends the run
            os.environ["TQDM_DISABLE"] = "1"
            warnings.simplefilter("ignore")
        with silent():
            join()
            status = work()
            agree(lambda: None)  # nobody leaves while another still works
        import torch.distributed as dist

        dist.destroy_process_group()
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _tell(error)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    # At once: a lost peer is not waited for, and where all went well Python's slow end would now and then meet a
    # thread of the group that still runs, and abort.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class _Lost(BaseException):
    """The launcher ends this process, because another is gone."""


def _tell(error: BaseException) -> None:
    """Print why the run ends, from one process: the first, if it knows what went wrong, else one that does."""
    if isinstance(error, KeyboardInterrupt):
        return  # the measurement has said what is kept
    lost = _is_loss(error)
    if not first():
        _wait(lambda: _asked(0) > 0, 3 if lost else 1)
    if _asked(1) == 1:
        _say(error, lost)
    if first():  # it may hold the store in which the others ask
        _wait(lambda: _asked(0) >= world(), 4)


def _say(error: BaseException, lost: bool) -> None:
    if not lost:
        traceback.print_exception(error)
    why = (
        f"one of its {world()} processes was lost, or did not answer for {PATIENCE.seconds // 60} minutes"
        if lost
        else f"process {place()[0]} of {world()} failed, see above"
    )
    print(f"The run ended: {why}; finished seeds are kept, the same command goes on.", file=sys.stderr)


def _is_loss(error: BaseException) -> bool:
    """Whether an error says no more than that another process is gone."""
    import torch.distributed as dist

    text = str(error)
    gone = any(words in text for words in ("gloo", "NCCL", "Connection reset", "Connection closed", "Timed out"))
    return isinstance(error, _Lost | dist.DistError) or (isinstance(error, RuntimeError) and gone)


def _asked(more: int) -> int:
    """Count this process, or not, among those that ask whether to speak; return how many there are."""
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store().add("vitlab/ended", more)
    except (RuntimeError, ValueError):  # the store has gone with the process that held it
        return more


def _wait(done: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so, but not for longer."""
    patience = time.monotonic() + seconds
    while not done() and time.monotonic() < patience:
        time.sleep(0.05)
