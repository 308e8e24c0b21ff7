"""Householder reflections: the raw QR factorization and products of reflectors.

Reflector i is H_i = I - tau_i v_i v_iᴴ with v_i = (0, ..., 0, 1, A[i+1:, i]). Their product is
I - V·T·Vᴴ, where T⁻¹ = diag(1/tau) + striu(VᴴV) (Schreiber and Van Loan, "A storage-efficient WY
representation", 1989). T is solved for as (I + diag(tau)·striu(VᴴV))·T = diag(tau), which has a
solution for tau = 0 too, so products and their derivatives are a few matrix products.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import NotSupported, ShapeError
from adjoint.core.modes import GRAD, state
from adjoint.core.op import op
from adjoint.ops.api_common import (
    dtype_of,
    exactly,
    in_rows,
    need,
    need_kernel,
    result,
    safely,
    same_dtype,
)
from adjoint.ops.api_decompose import linalg
from adjoint.ops.decompose import batch_leading, by_columns, mm, needs_width, triangular_op
from adjoint.ops.index import tril_op, triu_op
from adjoint.ops.linalg import columns, mH
from adjoint.ops.pointwise import add, mul, sub
from adjoint.ops.public import known_as, public, typed
from adjoint.ops.shape import narrow_op, unsqueeze_op
from adjoint.ops.singular import guarded

GeqrfResult = result("geqrf", "a tau")
_geqrf_out = safely("torch.geqrf", "a", "tau", rows="filled")
_product_out = safely("torch.linalg.householder_product", rows="filled")
_ormqr_out = exactly("torch.ormqr: Expected input and result to have the same dtype, but input has "
                     "dtype{want} and result has dtype {have}")


def _ormqr(out: Any, answer: Any) -> Any:
    """`_ormqr_out`; what had other elements before comes out in C order."""
    return _ormqr_out(out, in_rows(answer) if out is not None and out.numel() else answer)



def _raw_qr(a: Any, /) -> tuple[Any, Any]:
    m, n = a.shape[-2:]
    if not a.size:
        return a.copy(), np.zeros((*a.shape[:-2], min(m, n)), a.dtype)
    flat = [guarded("geqrf", np.linalg.qr, x, "raw") for x in a.reshape(-1, m, n)]
    packed = by_columns(np.stack([h.T for h, _ in flat]).reshape(a.shape))
    return packed.astype(a.dtype, copy=False), np.stack([t for _, t in flat]).reshape(
        *a.shape[:-2], min(m, n)).astype(a.dtype, copy=False)


def _raw_infer(a: Aval) -> tuple[Aval, Aval]:
    if a.ndim < 2:
        raise ShapeError("geqrf: input must have at least 2 dimensions, got "
                         f"{list(a.shape)}")
    return a, Aval((*a.shape[:-2], min(a.shape[-2:])), a.dtype)


geqrf_op: Any = op(
    "geqrf", **needs_width("geqrf"), impl=_raw_qr, infer=_raw_infer, outs=("a", "tau"),
    batch=batch_leading,
    cost=lambda a: a.size * min(a.shape[-2:]))


@public()
def geqrf(input: Any, *, out: Any = None) -> Any:
    """(a, tau): R on and above the diagonal of `a`, the reflectors that made it below; input
    (*, m, n), tau (*, min(m, n)). Raises NotSupported where a gradient is
    wanted: `linalg.qr` has one.

    >>> import adjoint as ad
    >>> a, tau = ad.geqrf(ad.tensor([[3.0], [4.0]]))
    >>> a.tolist(), tau.tolist()
    ([[-5.0], [0.5]], [1.600000023841858])
    """
    need("geqrf", input)
    if getattr(input, "_rg", False) and state() & GRAD:
        raise NotSupported("geqrf: the raw factorization has no derivative; use linalg.qr, or "
                           "detach() the operand")
    return _geqrf_out(out, GeqrfResult(*geqrf_op(input)))


def _check(name: str, A: Any, tau: Any, most: int | None = None) -> None:
    need(f"linalg.{name}", A, tau)
    if name == "householder_product":
        need_kernel("orgqr_cpu", "biu", A)
    same_dtype(name, A, tau)
    if len(A.shape) < 2:
        raise ShapeError(f"{name}: input must have at least 2 dimensions, a column for each "
                         f"reflector; got {list(A.shape)}")
    if tuple(tau.shape[:-1]) != tuple(A.shape[:-2]) or len(tau.shape) != len(A.shape) - 1:
        raise ShapeError(f"{name}: tau{list(tau.shape)} must have the batch axes of the reflectors "
                         f"{list(A.shape)} and one axis more")
    k, n = tau.shape[-1], A.shape[-1]
    if k > n if most is None else k != min(most, n):
        rule = ("input.shape[-1] must be greater than or equal to tau.shape[-1]" if most is None
                else "tau.shape[-1] must be equal to min(other.shape[-2], input.shape[-1])")
        raise ShapeError(f"{name}: {rule}: tau has {k} entries, for {n} columns "
                         f"of reflectors {list(A.shape)}")


def _eye(m: int, n: int, like: Any) -> Any:
    return np.eye(m, n, dtype=dtype_of(like))


def _factors(A: Any, tau: Any) -> tuple[Any, Any]:
    """V (*, m, k) and T (*, k, k)."""
    m, k = A.shape[-2], tau.shape[-1]
    columns = narrow_op(A, dim=len(A.shape) - 1, start=0, length=k)
    v = add(tril_op(columns, diagonal=-1), _eye(m, k, A))
    scale = mul(unsqueeze_op(tau, dim=len(tau.shape)), _eye(k, k, A))
    left = add(_eye(k, k, A), mul(unsqueeze_op(tau, dim=len(tau.shape)),
                                  triu_op(mm(mH(v), v), diagonal=1)))
    return v, triangular_op(left, scale, upper=True, unit=True)


@linalg(top=("orgqr",))
@known_as("LinalgHouseholderProductBackward0")
def householder_product(A: Any, tau: Any, *, out: Any = None) -> Any:
    """The first n columns of H_1·H_2···H_k: A (*, m, n) holds the reflectors below its diagonal,
    tau (*, k) their scales, k <= n <= m; the Q of `geqrf`. Differentiable in both.

    Raises ShapeError where the shapes do not fit.

    >>> import adjoint as ad
    >>> a, tau = ad.geqrf(ad.tensor([[3.0], [4.0]]))
    >>> ad.linalg.householder_product(a, tau)
    tensor([[-0.6000],
            [-0.8000]])
    """
    _check("householder_product", A, tau)
    m, n = A.shape[-2:]
    if n > m:
        raise ShapeError(f"householder_product: A{list(A.shape)} has {n} columns and {m} rows; it "
                         "must not have more columns than rows")
    v, t = _factors(A, tau)
    head = narrow_op(v, dim=len(v.shape) - 2, start=0, length=n)
    return _product_out(out, columns(sub(_eye(m, n, A), mm(v, mm(t, mH(head))))))


@public()
@typed
def ormqr(input: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False, *,
          out: Any = None) -> Any:
    """Q·other (other·Q with left=False) for the full m x m Q of reflectors in `input`; Qᴴ in the
    place of Q with transpose=True. Differentiable.

    input (*, m, n) and tau (*, k) as `geqrf` gives them, other (*, m, p), or (*, p, m) on the left.

    >>> import adjoint as ad
    >>> a, tau = ad.geqrf(ad.tensor([[3.0], [4.0]]))
    >>> ad.ormqr(a, tau, ad.tensor([[3.0], [4.0]]), transpose=True)[0]
    tensor([-5.])
    """
    need("ormqr", input, other)
    same_dtype("ormqr", input, other)
    if len(other.shape) != len(input.shape) or other.shape[:-2] != input.shape[:-2]:
        raise ShapeError(f"ormqr: input{list(input.shape)} and other{list(other.shape)} must have "
                         "the same batch axes")
    m, facing = input.shape[-2], other.shape[-2 if left else -1]
    if m != facing:
        raise ShapeError(f"ormqr: other.shape[{-2 if left else -1}] must be equal to "
                         f"input.shape[-2], got {facing} and {m}")
    _check("ormqr", input, tau, m)
    v, t = _factors(input, tau)
    if transpose:
        t = mH(t)
    if left:
        return _ormqr(out, columns(sub(other, mm(v, mm(t, mm(mH(v), other))))))
    return _ormqr(out, columns(sub(other, mm(mm(mm(other, v), t), mH(v)))))


__all__ = ["geqrf", "householder_product", "ormqr"]
