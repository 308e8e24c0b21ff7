"""gradcheck and gradgradcheck: analytic derivatives against central differences.

For a function of complex operands the numerical derivative is taken along the real and the
imaginary axis and combined in PyTorch's convention (conjugate Wirtinger).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd import api
from adjoint.autograd.modes import enable_grad
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, GradcheckError
from adjoint.core.modes import as_pytorch, warn_as_pytorch
from adjoint.core.tensor import Tensor, wrap


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else tuple(x) if isinstance(x, list) else (x,)


def _inputs(inputs: tuple[Any, ...]) -> list[tuple[int, Tensor]]:
    """(position, tensor) of the operands to check; refuses single precision, of which PyTorch
    warns."""
    picked = [(i, t) for i, t in enumerate(inputs) if isinstance(t, Tensor) and t._rg]
    if not picked:
        raise ArgumentError("gradcheck expects at least one input tensor to require gradient, but "
                            "none of the them have requires_grad=True.")
    for i, t in picked:
        if t.array.dtype not in (np.float64, np.complex128) and as_pytorch[0]:
            warn_as_pytorch(f"Input #{i} requires gradient and is not a double precision floating "
                            "point or complex. This check will likely fail if all the inputs are "
                            "not of double precision floating point or complex.")
        elif t.array.dtype not in (np.float64, np.complex128):
            raise GradcheckError(
                f"gradcheck: input {i} is {t.dtype}; central differences with eps=1e-6 need double "
                "precision (a float32 step loses all digits).\n  fix: pass float64 tensors "
                "(x.double()), and model.double() for a module")
        if t.array.size and 0 in t.array.strides and t.array.size > 1:
            raise GradcheckError(f"gradcheck: The {i}th input has a dimension with stride 0. "
                                 "gradcheck only supports inputs that are non-overlapping; clone "
                                 "it first")
    return picked


def _outputs(f: Callable[..., Any], inputs: tuple[Any, ...]) -> list[tuple[int, Tensor]]:
    outs = _tuple(f(*inputs))
    return [(k, o) for k, o in enumerate(outs) if isinstance(o, Tensor)
            and is_inexact(o.array.dtype)]


def slopes(f: Callable[..., Any], inputs: tuple[Any, ...], t: Tensor, eps: float, count: int,
           unit: complex = 1) -> list[Any]:
    """Per output k of `count`, the matrix (t.size, out_k.size) of its central differences along
    `unit` (1 or i) in each element of `t`."""
    rows: list[list[Any]] = [[] for _ in range(count)]
    array = t.array
    step = eps if unit == 1 else eps * unit
    with enable_grad():                 # the function may differentiate by itself
        for at in np.ndindex(array.shape):
            kept = array[at].copy()
            values = []
            for moved in (kept + step, kept - step):
                array[at] = moved
                values.append([np.array(o.array) for _, o in _outputs(f, inputs)])
            array[at] = kept
            for row, p, m in zip(rows, *values, strict=True):
                row.append(((p - m) / (2 * eps)).reshape(-1))
    return [np.stack(r) if r else np.zeros((0, 0)) for r in rows]


def numerical_jacobian(f: Callable[..., Any], inputs: tuple[Any, ...], t: Tensor, eps: float,
                       count: int) -> list[Any]:
    """Per output k, the matrix d out_k / d t by central differences, (t.size, out_k.size); for a
    complex `t` it is d/dRe + i·d/dIm."""
    found = slopes(f, inputs, t, eps, count)
    if t.array.dtype.kind != "c":
        return found
    along_i = slopes(f, inputs, t, eps, count, 1j)
    return [a + 1j * b for a, b in zip(found, along_i, strict=True)]


def analytic_jacobian(out: Tensor, t: Tensor) -> Any:
    """d out / d t by one backward per element of `out`, (t.size, out.size); for a complex `out` two
    such matrices, of the seeds 1 and i."""
    columns = []
    units = (1.0,) if out.array.dtype.kind != "c" else (1.0, 1j)
    for at in np.ndindex(out.array.shape):
        parts = []
        for unit in units:
            seed = np.zeros(out.array.shape, out.array.dtype)
            seed[at] = unit
            (g,) = api.grad(out, t, wrap(seed), retain_graph=True, allow_unused=True)
            parts.append(np.zeros(t.array.shape, t.array.dtype) if g is None else g.array)
        columns.append([p.reshape(-1) for p in parts])
    if not columns:
        return [np.zeros((t.array.size, 0), t.array.dtype) for _ in units]
    return [np.stack([c[j] for c in columns], axis=1) for j in range(len(columns[0]))]


def _compare(f: _Complex, i: int, t: Tensor, k: int, out: Tensor, numeric: Any,
             atol: float, rtol: float) -> str:
    analytic = analytic_jacobian(out, t)
    if out.array.dtype.kind != "c":
        pairs = [(analytic[0], numeric)]
    elif t.array.dtype.kind == "c":             # <e, J> and <ie, J>, in the conjugate convention
        dx, dy = f.parts(t, k)
        pairs = [(analytic[0], dx.real + 1j * dy.real), (analytic[1], dx.imag + 1j * dy.imag)]
    else:
        pairs = [(analytic[0], numeric.real), (analytic[1], numeric.imag)]
    for a, n in pairs:
        text = _difference(i, k, t, out, a, n, atol, rtol)
        if text:
            return text
    return ""


class _Complex:
    """Wraps the checked function: gives d/dRe and d/dIm apart for complex outputs."""

    def __init__(self, f: Callable[..., Any], inputs: tuple[Any, ...], eps: float) -> None:
        self.f, self.inputs, self.eps = f, inputs, eps

    def __call__(self, *inputs: Any) -> Any:
        return self.f(*inputs)

    def parts(self, t: Tensor, k: int) -> tuple[Any, Any]:
        """Central differences of output `k` along the real and the imaginary axis of `t`."""
        count = len(_outputs(self.f, self.inputs))
        return (slopes(self.f, self.inputs, t, self.eps, count)[k],
                slopes(self.f, self.inputs, t, self.eps, count, 1j)[k])


def _difference(i: int, k: int, t: Tensor, out: Tensor | None, a: Any, n: Any, atol: float,
                rtol: float) -> str:
    """Empty if the two agree; else the report of the worst element."""
    if a.size == 0 or np.allclose(a, n, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    error = np.abs(a - n)
    error = np.where(np.isnan(error), np.inf, error)
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    where_in = tuple(int(v) for v in np.unravel_index(int(at[0]), t.array.shape))
    node = out.grad_fn if out is not None else None
    made = f" (made by {node.name()} at {node.where()})" if node is not None else ""
    out_shape = list(out.array.shape) if out is not None else "?"
    return (f"Jacobian mismatch for output {k} with respect to input {i},\n"
            f"  output {k}: shape {out_shape}{made}\n"
            f"  input {i}: shape {list(t.array.shape)}, worst at index {where_in}, output element "
            f"{int(at[1])}\n  numerical: {n[at]:.10g}\n  analytical: {a[at]:.10g}\n"
            f"  difference {error[at]:.3g} > atol {atol:g} + rtol {rtol:g} * |numerical|\n"
            f"numerical:{np.array2string(n, threshold=64)}\n"
            f"analytical:{np.array2string(a, threshold=64)}")


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, raise_exception: bool = True, nondet_tol: float = 0.0,
              check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
              check_forward_ad: bool = False, check_backward_ad: bool = True,
              fast_mode: bool = False, masked: bool | None = None) -> bool:
    """True if the derivatives of `func` agree with central differences at `inputs`.

    inputs  tensor or tuple; those that require grad are checked and must be float64/complex128
    eps     step of the differences; atol, rtol: |a - n| <= atol + rtol |n| for every entry
    nondet_tol  allowed difference of two backward runs
    Raises GradcheckError naming output, input, index and both values (or returns False with
    `raise_exception=False`).

    >>> import adjoint as ad
    >>> x = ad.randn(3, dtype=ad.float64, requires_grad=True)
    >>> ad.autograd.gradcheck(lambda t: t.exp() * t, x)
    True
    """
    given = _tuple(inputs)
    try:
        picked = _inputs(given)
        with enable_grad():
            _check(func, given, picked, eps, atol, rtol, nondet_tol, check_forward_ad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Callable[..., Any], given: tuple[Any, ...], picked: Sequence[tuple[int, Tensor]],
           eps: float, atol: float, rtol: float, nondet_tol: float, forward: bool) -> None:
    outs = _outputs(func, given)
    if not outs:
        raise GradcheckError("gradcheck: func returned no floating tensor to differentiate")
    wrapped = _Complex(func, given, eps)
    for i, t in picked:
        numeric = numerical_jacobian(func, given, t, eps, len(outs))
        fresh = _outputs(func, given)
        for (k, out), n in zip(fresh, numeric, strict=True):
            if not out._rg:
                if np.abs(n).max(initial=0.0) > atol:
                    raise GradcheckError(f"Numerical gradient for function expected to be zero: "
                                         f"output {k} does not require grad but depends on input "
                                         f"{i}")
                continue
            text = _compare(wrapped, i, t, k, out, n, atol, rtol)
            if text:
                raise GradcheckError(text)
            _repeatable(out, t, i, nondet_tol)
    if forward:
        from adjoint.autograd.forward_ad import check_forward
        check_forward(func, given, picked, eps, atol, rtol)


def _repeatable(out: Tensor, t: Tensor, i: int, tol: float) -> None:
    seed = wrap(np.ones(out.array.shape, out.array.dtype))
    first, second = (api.grad(out, t, seed, retain_graph=True, allow_unused=True)[0]
                     for _ in range(2))
    if first is None or second is None:
        return
    if first.array.dtype != t.array.dtype:
        raise GradcheckError(f"gradient of input {i} has dtype {first.dtype}, the input {t.dtype}")
    gap = np.abs(first.array - second.array).max(initial=0.0)
    if gap > tol:
        raise GradcheckError(f"Backward is not reentrant, i.e., running backward with same input "
                             f"and grad_output multiple times gives different values: {gap:g} > "
                             f"nondet_tol {tol:g}")


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *,
                  eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """`gradcheck` of the gradient of `func`: finds a backward that cannot be differentiated, or
    whose derivative is wrong.

    >>> import adjoint as ad
    >>> x = ad.randn(3, dtype=ad.float64, requires_grad=True)
    >>> ad.autograd.gradgradcheck(lambda t: t ** 3, x)
    True
    """
    given = _tuple(inputs)
    picked = _inputs(given)
    outs = [o for _, o in _outputs(func, given) if o._rg]
    rng = np.random.default_rng(0)
    if grad_outputs is None:
        seeds = []
        for o in outs:
            values = rng.standard_normal(o.array.shape)
            if o.array.dtype.kind == "c":
                values = values + 1j * rng.standard_normal(o.array.shape)
            seeds.append(wrap(np.asarray(values).astype(o.array.dtype), True))
    else:
        seeds = list(_tuple(grad_outputs))
    n = len(given)

    @enable_grad()
    def gradient(*args: Any) -> tuple[Any, ...]:
        own, cts = args[:n], args[n:]
        results = [o for _, o in _outputs(func, own) if o._rg]
        targets = [own[i] for i, _ in picked]
        return tuple(g for g in api.grad(results, targets, tuple(cts), create_graph=True,
                                         allow_unused=True) if g is not None)

    return gradcheck(gradient, (*given, *seeds), eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception, nondet_tol=nondet_tol)
