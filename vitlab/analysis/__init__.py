"""Pure functions: tensors or arrays in, numbers out; nothing here plots, trains or loads.

Each module is a family of instruments and stands alone: `spectra` (how many dimensions a representation uses),
`attention` (how far and how evenly a head looks), `equivariance` (what a shift of the image does), `receptive`
(which pixels reach a unit), `memory` (what a computation needs at its worst moment), `scaling` (how error falls
with data) and `statistics` (how sure we are).
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["attention", "equivariance", "memory", "receptive", "scaling", "spectra", "statistics"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"vitlab.analysis.{name}")
    raise AttributeError(f"vitlab.analysis has the modules {', '.join(__all__)}, not {name!r}.")


def __dir__() -> list[str]:
    return sorted(__all__)
