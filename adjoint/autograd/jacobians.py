"""Jacobians of a function of tensors, for `gradcheck`: by central differences, by backward, by
forward mode; whole, or along one random direction.

For a function of complex operands the numerical derivative is taken along the real and the
imaginary axis and combined in PyTorch's convention (conjugate Wirtinger).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from adjoint.autograd import api
from adjoint.autograd.forward_ad import dual_level, make_dual, unpack_dual
from adjoint.autograd.modes import enable_grad
from adjoint.base.dtypes import is_inexact
from adjoint.core.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Several values as a tuple, one as a tuple of one."""
    return x if isinstance(x, tuple) else tuple(x) if isinstance(x, list) else (x,)


def outputs(f: Callable[..., Any], inputs: Sequence[Any]) -> list[tuple[int, Tensor]]:
    """(number, tensor) of what `f` gives that may have a derivative."""
    return [(k, o) for k, o in enumerate(as_tuple(f(*inputs))) if isinstance(o, Tensor)
            and is_inexact(o.array.dtype)]


def differentiable(f: Callable[..., Any], inputs: Sequence[Any]) -> list[tuple[int, Tensor]]:
    """The outputs that require a gradient."""
    return [(k, o) for k, o in outputs(f, inputs) if o.requires_grad]


def slopes(f: Callable[..., Any], inputs: Sequence[Any], t: Tensor, eps: float,
           places: Sequence[int], unit: complex = 1) -> list[Array]:
    """Per output number in `places`, the matrix (t.size, output's size) of its central differences
    along `unit` (1 or i) in each element of `t`."""
    rows: list[list[Any]] = [[] for _ in places]
    array = t.array
    for at in np.ndindex(array.shape):
        kept = array[at].copy()
        values = []
        for sign in (1, -1):
            array[at] = kept + sign * (eps if unit == 1 else eps * unit)
            values.append(_values(f, inputs, places))
        array[at] = kept
        for row, p, m in zip(rows, *values, strict=True):
            row.append(((p - m) / (2 * eps)).reshape(-1))
    return [np.stack(r) if r else np.zeros((0, 0)) for r in rows]


def slope_along(f: Callable[..., Any], inputs: Sequence[Any], t: Tensor, eps: float,
                places: Sequence[int], u: Array) -> list[Array]:
    """Per output number, its central difference along `u`, an array of t's shape."""
    kept = t.array.copy()
    values = []
    for sign in (1, -1):
        t.array[...] = kept + sign * eps * u
        values.append(_values(f, inputs, places))
    t.array[...] = kept
    return [(p - m) / (2 * eps) for p, m in zip(*values, strict=True)]


def _values(f: Callable[..., Any], inputs: Sequence[Any], places: Sequence[int]) -> list[Array]:
    with enable_grad():                 # the function may differentiate by itself
        found = as_tuple(f(*inputs))
    return [np.array(found[k].array) for k in places]


def numerical_jacobian(f: Callable[..., Any], inputs: Sequence[Any], t: Tensor, eps: float,
                       places: Sequence[int]) -> list[Array]:
    """Per output number, the matrix d out / d t by central differences, (t.size, out.size); for a
    complex `t` it is d/dRe + i·d/dIm."""
    found = slopes(f, inputs, t, eps, places)
    if t.array.dtype.kind != "c":
        return found
    along_i = slopes(f, inputs, t, eps, places, 1j)
    return [a + 1j * b for a, b in zip(found, along_i, strict=True)]


def analytic_jacobian(out: Tensor, t: Tensor) -> list[Array]:
    """d out / d t by one backward per element of `out`, (t.size, out.size); for a complex `out` two
    such matrices, of the seeds 1 and i."""
    columns = []
    units = (1.0,) if out.array.dtype.kind != "c" else (1.0, 1j)
    for at in np.ndindex(out.array.shape):
        parts = []
        for unit in units:
            seed = np.zeros(out.array.shape, out.array.dtype)
            seed[at] = unit
            parts.append(pulled(out, t, seed))
        columns.append([p.reshape(-1) for p in parts])
    if not columns:
        return [np.zeros((t.array.size, 0), t.array.dtype) for _ in units]
    return [np.stack([c[j] for c in columns], axis=1) for j in range(len(columns[0]))]


def pulled(out: Tensor, t: Tensor, seed: Array) -> Array:
    """The gradient of <seed, out> with respect to `t`; zeros where it is not reached."""
    (g,) = api.grad(out, t, wrap(seed), retain_graph=True, allow_unused=True)
    return np.zeros(t.array.shape, t.array.dtype) if g is None else np.asarray(g.array)


def pairs(f: Callable[..., Any], inputs: Sequence[Any], t: Tensor, eps: float, k: int, out: Tensor,
          numeric: Array) -> Iterator[tuple[Array, Array]]:
    """(analytic, numeric) matrices to compare for output number `k`: one pair, or for a complex
    output two."""
    analytic = analytic_jacobian(out, t)
    if out.array.dtype.kind != "c":
        return iter([(analytic[0], numeric)])
    if t.array.dtype.kind != "c":
        return iter([(analytic[0], numeric.real), (analytic[1], numeric.imag)])
    dx, dy = (slopes(f, inputs, t, eps, [k], unit)[0] for unit in (1, 1j))
    return iter([(analytic[0], dx.real + 1j * dy.real),      # <e, J> and <ie, J>, in the conjugate
                 (analytic[1], dx.imag + 1j * dy.imag)])     # convention


def pushed(f: Callable[..., Any], inputs: Sequence[Any], at: int, tangent: Any,
           places: Sequence[int]) -> list[Any]:
    """Per output number its tangent, a tensor or None, where operand `at` has that tangent."""
    with dual_level():
        args = [make_dual(a.detach().requires_grad_(a._rg), tangent) if i == at else a
                for i, a in enumerate(inputs)]
        found = as_tuple(f(*args))
        return [unpack_dual(found[k]).tangent for k in places]


def forward_rows(f: Callable[..., Any], inputs: Sequence[Any], at: int, places: Sequence[int],
                 unit: complex = 1) -> list[Array]:
    """Per output number the matrix (t.size, out.size) of its tangents along `unit` in each element
    of operand `at`."""
    t = inputs[at]
    sizes = [np.asarray(o.array).size for o in map(as_tuple(f(*inputs)).__getitem__, places)]
    rows: list[list[Array]] = [[] for _ in places]
    for index in np.ndindex(t.array.shape):
        seed = np.zeros(t.array.shape, t.array.dtype)
        seed[index] = unit
        for row, tangent, n in zip(rows, pushed(f, inputs, at, wrap(seed), places), sizes,
                                   strict=True):
            row.append(np.zeros(n) if tangent is None else np.asarray(tangent.array).reshape(-1))
    return [np.stack(r) if r else np.zeros((0, n)) for r, n in zip(rows, sizes, strict=True)]
