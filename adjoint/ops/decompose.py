"""Records of decompositions and solutions of linear systems, over leading batch axes.

Where a derivative divides by a difference of eigenvalues or singular values, pairs that are equal
(to 10 eps of the largest) contribute 0, never nan: right for functions of the values, and of
vectors that enter through whole degenerate subspaces only (docs/subgradients.md).

Source of the formulas: M. Giles, "Collected matrix derivative results" (2008); F. Walter and
L. Lehmann (2011) for QR; K. Petersen, M. Pedersen, "The matrix cookbook" (2012), section 2.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import NoKernel, ShapeError
from adjoint.core.inplace import zeros_of
from adjoint.core.op import op
from adjoint.core.rehearsal import on_scratch
from adjoint.ops.api_common import dtype_of, raw
from adjoint.ops.family import batch_broadcast
from adjoint.ops.index import tril_op, triu_op
from adjoint.ops.linalg import conj, matmul_op, mH
from adjoint.ops.moments import real_of
from adjoint.ops.pointwise import (
    abs_op,
    add,
    cast,
    conj_op,
    div,
    imag_part,
    le,
    mul,
    neg,
    real_part,
    sub,
    where_op,
)
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import cat_op, lift_all, narrow_op, unsqueeze_op
from adjoint.ops.singular import LinAlgError, guarded, refusal, substituted


def by_columns(a: Any) -> Any:
    """Matrices laid out column by column, as LAPACK and PyTorch give them."""
    return np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)


def needs_width(name: str) -> dict[str, Any]:
    """Fields of a record that LAPACK computes: no 16-bit floats, float32 under autocast."""
    def prepare(arrays: Any) -> Any:
        for a in arrays:
            if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
                raise NoKernel(f"linalg.{name} is not implemented for {a.dtype.name} (operand "
                                 f"{list(a.shape)}): cast it, x.float(), or open an autocast")
        return arrays
    return {"prepare": prepare, "autocast": "wide"}


def square_aval(name: str, a: Aval) -> None:
    """Refuse what is not a batch of square matrices."""
    if a.ndim < 2:
        raise ShapeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions, got "
                         f"{list(a.shape)}")
    if a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"linalg.{name}: A must be batches of square matrices, but they are "
                         f"{a.shape[-2]} by {a.shape[-1]} matrices")


def mm(*xs: Any) -> Any:
    """Products from left to right."""
    out = xs[0]
    for x in xs[1:]:
        out = matmul_op(out, x)
    return out


def column(v: Any) -> Any:
    """A vector as a matrix of one row that scales columns."""
    return unsqueeze_op(v, dim=len(v.shape) - 1)


def diag_of(v: Any) -> Any:
    """Diagonal matrices."""
    from adjoint.ops.arrange import undiagonal_op
    n, rank = v.shape[-1], len(v.shape)
    return undiagonal_op(v, shape=(*v.shape, n), offset=0, dim1=rank - 1, dim2=rank)


def diagonal_of(a: Any) -> Any:
    """The diagonals."""
    from adjoint.ops.arrange import diagonal_op
    rank = len(a.shape)
    return diagonal_op(a, offset=0, dim1=rank - 2, dim2=rank - 1)


def inverse_gaps(w: Any) -> Any:
    """1/(w[j] - w[i]), 0 where they are equal."""
    gap = sub(column(w), unsqueeze_op(w, dim=len(w.shape)))
    eps = float(np.finfo(dtype_of(w)).eps)
    values = raw(w)
    known = isinstance(values, np.ndarray) and not getattr(w, "level", 0)
    top = np.abs(values).max(initial=0.0) if known else 1.0
    same = le(abs_op(gap), 10 * eps * float(top))
    return where_op(same, 0.0, div(1.0, where_op(same, 1.0, gap)))


def _square(name: str) -> Callable[..., Aval]:
    def infer(a: Aval, **_: Any) -> Aval:
        square_aval(name, a)
        return Aval(a.shape, a.dtype)
    return infer


def batch_leading(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """Batch rule of ops over trailing matrices: the axis in front is one more leading axis."""
    return op_.call(*lift_all(args, batched), **attrs)


def _cube(a: Aval, **_: Any) -> int:
    return a.size * a.shape[-1] if a.ndim else 0


# ------------------------------------------------------------------ systems
def _solve_infer(a: Aval, b: Aval) -> Aval:
    square_aval("solve", a)
    if b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: "
                         f"{list(a.shape)} and {list(b.shape)}")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Aval((*lead, *b.shape[-2:]), a.dtype)


solve_op: Any = op(
    "linalg_solve", **needs_width("solve"),
    impl=lambda a, b, /: by_columns(guarded("solve", np.linalg.solve, a, b)),
    infer=_solve_infer, node="LinalgSolveExBackward0",
    vjp={"a": lambda ct, a, out: neg(mm(solve_op(mH(a), ct), mH(out))),
         "b": lambda ct, a: solve_op(mH(a), ct)},
    jvp={"a": lambda t, a, out: neg(solve_op(a, mm(t, out))),
         "b": lambda t, a: solve_op(a, t)},
    batch=batch_broadcast, cost=lambda a, b: a.size * a.shape[-1] + 2 * a.size * b.shape[-1],
    why={"a": "dB = A⁻ᴴ·ct", "out": "dA = -dB·Xᴴ"})


def _triangle(a: Any, upper: bool, unit: bool) -> Any:
    part = (triu_op if upper else tril_op).op.impl(a, diagonal=0)
    if unit:
        n = a.shape[-1]
        part[..., range(n), range(n)] = 1
    return part


def _over_triangle(a: Any, b: Any, upper: bool) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        if on_scratch.get() and not a.any():
            raise               # (a rehearsal, which tries regular matrices after zeros)
        return substituted(a, b, upper)


def _cut(x: Any, upper: bool, unit: bool) -> Any:
    return triu_op(x, diagonal=int(unit)) if upper else tril_op(x, diagonal=-int(unit))


triangular_op: Any = op(
    "linalg_solve_triangular", **needs_width("solve_triangular"),
    impl=lambda a, b, /, *, upper, unit: by_columns(
        _over_triangle(_triangle(a, upper, unit), b, upper)),
    infer=lambda a, b, *, upper, unit: _solve_infer(a, b),
    vjp={"a": lambda ct, a, out, *, upper, unit: _cut(neg(mm(triangular_op(
        mH(a), ct, upper=not upper, unit=unit), mH(out))), upper, unit),
         "b": lambda ct, a, *, upper, unit: triangular_op(mH(a), ct, upper=not upper, unit=unit)},
    jvp={"a": lambda t, a, out, *, upper, unit: neg(triangular_op(
        a, mm(_cut(t, upper, unit), out), upper=upper, unit=unit)),
         "b": lambda t, a, *, upper, unit: triangular_op(a, t, upper=upper, unit=unit)},
    batch=batch_broadcast, cost=lambda a, b, **_: a.size * b.shape[-1],
    why={"a": "dB = A⁻ᴴ·ct", "out": "dA = -dB·Xᴴ"})
inv_op: Any = op(
    "linalg_inv", **needs_width("inv"),
    impl=lambda a, /: by_columns(guarded("inv", np.linalg.inv, a)), infer=_square("inv"),
    vjp={"a": lambda ct, out: neg(mm(mH(out), ct, mH(out)))},
    jvp={"a": lambda t, out: neg(mm(out, t, out))}, batch=batch_leading, cost=_cube,
    node="LinalgInvExBackward0", why={"out": "dA = -A⁻ᴴ·ct·A⁻ᴴ"})


def _cofactors(a: Any, out: Any) -> Any:
    """d det/dA, conjugated: det·A⁻ᴴ; from the singular values where the matrix is singular."""
    values = raw(out)
    hidden = not isinstance(values, np.ndarray) or bool(getattr(out, "level", False))
    if hidden or values.size and not (values == 0).any():     # level and meta: taken as regular
        return mul(unsqueeze_op(unsqueeze_op(conj(out), dim=len(out.shape)), dim=len(out.shape)),
                   mH(inv_op(a)))
    u, s, vh = np.linalg.svd(raw(a))
    n = s.shape[-1]
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(n)], -1) if n else s
    phase = np.linalg.det(u) * np.linalg.det(vh)
    return (np.conj(phase)[..., None, None] * (u * others[..., None, :]) @ vh).astype(dtype_of(a))


def _spread2(v: Any) -> Any:
    rank = len(v.shape)
    return unsqueeze_op(unsqueeze_op(v, dim=rank), dim=rank + 1)


def _inner(t: Any, c: Any) -> Any:
    """Σ t·conj(c) over matrices."""
    rank = len(t.shape)
    return sum_op(mul(t, conj(c)), dim=(rank - 2, rank - 1), keepdim=False)


det_op: Any = op(
    "linalg_det", **needs_width("det"),
    impl=lambda a, /: np.asarray(np.linalg.det(a), a.dtype),
    infer=lambda a: Aval(_square("det")(a).shape[:-2], a.dtype),
    vjp={"a": lambda ct, a, out: mul(_spread2(ct), _cofactors(a, out))},
    jvp={"a": lambda t, a, out: _inner(t, _cofactors(a, out))}, batch=batch_leading, cost=_cube,
    why={"a": "dA = ct·det·A⁻ᴴ", "out": "dA = ct·det·A⁻ᴴ"})


def _slogdet_infer(a: Aval) -> Any:
    square_aval("slogdet", a)
    return Aval(a.shape[:-2], a.dtype), Aval(a.shape[:-2], real_of(a.dtype))


def _real(x: Any) -> Any:
    return real_part(x) if dtype_of(x).kind == "c" else x


def _slogdet_vjp(cts: Any, a: Any, sign: Any, a_aval: Aval) -> Any:
    """d log|det| + i·d arg(det) = tr(A⁻¹·dA); a real sign does not change."""
    turn, grow = cts
    if turn is not None and dtype_of(sign).kind == "c":
        phase = mul(imag_part(mul(conj_op(turn), sign)), -1j)
        grow = phase if grow is None else add(grow, phase)
    if grow is None:
        return zeros_of(a_aval)
    return mul(_spread2(grow), mH(inv_op(a)))


def _slogdet_jvp(t: Any, a: Any, sign: Any) -> Any:
    change = _inner(t, mH(inv_op(a)))
    if dtype_of(sign).kind != "c":
        return mul(sign, 0.0), change
    return mul(mul(sign, 1j), imag_part(change)), _real(change)


slogdet_op: Any = op(
    "linalg_slogdet", **needs_width("slogdet"),
    impl=lambda a, /: tuple(np.asarray(v) for v in np.linalg.slogdet(a)),
    infer=_slogdet_infer, outs=("sign", "logabsdet"), vjp={"a": _slogdet_vjp},
    jvp={"a": _slogdet_jvp}, batch=batch_leading, cost=_cube,
    why={"a": "dA = ct·A⁻ᴴ", "sign": "the phase of a complex determinant turns"})


# ------------------------------------------------------------------ Cholesky
def _half(x: Any) -> Any:
    """The lower triangle with its diagonal halved."""
    return sub(tril_op(x, diagonal=0), mul(diag_of(diagonal_of(x)), 0.5))


def _cholesky_vjp(ct: Any, out: Any) -> Any:
    inner = _half(mm(mH(out), tril_op(ct, diagonal=0)))
    left = triangular_op(mH(out), inner, upper=True, unit=False)
    s = mH(triangular_op(mH(out), mH(left), upper=True, unit=False))
    return mul(add(s, mH(s)), 0.5)


def _cholesky_jvp(t: Any, out: Any) -> Any:
    t = mul(add(t, mH(t)), 0.5)
    left = triangular_op(out, t, upper=False, unit=False)
    whole = mH(triangular_op(out, mH(left), upper=False, unit=False))
    return mm(out, _half(whole))


def _cholesky_impl(a: Any, /) -> Any:
    half = (a + np.conj(np.swapaxes(a, -1, -2))) / 2
    low = guarded("cholesky", np.linalg.cholesky, half.astype(a.dtype))
    if np.isnan(np.diagonal(low, axis1=-2, axis2=-1)).any():    # (LAPACK's way with nan differs)
        raise refusal("cholesky", half)
    return by_columns(low)


cholesky_op: Any = op(
    "linalg_cholesky", **needs_width("cholesky"),
    impl=_cholesky_impl, infer=_square("cholesky"),
    vjp={"a": _cholesky_vjp}, jvp={"a": _cholesky_jvp}, batch=batch_leading, cost=_cube,
    node="LinalgCholeskyExBackward0", why={"out": "dA comes from L alone"})


# ------------------------------------------------------------------ QR
def _qr_infer(a: Aval) -> Any:
    m, n = a.shape[-2:]
    k = min(m, n)
    return Aval((*a.shape[:-2], m, k), a.dtype), Aval((*a.shape[:-2], k, n), a.dtype)


def _skew_part(x: Any) -> Any:
    """The strictly lower triangle less its conjugate transpose, plus the imaginary diagonal."""
    low = tril_op(x, diagonal=-1)
    return sub(low, mH(low))


def _qr_vjp(cts: Any, q: Any, r: Any) -> Any:
    gq, gr = cts
    n, k = r.shape[-1], q.shape[-1]
    zero_q = np.zeros(tuple(q.shape), dtype_of(q))
    gq = zero_q if gq is None else gq
    gr = np.zeros(tuple(r.shape), dtype_of(q)) if gr is None else gr
    if n > k:                                       # wide: A = [X Y], Q R1 = X, Y = Q·R2
        last = len(r.shape) - 1
        r1 = narrow_op(r, dim=last, start=0, length=k)
        r2 = narrow_op(r, dim=last, start=k, length=n - k)
        g2 = narrow_op(gr, dim=last, start=k, length=n - k)
        y = mm(q, r2)
        gy = mm(q, g2)
        extra = mm(y, mH(g2))
        gx = _qr_tall(add(gq, extra), narrow_op(gr, dim=last, start=0, length=k), q, r1)
        return cat_op(gx, gy, dim=last)
    return _qr_tall(gq, gr, q, r)


def _qr_tall(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    whole = sub(mm(r, mH(gr)), mm(mH(gq), q))
    low = tril_op(whole, diagonal=-1)
    middle = add(add(low, mH(low)), diag_of(_as(dtype_of(q), _real(diagonal_of(whole)))))
    right = add(gq, mm(q, middle))
    return mH(triangular_op(r, mH(right), upper=True, unit=False))


def _as(dtype: Any, x: Any) -> Any:
    return x if dtype_of(x) == dtype else cast(x, dtype=dtype)


def _qr_jvp(t: Any, a: Any, q: Any, r: Any) -> Any:
    n, k = r.shape[-1], q.shape[-1]
    last = len(r.shape) - 1
    if n > k:
        tx = narrow_op(t, dim=last, start=0, length=k)
        r1 = narrow_op(r, dim=last, start=0, length=k)
        dq, dr1 = _qr_tall_jvp(tx, q, r1)
        ty = narrow_op(t, dim=last, start=k, length=n - k)
        r2 = narrow_op(r, dim=last, start=k, length=n - k)
        dr2 = mm(mH(q), sub(ty, mm(dq, r2)))
        return dq, cat_op(dr1, dr2, dim=last)
    return _qr_tall_jvp(t, q, r)


def _qr_tall_jvp(t: Any, q: Any, r: Any) -> Any:
    tr = mH(triangular_op(mH(r), mH(t), upper=False, unit=False))    # t·R⁻¹
    inner = mm(mH(q), tr)
    turn = _skew_part(inner)
    if dtype_of(q).kind == "c":
        diagonal = diagonal_of(inner)
        turn = add(turn, diag_of(sub(diagonal, _as(dtype_of(q), _real(diagonal)))))
    dq = add(sub(tr, mm(q, inner)), mm(q, turn))
    return dq, mm(sub(inner, turn), r)


qr_op: Any = op(
    "linalg_qr", **needs_width("qr"),
    impl=lambda a, /: tuple(map(by_columns, guarded("qr", np.linalg.qr, a))), infer=_qr_infer,
    outs=("q", "r"), vjp={"a": _qr_vjp}, jvp={"a": _qr_jvp}, batch=batch_leading, cost=_cube,
    why={"q": "the rotation turns with A", "r": "dA = (...)·R⁻ᴴ"})


# ------------------------------------------------------------------ eigenvalues
def _eigh_infer(a: Aval, *, uplo: str) -> Any:
    square_aval("eigh", a)
    return Aval(a.shape[:-1], real_of(a.dtype)), Aval(a.shape, a.dtype)


def _eigh_impl(a: Any, /, *, uplo: str) -> Any:
    w, v = guarded("eigh", np.linalg.eigh, (a + np.conj(np.swapaxes(a, -1, -2))) / 2, uplo)
    return w.astype(real_of(a.dtype), copy=False), by_columns(v).astype(a.dtype, copy=False)


def _eigh_vjp(cts: Any, w: Any, v: Any) -> Any:
    gw, gv = cts
    middle: Any = None
    if gw is not None:
        middle = diag_of(_as(dtype_of(v), gw))
    if gv is not None:
        turned = mul(mm(mH(v), gv), inverse_gaps(w))
        middle = turned if middle is None else add(middle, turned)
    out = mm(v, middle, mH(v))
    return mul(add(out, mH(out)), 0.5)


def _eigh_jvp(t: Any, w: Any, v: Any) -> Any:
    t = mul(add(t, mH(t)), 0.5)
    inner = mm(mH(v), t, v)
    return _real(diagonal_of(inner)), mm(v, mul(inner, inverse_gaps(w)))


eigh_op: Any = op(
    "linalg_eigh", **needs_width("eigh"),
    impl=_eigh_impl, infer=_eigh_infer, outs=("w", "v"), vjp={"a": _eigh_vjp},
    jvp={"a": _eigh_jvp}, batch=batch_leading, cost=lambda a, **_: 9 * _cube(a),
    why={"w": "vectors turn with 1/(w[j] - w[i])", "v": "dA = V·(...)·Vᴴ"})


def _eig_infer(a: Aval) -> Any:
    square_aval("eig", a)
    kind = a.dtype if a.dtype.kind == "c" else np.dtype("c16" if a.dtype.itemsize == 8 else "c8")
    return Aval(a.shape[:-1], kind), Aval(a.shape, kind)


def _eig_impl(a: Any, /) -> Any:
    w, v = guarded("eig", np.linalg.eig, a)
    kind = a.dtype if a.dtype.kind == "c" else np.dtype("c16" if a.dtype.itemsize == 8 else "c8")
    return w.astype(kind), by_columns(v.astype(kind))


def _complex_gaps(w: Any) -> Any:
    gap = sub(column(w), unsqueeze_op(w, dim=len(w.shape)))
    same = le(abs_op(gap), 0.0)
    return where_op(same, 0.0, div(1.0, where_op(same, 1.0, gap)))


def _eig_vjp(cts: Any, w: Any, v: Any, a_aval: Aval) -> Any:
    gw, gv = cts
    middle: Any = None
    if gw is not None:
        middle = diag_of(gw)
    if gv is not None:
        pulled = mm(mH(v), gv)
        scale = _as(dtype_of(v), _real(diagonal_of(pulled)))
        turned = mul(sub(pulled, mul(mm(mH(v), v), column(scale))), conj(_complex_gaps(w)))
        middle = turned if middle is None else add(middle, turned)
    out = solve_op(mH(v), mm(middle, mH(v)))
    return out if a_aval.dtype.kind == "c" else real_part(out)


def _eig_jvp(t: Any, w: Any, v: Any) -> Any:
    inner = solve_op(v, mm(_as(dtype_of(v), t), v))
    dv = mm(v, mul(inner, _complex_gaps(w)))
    norm = _as(dtype_of(v), _real(sum_op(mul(conj(v), dv), dim=(len(v.shape) - 2,), keepdim=True)))
    return diagonal_of(inner), sub(dv, mul(v, norm))


eig_op: Any = op(
    "linalg_eig", **needs_width("eig"),
    impl=_eig_impl, infer=_eig_infer, outs=("w", "v"), vjp={"a": _eig_vjp},
    jvp={"a": _eig_jvp}, batch=batch_leading, cost=lambda a: 25 * _cube(a),
    why={"w": "vectors turn with 1/(w[j] - w[i])", "v": "dA = V⁻ᴴ·(...)·Vᴴ"})


# ------------------------------------------------------------------ singular values
def _svd_infer(a: Aval) -> Any:
    m, n = a.shape[-2:]
    k = min(m, n)
    lead = a.shape[:-2]
    return (Aval((*lead, m, k), a.dtype), Aval((*lead, k), real_of(a.dtype)),
            Aval((*lead, k, n), a.dtype))


def _svd_impl(a: Any, /) -> Any:
    u, s, vh = guarded("svd", np.linalg.svd, a, full_matrices=False)
    return by_columns(u), s, by_columns(vh)


def _safe_inverse(s: Any) -> Any:
    zero = le(s, 0.0)
    return where_op(zero, 0.0, div(1.0, where_op(zero, 1.0, s)))


def _outside(q: Any, x: Any) -> Any:
    """(I - q·qᴴ)·x."""
    return sub(x, mm(q, mm(mH(q), x)))


def _svd_vjp(cts: Any, u: Any, s: Any, vh: Any) -> Any:
    gu, gs, gvh = cts
    dtype = dtype_of(u)
    row, gaps = column(s), inverse_gaps(mul(s, s))
    middle: Any = None if gs is None else diag_of(_as(dtype, gs))

    def join(a: Any, b: Any) -> Any:
        return b if a is None else add(a, b)
    if gu is not None:
        inner = mm(mH(u), gu)
        skew = mul(sub(inner, mH(inner)), gaps)
        middle = join(middle, mul(skew, row))
        if dtype.kind == "c":
            phase = sub(diagonal_of(inner), _as(dtype, _real(diagonal_of(inner))))
            middle = join(middle, diag_of(mul(phase, _safe_inverse(s))))
    if gvh is not None:
        inner = mm(vh, mH(gvh))
        skew = mul(sub(inner, mH(inner)), gaps)
        middle = join(middle, mul(skew, unsqueeze_op(s, dim=len(s.shape))))
    out = None if middle is None else mm(u, middle, vh)
    if gu is not None and u.shape[-2] > u.shape[-1]:
        out = join(out, mm(mul(_outside(u, gu), column(_safe_inverse(s))), vh))
    if gvh is not None and vh.shape[-1] > vh.shape[-2]:
        rest = mH(_outside(mH(vh), mH(gvh)))
        out = join(out, mm(u, mul(rest, unsqueeze_op(_safe_inverse(s), dim=len(s.shape)))))
    return out


def _svd_jvp(t: Any, u: Any, s: Any, vh: Any) -> Any:
    dtype = dtype_of(u)
    inner = mm(mH(u), t, mH(vh))
    ds = _real(diagonal_of(inner))
    row, col, gaps = column(s), unsqueeze_op(s, dim=len(s.shape)), inverse_gaps(mul(s, s))
    left = mul(add(mul(inner, row), mul(mH(inner), col)), gaps)
    right = mul(add(mul(col, inner), mul(mH(inner), row)), gaps)
    du, dv = mm(u, left), mm(mH(vh), right)
    if dtype.kind == "c":
        phase = mul(sub(diagonal_of(inner), _as(dtype, ds)), _safe_inverse(s))
        du = add(du, mul(u, column(phase)))
    if u.shape[-2] > u.shape[-1]:
        du = add(du, mul(_outside(u, mm(t, mH(vh))), column(_safe_inverse(s))))
    if vh.shape[-1] > vh.shape[-2]:
        dv = add(dv, mul(_outside(mH(vh), mm(mH(t), u)), column(_safe_inverse(s))))
    return du, ds, mH(dv)


svd_op: Any = op(
    "linalg_svd", **needs_width("svd"),
    impl=_svd_impl, infer=_svd_infer, outs=("u", "s", "vh"), vjp={"a": _svd_vjp},
    jvp={"a": _svd_jvp}, batch=batch_leading, cost=lambda a: 20 * a.size * min(a.shape[-2:]),
    why={"u": "dA = U·(...)·Vᴴ", "s": "vectors turn with 1/(s[j]² - s[i]²)",
         "vh": "dA = U·(...)·Vᴴ"})


# ------------------------------------------------------------------ exponential, pseudo-inverse
_PADE = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
         129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
         40840800.0, 960960.0, 16380.0, 182.0, 1.0)


def _expm(a: Any, /) -> Any:
    """Scaling and squaring with the [13/13] Padé approximant (N. Higham, 2005)."""
    if not a.size:
        return a.copy()
    size = np.abs(a).sum(-2).max(-1)
    power = np.maximum(0, np.ceil(np.log2(np.maximum(size, 1e-30) / 5.371920351148152)))
    power = np.where(np.isfinite(power), power, 0).astype(int)
    x = a / (2.0 ** power)[..., None, None]
    eye = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    b = _PADE
    u = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2
             + b[1] * eye)
    v = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * eye
    out = np.linalg.solve(v - u, v + u)
    for k in range(int(power.max(initial=0))):
        out = np.where((power > k)[..., None, None], out @ out, out)
    return out.astype(a.dtype)


def _expm_slope(t: Any, a: Any) -> Any:
    """The derivative of exp at `a` along `t`: a block of exp([[a, t], [0, a]])."""
    n, last = a.shape[-1], len(a.shape) - 1
    zero = np.zeros(tuple(a.shape), dtype_of(a))
    top, low = cat_op(a, t, dim=last), cat_op(zero, a, dim=last)
    whole = expm_op(cat_op(top, low, dim=last - 1))
    return narrow_op(narrow_op(whole, dim=last - 1, start=0, length=n), dim=last, start=n, length=n)


expm_op: Any = op(
    "linalg_matrix_exp", by_value=True, impl=_expm, infer=_square("matrix_exp"),
    vjp={"a": lambda ct, a: _expm_slope(ct, mH(a))}, jvp={"a": lambda t, a: _expm_slope(t, a)},
    batch=batch_leading, cost=lambda a: 15 * _cube(a),
    why={"a": "the derivative is a block of exp of a larger matrix"})


def _pinv_vjp(ct: Any, a: Any, out: Any) -> Any:
    p, ph = out, mH(out)
    first = neg(mm(ph, ct, ph))
    g = mH(ct)
    right = sub(mm(g, p, ph), mm(a, p, g, p, ph))
    left = sub(mm(ph, p, g), mm(ph, p, g, p, a))
    return add(first, add(right, left))


def _pinv_jvp(t: Any, a: Any, out: Any) -> Any:
    p, ph, th = out, mH(out), mH(t)
    first = neg(mm(p, t, p))
    right = sub(mm(p, ph, th), mm(p, ph, th, a, p))
    left = sub(mm(th, ph, p), mm(p, a, th, ph, p))
    return add(first, add(right, left))


pinv_op: Any = op(
    "linalg_pinv", **needs_width("pinv"),
    impl=lambda a, /, *, rtol: guarded("pinv", np.linalg.pinv, a, rcond=rtol),
    infer=lambda a, *, rtol: Aval((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype),
    vjp={"a": _pinv_vjp}, jvp={"a": _pinv_jvp}, batch=batch_leading,
    cost=lambda a, **_: 25 * a.size * min(a.shape[-2:]),
    why={"a": "projections I - A·A⁺", "out": "dA = -A⁺ᴴ·ct·A⁺ᴴ + ..."})
__all__ = ["LinAlgError", "cholesky_op", "det_op", "eig_op", "eigh_op", "expm_op", "inv_op",
           "pinv_op", "qr_op", "slogdet_op", "solve_op", "svd_op", "triangular_op"]
