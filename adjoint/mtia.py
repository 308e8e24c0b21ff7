"""`torch.mtia`'s questions, answered truthfully: there is no such device here."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.xpu import *  # noqa: F403  # the same questions have the same answers
from adjoint.xpu import __all__ as __all__

__getattr__ = _missing("adjoint.mtia")
