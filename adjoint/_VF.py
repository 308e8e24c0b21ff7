"""`torch._VF`: the names under which PyTorch's layers call functions, for programs that do so too.

>>> import adjoint as ad
>>> ad._VF.gru_cell is ad.gru_cell
True
"""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing

_missing = missing("adjoint._VF")


def __getattr__(name: str) -> Any:
    import adjoint  # the package loads this module when it is asked for
    found = None if name.startswith("__") else getattr(adjoint, name, None)
    return found if callable(found) else _missing(name)
