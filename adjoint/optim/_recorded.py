"""Steps that are recorded (`differentiable=True`): the same rules, on values with a graph.

A rule writes with `out=` into arrays. Here its operands are `Cell`s: each holds a tensor, a NumPy
function of cells is that function of their tensors, and what would be written into an array
becomes the tensor of its cell. Nothing that backward needs is overwritten on the way.

    p, g, m, v (tensors) ─> cells ─> the rule of `_rules` ─> p.copy_(...), m.copy_(...), ...
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.public import FUNCTIONS

__all__ = ["Cell", "run"]


class Cell(NDArrayOperatorsMixin):
    """A place that a rule writes to; what it holds is replaced, never changed."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __array_ufunc__(self, f: Any, method: str, *operands: Any, out: Any = (), **options: Any
                        ) -> Any:
        if method != "__call__" or options.keys() - {"casting"}:
            return NotImplemented
        return _put(f(*map(_held, operands)), out[0] if out else None)

    def __array_function__(self, f: Any, types: Any, operands: Any, options: Any) -> Any:
        values = [_held(x) for x in operands]
        if f is np.copyto:
            return _put(values[1], operands[0])
        if f is np.where and not any(isinstance(x, Tensor) for x in values[1:]):
            values[1] = wrap(np.array(values[1], np.float64))     # two numbers: none is rounded
        return _put(FUNCTIONS[f.__name__](*values), options.get("out"))

    def __setitem__(self, at: Any, value: Any) -> None:
        """All of it, or what a mask tells."""
        value = _held(value)
        self.value = value if at is Ellipsis else FUNCTIONS["where"](
            _held(at), value, self.value)

    def __bool__(self) -> bool:
        return bool(self.value)


def _held(x: Any) -> Any:
    return x.value if isinstance(x, Cell) else x


def _put(value: Any, cell: Cell | None) -> Cell:
    if cell is None:
        return Cell(value)
    cell.value = value
    return cell


def run(rule: Callable[..., None], p: Tensor, state: Sequence[Tensor], scratch: int,
        numbers: dict[str, Any]) -> None:
    """Apply ``rule`` to a parameter, its gradient and its state; all of it is recorded.

    The new values are written into the parameter and the state in place, where what they held
    before stays for the backward. A complex parameter is two real ones, as without a record."""
    grad: Any = p.grad
    cells = [Cell(_real(x.clone())) for x in (p, grad, *state)]
    rule(*cells, *[Cell() for _ in range(scratch)],
         **{key: Cell(x) if isinstance(x, Tensor) else x for key, x in numbers.items()})
    for x, cell in zip((p, *state), (cells[0], *cells[2:]), strict=True):
        x.copy_(cell.value.view_as_complex() if x.is_complex() else cell.value)


def _real(x: Tensor) -> Tensor:
    return x.view_as_real() if x.is_complex() else x
