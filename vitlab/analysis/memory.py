"""How much memory a computation needs at its worst moment, counted exactly, on any device.

A process's own size says little: an allocator keeps what was freed, and all else that runs shows too. Here every
tensor that an operation of torch makes is counted from its making until nothing refers to it, so the number is the
same in every run. What a kernel uses within itself (a convolution's unfolded copy, a tile of fused attention) is
no tensor, and is not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Count(TorchDispatchMode):
    """Counts the bytes of storages made while it is on, and notices when each goes."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # What an operation is given was there before it, or has been counted: an in-place result is not new.
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = function(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and id(x.untyped_storage()) not in given | self.known:
                self._made(x.untyped_storage())
        self.peak = max(self.peak, self.alive)
        return out

    def _made(self, storage: Any) -> None:
        key, size = id(storage), storage.nbytes()
        self.known.add(key)
        self.alive += size
        weakref.finalize(storage, self._gone, key, size)  # a storage's object lives as long as its memory

    def _gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.alive -= size


def peak_bytes(work: Callable[[], Any]) -> int:
    """Return the most bytes that tensors made by `work` hold at one time, its result included.

    Args:
        work: a function of no arguments that computes with torch: `lambda: model(images)` for a forward pass, one
            that ends in `loss.backward()` for training, where all that autograd keeps counts, and the gradients.

    Returns:
        Bytes. Weights, inputs and whatever was there before are not counted. What is made once and kept, a mask or
        a table, counts the first time only, so call it twice where models are compared.

    Raises:
        TypeError: `work` cannot be called without arguments.
    """
    with _Count() as count:
        result = work()
    del result
    return count.peak
