"""`fuse`: a function of elementwise operations as one operation.

The function runs once on symbols, for each combination of shapes and dtypes; its scalar expression
becomes a record of the pointwise family: one pass over memory forward, one backward, and only what
the derivatives read is kept. Derivatives of any order, vmap and jvp follow from the expression.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import Aval
from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor
from adjoint.core.trace import LevelTensor, Trace, make
from adjoint.kernels import expr as ex
from adjoint.kernels.expr import Expr
from adjoint.ops.api_common import is_recorded, kernel
from adjoint.ops.family import NUMBER, PointwiseOp, derived_op, raw_functions
from adjoint.ops.pointwise import mul

_SAME = ("clone", "to_dtype", "alias")     # the value itself, where the dtype stays
# elementwise records that are no expressions because they do complex numbers or views as well
_SCALAR: dict[str, Callable[..., Expr]] = {"where": ex.where_, "abs": ex.abs_}


class FuseTensor(LevelTensor):
    """A symbol: `value` is its expression, `tangent` its aval."""

    __slots__ = ()


class Fuse(Trace):
    """One run of a function on symbols."""

    name = "fuse"

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype."""
        return t.tangent.shape, t.tangent.dtype

    def symbol(self, e: Expr, aval: Aval) -> Any:
        """A tensor of this level."""
        return make(FuseTensor, self, value=e, tangent=aval)

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The op's expression over those of its operands."""
        avals = [a.tangent if isinstance(a, FuseTensor) else Aval((), np.dtype(np.float32))
                 for a in args]
        symbols = [a.tangent for a in args if isinstance(a, FuseTensor)]
        if op.name in _SAME and attrs.get("dtype", symbols[0].dtype) == symbols[0].dtype:
            return args[0]
        values = [a.value if isinstance(a, FuseTensor) else _constant(op, a) for a in args]
        floats = [s.dtype for s in symbols if s.dtype.kind != "b"] or [symbols[0].dtype]
        if isinstance(op, PointwiseOp):
            bindings = {ex.var(n): v for n, v in zip(op.operands, values, strict=True)}
            bindings |= {ex.var(n): _constant(op, attrs[n]) for n in op.attrs}
            made = ex.substitute(op.expression, bindings)
            dtype = op.infer(*[Aval((), floats[0])] * len(args)).dtype
        elif op.name in _SCALAR:
            made, dtype = _SCALAR[op.name](*values), floats[0]
        else:
            raise ArgumentError(
                f"fuse: {op.name} at {provenance.here(sys._getframe(1))} is not elementwise; fuse "
                "takes functions of elementwise operations only: compute it outside")
        return self.symbol(made, Aval(np.broadcast_shapes(*(a.shape for a in avals)), dtype))

    def no_value(self, t: Any, what: str) -> str:
        return (f"fuse: {what} of a symbol was asked for at {provenance.here(sys._getframe(2))}; "
                "the function runs once, on symbols: write where(condition, a, b) in place of a "
                "branch on values")

    def strip(self, t: Any) -> Any:
        return self.symbol(t.value, t.tangent)

    def detach(self, t: Any) -> Any:
        raise ArgumentError("fuse: detach() inside of a fused function; pass the detached tensor "
                            "as an argument")


def _constant(op: Op, a: Any) -> Expr:
    """A number as an expression."""
    if isinstance(a, np.ndarray) and a.ndim == 0:
        a = a.item()
    if isinstance(a, (bool, int, float)):
        return ex.as_expr(a)
    what = f"a tensor of shape {list(a.shape)}" if hasattr(a, "shape") else repr(a)
    raise ArgumentError(f"fuse: {op.name} uses {what}, which is no argument of the function; pass "
                        "it as an argument")


@functools.lru_cache(maxsize=1024)
def _record(e: Expr, names: tuple[str, ...]) -> Any:
    """The op of an expression. With more than two operands its backward is one pass as well."""
    function = derived_op("fused", names, (), e, "FusedBackward0")
    record = function.op
    if len(names) <= 2:
        return function
    single, jvp, slopes = record.rules
    used = sorted({v for s in slopes.values() for v in ex.variables(s)})
    listed = ", ".join(used)

    @functools.cache
    def pull(wanted: tuple[bool, ...]) -> tuple[Any, Any, int]:
        exprs = [ex.gated(ex.var("ct"), slopes[n]) if w and n in slopes else None
                 for n, w in zip(names, wanted, strict=True)]
        return raw_functions("fused_backward", ["ct", *used], exprs, None, single=False)[:3]

    def impl(*arrays: Any, wanted: tuple[bool, ...]) -> Any:
        small, large, limit = pull(wanted)
        found = (large if arrays[0].size >= limit else small)(*arrays)
        return tuple(arrays[0] if f is None else f for f in found)

    impl.parameters = (("ct", *used), ("wanted",), False)  # type: ignore[attr-defined]
    # (read by Op)
    backward = kernel("fused_backward", impl, lambda ct, *_, **__: (ct,) * len(names), outs=names,
                      cost=lambda ct, *_, **__: ex.flops(*slopes.values()) * ct.size)

    def rule(ct: Any, values: tuple[Any, ...], wanted: Sequence[bool]) -> Any:
        if is_recorded(ct, *values):
            kept = dict(zip(used, values, strict=True))
            found = [single[n](ct, *[kept[v] for v in ex.variables(slopes[n])])
                     if w and n in single else None for n, w in zip(names, wanted, strict=True)]
            return tuple(found)
        made = backward(ct, *values, wanted=tuple(wanted))
        return tuple(m if w and n in slopes else None
                     for n, m, w in zip(names, made, wanted, strict=True))
    joint = eval(f"lambda ct, {listed}{', ' if used else ''}wanted: rule(ct, "
                 f"({listed}{',' if used else ''}), wanted)", {"rule": rule})
    record.rules = ({names: joint}, jvp, slopes)
    return function


