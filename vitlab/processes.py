"""Several processes as one run: the first decides and writes, the others follow and are silent.

A launcher (torchrun, accelerate launch, accelerate's notebook_launcher) starts the processes and says in the
environment how many there are. Their group is made when it is first needed, and never where a process is alone.
"""

from __future__ import annotations

import datetime
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeVar

PLUMBING = True  # a change here cannot change a recorded number

PATIENCE = datetime.timedelta(minutes=10)  # a process that does not answer for so long is taken for lost
T = TypeVar("T")


def world() -> int:
    """Return how many processes make this run."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def first() -> bool:
    """Whether this process is the one that decides, writes and prints."""
    return world() == 1 or os.environ["RANK"] == "0"


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
    PartialState(cpu=not cuda, timeout=PATIENCE, backend="nccl" if cuda else "gloo")
    return dist.new_group(backend="gloo", timeout=PATIENCE) if cuda else dist.group.WORLD


def _pickles(error: Exception) -> bool:
    try:
        return isinstance(pickle.loads(pickle.dumps(error)), Exception)
    except Exception:
        return False


def together(work: Callable[[], int]) -> int:
    """Do the work of a command, and return its exit status; of several processes one alone speaks.

    Where a process fails or is lost, all end; the first to know prints why, and none but it.
    """
    if world() == 1:
        return work()

    def stopped(number: int, _: Any) -> NoReturn:
        raise _Lost

    signal.signal(signal.SIGTERM, stopped)  # a launcher sends it to the rest when one process is gone
    try:
        if not first():
            _be_silent()
        join()
        status = work()
        agree(lambda: None)  # nobody leaves while another still works
        import torch.distributed as dist

        dist.destroy_process_group()
        return status
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _tell(error)
        sys.stderr.flush()
        os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)  # at once: a lost peer is not waited for


class _Lost(BaseException):
    """The launcher ends this process, because another is gone."""


def _be_silent() -> None:
    """Print nothing from this process but an error that ends the run."""
    os.environ["TQDM_DISABLE"] = "1"
    warnings.simplefilter("ignore")
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  it stays open


def _tell(error: BaseException) -> None:
    """Print why the run ends, from one process: the first, if it knows what went wrong, else one that does."""
    if isinstance(error, KeyboardInterrupt):
        return  # the measurement has said what is kept
    lost = _is_loss(error)
    if not first():
        time.sleep(3 if lost else 1)
    if _spoken_for():
        return
    if not lost:
        traceback.print_exception(error)
    why = (
        f"one of its {world()} processes was lost, or did not answer for {PATIENCE.seconds // 60} minutes"
        if lost
        else f"process {os.environ['RANK']} of {world()} failed, see above"
    )
    print(f"The run ended: {why}; finished seeds are kept, the same command goes on.", file=sys.stderr)


def _is_loss(error: BaseException) -> bool:
    """Whether an error says no more than that another process is gone."""
    import torch.distributed as dist

    text = str(error)
    gone = any(words in text for words in ("gloo", "NCCL", "Connection reset", "Connection closed", "Timed out"))
    return isinstance(error, _Lost | dist.DistError) or (isinstance(error, RuntimeError) and gone)


def _spoken_for() -> bool:
    """Whether another process has said why the run ends; where not, it is this one's to say."""
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store().add("vitlab/spoken", 1) > 1
    except (RuntimeError, ValueError):  # the store has gone with the process that held it
        return False
