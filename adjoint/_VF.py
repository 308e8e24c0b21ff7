"""`torch._VF`: the names under which PyTorch's layers call functions, for programs that do so too.

>>> import adjoint as ad
>>> ad._VF.gru_cell is ad.gru_cell
True
"""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.nn.recurrent import *  # noqa: F403 - its names are these
from adjoint.ops.public import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS)
__getattr__ = _missing("adjoint._VF")
