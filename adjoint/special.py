"""Special functions with derivatives: the functions of `torch.special`.

    >>> import adjoint as ad
    >>> ad.special.log_ndtr(ad.tensor([-40.0]))
    tensor([-804.6085])
"""
from __future__ import annotations

from adjoint.ops.special import SPECIAL as _SPECIAL

globals().update(_SPECIAL)
__all__ = sorted(_SPECIAL)
