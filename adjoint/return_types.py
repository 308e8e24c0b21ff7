"""The named tuples that functions of several results give: `torch.return_types`.

    >>> import adjoint as ad
    >>> isinstance(ad.ones(2, 2).max(0), ad.return_types.max)
    True
"""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.ops.api_common import RETURN_TYPES as _KINDS

globals().update(_KINDS)
all_return_types = list(_KINDS.values())
__all__ = [*_KINDS, "all_return_types"]

__getattr__ = _missing("adjoint.return_types")
