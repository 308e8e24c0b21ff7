"""`autograd.numpy.linalg`: `numpy.linalg` on arrays and boxes."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.core.tensor import Tensor as _Tensor
from adjoint.core.tensor import wrap as _wrap
from adjoint.hips.box import counterparts as _counterparts
from adjoint.hips.box import on_arrays as _on_arrays
from adjoint.numpy import linalg as _ours


def _triangle(a: Any, UPLO: str) -> Any:
    """The Hermitian matrix of the triangle that `eigh` reads."""
    t = a if isinstance(a, _Tensor) else _wrap(_np.asarray(a))
    low = t.tril(-1) if UPLO == "L" else t.triu(1).mH
    middle = t.diagonal(0, -2, -1).real if t.is_complex() else t.diagonal(0, -2, -1)
    return low + low.mH + middle.diag_embed()


eigh = _on_arrays(_np.linalg.eigh, lambda a, UPLO="L": _ours.eigh(_triangle(a, UPLO), UPLO))
eigvalsh = _on_arrays(_np.linalg.eigvalsh,
                      lambda a, UPLO="L": _ours.eigvalsh(_triangle(a, UPLO), UPLO))


__getattr__ = _counterparts(_np.linalg, _ours)


def __dir__() -> list[str]:
    return sorted({*dir(_np.linalg), *globals()})


__all__ = ["eigh", "eigvalsh"]
