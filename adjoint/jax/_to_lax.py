"""What ops are in the words of `jax.lax`, for programs (`_record.py`).

    row(recording, op, args, attrs, aval of the result) -> tensor, or None where it does not fit
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.core.op import Op
from adjoint.core.tensor import Tensor
from adjoint.jax._dtypes import as_dtype
from adjoint.kernels import expr as ex
from adjoint.ops.family import PointwiseOp

F = Callable[..., Any]
ROWS: dict[str, F] = {}
# a scalar function -> the one of `lax`
_SAME = {n: n for n in "add sub mul div neg exp exp2 expm1 log log1p sqrt rsqrt sin cos tan asin "
         "acos atan sinh cosh tanh asinh acosh atanh erf erfc digamma lgamma abs sign floor ceil "
         "atan2 pow eq ne lt le gt ge cbrt".split()}
POINT = {**_SAME, "maximum": "max", "minimum": "min", "sigmoid": "logistic", "fmod": "rem",
          "round": "round", "erfinv": "erf_inv", "bitwise_and": "and", "bitwise_or": "or",
          "bitwise_xor": "xor", "bitwise_not": "not", "logical_and": "and", "logical_or": "or",
          "logical_xor": "xor", "logical_not": "not", "bessel_i0e": "bessel_i0e",
          "i0e": "bessel_i0e", "i1e": "bessel_i1e", "nextafter": "nextafter"}
_CONDITION = ("eq", "ne", "lt", "le", "gt", "ge")
_ACCURATE = frozenset("exp exp2 expm1 log log1p sqrt rsqrt sin cos tan tanh logistic cbrt".split())


def row(op: Op) -> F | None:
    """The row of an op."""
    found = ROWS.get(op.name)
    if found is None and op.name in POINT:
        return _pointwise
    if found is None and isinstance(op, PointwiseOp) and not op.attrs:
        return _expression
    return found


def _enter(*names: str) -> Callable[[F], F]:
    def run(f: F) -> F:
        ROWS.update(dict.fromkeys(names, f))
        return f
    return run


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape) if hasattr(x, "shape") else ()


def _kind(args: Sequence[Any], aval: Any) -> Any:
    """The dtype that operands have: that of the first array."""
    found = [a.array.dtype if isinstance(a, Tensor) else a.dtype for a in args
             if hasattr(a, "shape")]
    return max(found, key=lambda d: (len(found) == 1, d.itemsize)) if found else aval.dtype


def _ranked(r: Any, args: Sequence[Any]) -> list[Any]:
    """Operands with the same number of axes; numbers stay numbers."""
    most = max([len(_shape(a)) for a in args], default=0)
    made = []
    for a in args:
        shape = _shape(a)
        if shape and len(shape) < most:
            off = most - len(shape)
            a = r.lax("broadcast_in_dim", [a], (1,) * off + shape, a.array.dtype,
                      shape=(1,) * off + shape, sharding=None,
                      broadcast_dimensions=tuple(range(off, most)))
        made.append(a)
    return made


def _apply(r: Any, name: str, args: Sequence[Any], kind: Any, dtype: Any) -> Any:
    args = [a if isinstance(a, Tensor) and a.level else np.asarray(
        a.array if isinstance(a, Tensor) else a) for a in args]
    args = [a.astype(kind) if isinstance(a, np.ndarray) and not a.ndim else a for a in args]
    args = _ranked(r, args)
    shape = np.broadcast_shapes(*map(_shape, args))
    params: dict[str, Any] = {"accuracy": None} if name in _ACCURATE else {}
    if name == "round":
        params = {"rounding_method": 1}
    return r.lax(name, args, shape, dtype, **params)


def _pointwise(r: Any, op: Op, args: Sequence[Any], attrs: Mapping[str, Any], out: Any) -> Any:
    if attrs:
        return None
    name = POINT[op.name]
    if name == "pow" and not isinstance(args[1], Tensor) and float(args[1]).is_integer():
        return r.lax("integer_pow", [args[0]], out.shape, out.dtype, y=int(args[1]))
    if name in ("and", "or", "xor", "not") and "logical" in op.name and _kind(
            args, out).kind != "b":
        return None
    return _apply(r, name, args, _kind(args, out), out.dtype)


def _expression(r: Any, op: Any, args: Sequence[Any], attrs: Mapping[str, Any], out: Any) -> Any:
    """A pointwise op by its scalar expression; None where that has a function `lax` lacks."""
    order = ex.schedule([op.expression])
    if not all(e.fn in ("var", "const", "reciprocal", "where", "and", "or", "not")
               or e.fn in POINT for e in order) or out.dtype.kind == "c":
        return None
    env = dict(zip(op.operands, args, strict=True))
    made: dict[Any, Any] = {}
    kind = _kind(args, out)
    for e in order:
        given = [made[a] for a in e.args]
        if e.fn in ("var", "const"):
            made[e] = env[e.value] if e.fn == "var" else e.value
        elif e.fn == "reciprocal":
            made[e] = _apply(r, "div", [1.0, *given], kind, kind)
        elif e.fn == "where":
            made[e] = _select(r, given, kind)
        else:
            logic = e.fn in ("and", "or", "not")
            made[e] = _apply(r, e.fn if logic else POINT[e.fn], given,
                             np.dtype(bool) if logic else kind,
                             np.dtype(bool) if logic or e.fn in _CONDITION else kind)
    found = made[op.expression]
    return found if isinstance(found, Tensor) and found.level else None


def _filled(r: Any, x: Any, shape: Any, dtype: Any) -> Any:
    """A value broadcast to a shape."""
    own = _shape(x)
    if own == tuple(shape):
        return x
    off = len(shape) - len(own)
    return r.lax("broadcast_in_dim", [x], tuple(shape), dtype, shape=tuple(shape), sharding=None,
                 broadcast_dimensions=tuple(range(off, len(shape))))


def _select(r: Any, args: Sequence[Any], dtype: Any) -> Any:
    condition, a, b = args
    shape = np.broadcast_shapes(*map(_shape, (condition, a, b)))
    if _shape(condition) != ():
        condition = _filled(r, condition, shape, np.dtype(bool))
    return r.lax("select_n", [condition, _filled(r, b, shape, dtype), _filled(r, a, shape, dtype)],
                 shape, dtype)


@_enter("where")
def _where(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return _select(r, args, out.dtype)


@_enter("square")
def _square(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return r.lax("integer_pow", args, out.shape, out.dtype, y=2)


@_enter("to_dtype")
def _cast(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    t = r.lax("convert_element_type", args, out.shape, out.dtype, new_dtype=out.dtype,
              weak_type=False)
    t.var.aval.weak_type = False
    return t


@_enter("sum", "amax", "amin", "prod", "all", "any")
def _reduce(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    x, = args
    dim = attrs.get("dim")
    rank = len(_shape(x))
    axes = tuple(range(rank)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    axes = tuple([a % rank for a in axes]) if rank else ()
    name = {"amax": "max", "amin": "min", "all": "and", "any": "or"}.get(op.name, op.name)
    params = {} if name in ("and", "or", "prod") else {"out_sharding": None}
    shape = tuple([n for i, n in enumerate(_shape(x)) if i not in axes])
    t = r.lax(f"reduce_{name}", [x], shape, out.dtype, axes=axes, **params)
    if shape == tuple(out.shape):
        return t
    places = tuple([i for i in range(rank) if i not in axes])
    return r.lax("broadcast_in_dim", [t], out.shape, out.dtype, shape=tuple(out.shape),
                 broadcast_dimensions=places, sharding=None)


@_enter("mm", "mv", "dot")
def _dot(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    a, b = args
    return r.lax("dot_general", [a, b], out.shape, out.dtype, precision=None, out_sharding=None,
                 dimension_numbers=((_Axes([len(_shape(a)) - 1]), _Axes([0])), (_Axes(), _Axes())),
                 preferred_element_type=out.dtype)


class _Axes(tuple[int, ...]):
    """Axes, written as JAX writes them there."""

    def __repr__(self) -> str:
        return repr(list(self))


@_enter("permute")
def _permute(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    rank = len(_shape(args[0]))
    return r.lax("transpose", args, out.shape, out.dtype,
                 permutation=tuple([d % rank for d in attrs["dims"]]))


@_enter("view", "reshape")
def _view(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    x, = args
    before, shape = _shape(x), tuple(out.shape)
    if before == shape:
        return x
    gone = [i for i, n in enumerate(before) if n == 1]
    if tuple([n for n in before if n != 1]) == shape:
        return r.lax("squeeze", [x], shape, out.dtype, dimensions=tuple(gone))
    return r.lax("reshape", [x], shape, out.dtype, dimensions=None, new_sizes=shape, sharding=None)


@_enter("unsqueeze")
def _unsqueeze(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    at = attrs["dim"] % len(out.shape)
    return r.lax("broadcast_in_dim", args, out.shape, out.dtype, shape=tuple(out.shape),
                 sharding=None,
                 broadcast_dimensions=tuple([i for i in range(len(out.shape)) if i != at]))


@_enter("squeeze")
def _squeeze(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return _view(r, op, args, attrs, out)


@_enter("expand")
def _expand(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return _filled(r, args[0], tuple(out.shape), out.dtype)


@_enter("cat")
def _cat(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return r.lax("concatenate", args, out.shape, out.dtype,
                 dimension=attrs["dim"] % len(out.shape))


@_enter("stack")
def _stack(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return r.lax("stack", args, out.shape, out.dtype, axis=attrs["dim"] % len(out.shape))


def _slice(r: Any, x: Any, dim: int, start: int, stop: int) -> Any:
    shape = _shape(x)
    low, high = [0] * len(shape), list(shape)
    low[dim], high[dim] = start, stop
    return r.lax("slice", [x], tuple([h - n for h, n in zip(high, low, strict=True)]),
                 x.array.dtype, limit_indices=tuple(high), start_indices=tuple(low), strides=None)


@_enter("narrow")
def _narrow(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    x, = args
    dim = attrs["dim"] % len(_shape(x))
    return _slice(r, x, dim, attrs["start"], attrs["start"] + attrs["length"])


@_enter("select")
def _pick(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    x, = args
    shape = _shape(x)
    dim = attrs["dim"] % len(shape)
    at = attrs["index"] % shape[dim]
    return r.lax("squeeze", [_slice(r, x, dim, at, at + 1)], out.shape, out.dtype,
                 dimensions=(dim,))


@_enter("cumsum", "cumprod")
def _cumulated(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    return r.lax(op.name, args, out.shape, out.dtype, axis=attrs["dim"] % len(out.shape),
                 reverse=False)


@_enter("argmax", "argmin")
def _index(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    x, = args
    if attrs.get("keepdim") or attrs.get("dim") is None:
        return None
    return r.lax(op.name, [x], out.shape, out.dtype, axes=(attrs["dim"] % len(_shape(x)),),
                 index_dtype=as_dtype(out.dtype))


@_enter("softmax")
def _softmax(r: Any, op: Op, args: Sequence[Any], attrs: Any, out: Any) -> Any:
    x, = args
    shape, at = _shape(x), attrs["dim"] % len(_shape(x))
    kept = tuple([1 if i == at else n for i, n in enumerate(shape)])
    places = tuple([i for i in range(len(shape)) if i != at])

    def over(name: str, y: Any, **params: Any) -> Any:
        t = r.lax(name, [y], tuple([shape[i] for i in places]), out.dtype, axes=(at,),
                  out_sharding=None)
        if name == "reduce_max":
            t = r.lax("max", [-np.inf, t], _shape(t), out.dtype)
        return r.lax("broadcast_in_dim", [t], kept, out.dtype, shape=kept, sharding=None,
                     broadcast_dimensions=places)
    top = r.lax("stop_gradient", [over("reduce_max", x)], kept, out.dtype)
    raised = r.lax("exp", [r.lax("sub", [x, top], shape, out.dtype)], shape, out.dtype,
                   accuracy=None)
    return r.lax("div", [raised, over("reduce_sum", raised)], shape, out.dtype)
