"""The functions of lower layers that distributions use, by name: `F.exp`, `F.ndtri`, ..."""
from __future__ import annotations

from typing import Any

from adjoint.ops.activation import logsigmoid, softplus
from adjoint.ops.api_decompose import LINALG
from adjoint.ops.api_index import one_hot
from adjoint.ops.public import FUNCTIONS
from adjoint.ops.special import SPECIAL


class _Functions:
    cholesky = staticmethod(LINALG["cholesky"])
    logsigmoid = staticmethod(logsigmoid)
    one_hot = staticmethod(one_hot)
    softplus = staticmethod(softplus)
    solve_triangular = staticmethod(LINALG["solve_triangular"])

    def __getattr__(self, name: str) -> Any:
        try:
            return FUNCTIONS[name] if name in FUNCTIONS else SPECIAL[name]
        except KeyError:
            raise AttributeError(f"no function {name!r}") from None


F: Any = _Functions()
