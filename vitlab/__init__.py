"""vitlab: the helper package of The Hungry Transformer, a laboratory course on Vision Transformers.

Its parts do not know each other; a chapter is where they meet. Importing the package costs nothing: each part
loads when it is first named, and torch only when a part needs it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["analysis", "check", "data", "hooks", "lab", "models", "show", "train"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"vitlab.{name}")
    raise AttributeError(f"vitlab has the parts {', '.join(__all__)}, not {name!r}.")


def __dir__() -> list[str]:
    return sorted(__all__)
