"""The door of this part: torch, numpy or lists come in, tensors go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def tensor(values: Any) -> Tensor:
    """Return `values` as a tensor cut from any graph, its dtype and device kept; python numbers become float64.

    Raises ValueError for what holds no numbers: strings, ragged lists, objects.
    """
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind not in "fiubc":
        raise ValueError(f"Numbers are needed, got {type(values).__name__}; pass a tensor or an array.")
    # torch takes neither reversed nor read-only memory as it is.
    plain = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if plain else array.copy())
