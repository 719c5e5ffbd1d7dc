"""Other implementations read as ours, one architecture a file: their configuration, their weights by our names.

In a file, `config_of(theirs)` is our configuration of a network of theirs, and `renamed(state)` its weights under
our names; what ours lacks is refused in a sentence. A file loads when it is first named.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"There is no peer of {name!r}; the files in vitlab/models/peers name those known.")
    return importlib.import_module(f"{__name__}.{name}")