class _Fused:
    """A function and what became of it, by the avals of its tensors and its other arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.made: dict[Any, Any] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in args if isinstance(a, (Tensor, np.ndarray))]
        key = (*[(a.shape, a.dtype) if isinstance(a, (Tensor, np.ndarray)) else (type(a), a)
                 for a in args], *sorted(kwargs.items()))
        try:
            made = self.made.get(key)
        except TypeError:
            raise ArgumentError(f"fuse({self._name}): arguments that are no tensors have to be "
                                "hashable: numbers, strings, tuples") from None
        if made is None:
            if len(self.made) > 512:
                self.made.clear()
            made = self.made[key] = self._trace(args, kwargs, len(tensors))
        many, parts = made
        outs = [part(tensors) for part in parts]
        return tuple(outs) if many else outs[0]

    @property
    def _name(self) -> str:
        return getattr(self.function, "__qualname__", "function")

    def _trace(self, args: Sequence[Any], kwargs: Mapping[str, Any], count: int) -> Any:
        dtypes = {_dtype(a) for a in args if isinstance(a, (Tensor, np.ndarray))}
        if not count or len(dtypes - {np.dtype(bool)}) != 1:
            names = ", ".join(sorted(str(d) for d in dtypes)) or "none"
            raise DTypeError(f"fuse({self._name}): the tensors have to share one dtype, got "
                             f"{names}; cast them before")
        with Fuse() as trace:
            given, n = [], 0
            for a in args:
                if isinstance(a, (Tensor, np.ndarray)):
                    a = trace.symbol(ex.var(f"x{n}"), Aval(tuple(a.shape), _dtype(a)))
                    n += 1
                given.append(a)
            found = self.function(*given, **kwargs)
            many = isinstance(found, (tuple, list))
            return many, [self._part(f) for f in (found if many else [found])]

    def _part(self, found: Any) -> Callable[[Sequence[Any]], Any]:
        """How one result is computed from the tensors."""
        if isinstance(found, NUMBER) or not isinstance(found, FuseTensor):
            raise ArgumentError(f"fuse({self._name}): the result has to be computed from the "
                                f"tensors, got {type(found).__name__}")
        e = found.value
        used = sorted(ex.variables(e), key=lambda v: int(v[1:]))
        places = [int(v[1:]) for v in used]
        if e.fn == "var":
            return lambda tensors: mul(tensors[places[0]], 1.0)
        if found.tangent.dtype == np.dtype(bool):
            raise ArgumentError(f"fuse({self._name}): the result is a condition; use it in "
                                "where(condition, a, b)")
        op = _record(e, tuple(used))
        return lambda tensors: op(*[tensors[i] for i in places])


def _dtype(a: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = a.dtype.dtype if isinstance(a, Tensor) else a.dtype
    return found


def fuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of elementwise operations as one operation, forward and backward.

    Args:
        function: takes tensors by position (all of one dtype, or bool for conditions; shapes
            broadcast) and anything hashable beside them; returns a tensor or a tuple of tensors,
            computed by elementwise operations: arithmetic, `where`, comparisons, activations, the
            functions of `ad.*` that map numbers to numbers. It runs once per combination of
            shapes and dtypes, on symbols: what it reads besides its arguments is read then.

    Returns:
        A function with the same signature. Several results are computed by one pass each.

    Raises:
        ArgumentError: at the first call, where an operation is not elementwise, a tensor is not
            passed as an argument, or a value is asked for.
        DTypeError: where tensors have different dtypes.

    >>> import adjoint as ad
    >>> f = ad.fuse(lambda x, y: (x * y + x).tanh() * 0.5)
    >>> x = ad.tensor([0.5, -1.0], requires_grad=True)
    >>> f(x, ad.tensor([1.0, 2.0]))
    tensor([ 0.3808, -0.4975], grad_fn=<FusedBackward0>)
    """
    return _Fused(function)
