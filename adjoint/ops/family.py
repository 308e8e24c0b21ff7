"""The pointwise family: an op from one scalar expression, everything else derived.

The expression is differentiated symbolically where no slope is given; each vjp is a pointwise
op again (`ct * slope`, one pass), built when first asked for, so that order n is free. Of the two
forms of a slope (reading the operands, or the saved output) the one that keeps fewer values is
taken, then the cheaper one.
"""
from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, aval_of
from adjoint.base.dtypes import (
    BOOL,
    F32,
    F64,
    DType,
    default_dtype,
    fitting,
    is_inexact,
    is_of,
    lacking,
    result_type,
)
from adjoint.base.errors import DTypeError, ShapeError
from adjoint.base.provenance import is_own_code
from adjoint.base.tier import pays
from adjoint.core import bind as general
from adjoint.core import inplace as writes
from adjoint.core.bind import aval_of_operand, bind, function_of, told
from adjoint.core.callers import SCALARS32, SCALARS64, WHOLE, caller, known_number
from adjoint.core.inplace import zeros_of
from adjoint.core.modes import GRAD, INFERENCE, STATE, TOLD, WATCH
from adjoint.core.op import OPS, Op, OpFunction, Plan, register
from adjoint.core.tensor import (
    INFERENCE_CELL,
    AccumulateGrad,
    Cell,
    Kept,
    OpNode,
    OutRef,
    PairNode,
    Parameter,
    Port,
    Size,
    Tensor,
    counter,
    edge_of,
    wrap,
)
from adjoint.core.versions import make_view
from adjoint.kernels import expr as ex
from adjoint.kernels.expr import Expr
from adjoint.ops import public as registry

NUMBER = (bool, int, float, complex)
DERIVED: dict[str, Any] = {}         # what else is to be done to a derived record of that name
GENERATED = os.environ.get("ADJOINT_JIT", "1") != "0"


def broadcast_shapes(name: str, *avals: Aval) -> tuple[int, ...]:
    """The common shape of operands, or a ShapeError that names the axis that does not fit."""
    try:
        return np.broadcast_shapes(*(a.shape for a in avals))
    except ValueError:
        pass
    width = max(a.ndim for a in avals)
    for axis in range(1, width + 1):
        sizes = {a.shape[-axis]: None for a in avals if a.ndim >= axis and a.shape[-axis] != 1}
        if len(sizes) > 1:
            break
    shapes = " and ".join(str(list(a.shape)) for a in avals)
    one, other = list(sizes)[:2]
    raise ShapeError(
        f"The size of tensor a ({one}) must match the size of tensor b ({other}) at non-singleton "
        f"dimension {width - axis}\n"
        f"  {name}: operands of shape {shapes} do not broadcast: axis -{axis} has sizes "
        f"{sorted(sizes)} (each must be equal or 1); reshape or unsqueeze an operand so that the "
        "trailing axes line up")


def promote(arrays: Sequence[Any], floating: bool = False) -> Sequence[Any]:
    """Operands cast to one dtype by PyTorch's rule; Python numbers become 0-d arrays."""
    first = getattr(arrays[0], "dtype", None)
    if len(arrays) == 2 and type(arrays[1]) is float and type(arrays[0]) is np.ndarray and (
            first is F32 or first is F64):                       # most calls with a number
        return [arrays[0], (SCALARS32 if first is F32 else SCALARS64)[arrays[1]]]
    if first is not None and (not floating or first.kind in "fcV"):
        for a in arrays:                    # (a generator would cost more than most ops)
            dtype = getattr(a, "dtype", None)
            if dtype is not first and (dtype is None or dtype != first):
                break
        else:
            return arrays
    kind: Any = None
    for a in arrays:                        # arrays of one dtype, and numbers
        if type(a) is np.ndarray and (kind is None or a.dtype is kind):
            kind = a.dtype
        elif type(a) is not float and (type(a) is not int or not -2**53 < a < 2**53):
            break
    else:
        if kind is F32 or kind is F64:
            known = SCALARS32 if kind is F32 else SCALARS64
            return [a if type(a) is np.ndarray else known[a] for a in arrays]
    dtype = result_type([a for a in arrays if a is not None])
    if floating and not is_inexact(dtype):
        dtype = default_dtype()
    return [a if a is None else _cast(a, dtype) for a in arrays]


def _cast(a: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(a, NUMBER):
        return known_number(a, dtype)
    if a.dtype == dtype:
        return a
    if a.dtype.kind in "OSUMm":
        raise DTypeError(f"an array of {a.dtype} is no operand: it holds no numbers")
    return Aval(a.shape, dtype) if isinstance(a, Aval) and not hasattr(a, "base") else (
        type(a)(a.shape, dtype) if isinstance(a, Aval) else a.astype(dtype))


def through_float32(impl: Callable[..., Any]) -> Callable[..., Any]:
    """Half-width floats are stored in 16 bits and computed in float32, rounded once."""
    def run(*arrays: Any, **attrs: Any) -> Any:
        dtype = next((a.dtype for a in arrays if isinstance(a, np.ndarray)
                      and a.dtype.itemsize == 2 and a.dtype.kind in "fV"), None)
        if dtype is None:
            return impl(*arrays, **attrs)
        wide = [a.astype(F32) if isinstance(a, np.ndarray) and a.dtype == dtype else a
                for a in arrays]
        out = impl(*wide, **attrs)
        return out if out.dtype == BOOL else np.asarray(out).astype(dtype)
    return run


def batch_broadcast(op: Op, args: Sequence[Any], batched: Sequence[bool],
                    attrs: Mapping[str, Any]) -> Any:
    """Batch rule of broadcasting ops: line the batch axis up in front of the widest operand."""
    ranks = [len(a.array.shape) - b if isinstance(a, Tensor) else
             len(a.shape) - b if hasattr(a, "shape") else 0
             for a, b in zip(args, batched, strict=True)]
    width = max(ranks)
    lifted = list(args)
    for i, r in enumerate(ranks):
        if r < width and batched[i]:
            lifted[i] = _widened(args[i], width - r)
    return bind(op, lifted, attrs) if op.call is None else op.call(*lifted, **attrs)


def _widened(x: Any, by: int) -> Any:
    """Axes of size 1 after the first."""
    from adjoint.ops.shape import reshape_op
    s = tuple(x.shape)
    return reshape_op(x, shape=(s[0], *(1,) * by, *s[1:]))


def is_complex(x: Any) -> bool:
    """True for complex tensors (of any level), arrays and numbers."""
    if type(x) is Tensor:                # (asked in every rule: without the properties)
        return bool(x.array.dtype.kind == "c")
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        return isinstance(x, complex)
    return dtype.is_complex if isinstance(dtype, DType) else dtype.kind == "c"


class _Derived:
    """The fused op `g * slope` and the bare slope, built when first called."""

    def __init__(self, name: str, names: tuple[str, ...], attrs: tuple[str, ...],
                 slope: Expr) -> None:
        self.name, self.names, self.attrs, self.slope = name, names, attrs, slope
        self._fused: Any = None
        self._bare: Any = None

    def fused(self, ct: Any, *vals: Any, **attrs: Any) -> Any:
        """ct * slope(vals), as one op."""
        if self._fused is None:
            g = ex.fresh("ct", {*self.names, *self.attrs})
            self._fused = derived_op(self.name, (g, *self.names), self.attrs,
                                     ex.gated(ex.var(g), self.slope))
            DERIVED.get(self.name, id)(self._fused.op)
        return self._fused(ct, *vals, **attrs)

    def conjugated(self, ct: Any, *vals: Any, **attrs: Any) -> Any:
        """ct * conj(slope(vals)): the cotangent convention of PyTorch for complex operands."""
        from adjoint.ops.pointwise import conj_op, mul
        if self._bare is None:
            self._bare = (derived_op(self.name + "_slope", self.names, self.attrs, self.slope)
                          if self.names else
                          ex.compile_numpy(self.name, (), [self.slope], keyword=self.attrs))
        slope = self._bare(*vals, **attrs)
        slope = slope.conjugate() if isinstance(slope, NUMBER) else conj_op(slope)
        return mul(ct, slope)


def derived_op(name: str, operands: tuple[str, ...], attrs: tuple[str, ...], e: Expr,
               node: str = "MulBackward0") -> Any:
    """A pointwise op made by the mechanism, outside of the public registry. An operand that was
    the output of the op it comes from is renamed: `out` is this op's own output."""
    if "out" in operands:
        y = ex.fresh("y", {*operands, *attrs})
        e = ex.substitute(e, {ex.var("out"): ex.var(y)})
        operands = tuple(y if o == "out" else o for o in operands)
    return _build(name, operands, attrs, e, {}, {"node": node}, kind="promote", public=False)


def _rules(name: str, e: Expr, operands: tuple[str, ...], attrs: tuple[str, ...],
           given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Expr]]:
    """(vjp rules, jvp rules, slopes) of every operand that has a derivative."""
    vjp: dict[str, Any] = {}
    jvp: dict[str, Any] = {}
    slopes: dict[str, Expr] = {}
    for o in operands:
        if o in given and given[o] is None:
            continue
        try:
            slope = ex.slope_of(e, o, given)
        except TypeError:
            continue
        slopes[o] = slope
        used = ex.variables(slope)
        kept = tuple(v for v in used if v in (*operands, "out"))
        taken = tuple(v for v in used if v in attrs)
        derived = _Derived(f"{name}_backward_{o}", kept, taken, slope)
        ct, t = ex.fresh("ct", {*operands, *attrs}), ex.fresh("t", {*operands, *attrs})
        keywords = ["*", *taken] if taken else []
        passed = ", ".join([*kept, *(f"{a}={a}" for a in taken)])
        test = " or ".join(f"is_complex({v})" for v in (ct, *kept))
        scope = {"d": derived, "is_complex": is_complex}
        if slope.fn == "const" and slope.value == 0:
            vjp[o] = jvp[o] = _rule("lambda ct: zeros(ct)", {"zeros": _zeros_like})
            continue
        if slope.fn == "const" and slope.value in (1, -1):
            scope["neg"] = lambda ct: _neg()(ct)
            body = "ct" if slope.value == 1 else "neg(ct)"
            vjp[o] = jvp[o] = _rule(f"lambda ct: {body}", scope)
            continue
        vjp[o] = _rule(f"lambda {', '.join([ct, *kept, *keywords])}: d.conjugated({ct}, {passed}) "
                      f"if {test} else d.fused({ct}, {passed})", scope)
        jvp[o] = _rule(f"lambda {', '.join([t, *kept, *keywords])}: d.fused({t}, {passed})", scope)
    return vjp, jvp, slopes


def _rule(text: str, scope: dict[str, Any]) -> Any:
    """A rule from its text; its frames count as this package's own."""
    return eval(compile(text, "<adjoint rule>", "eval"), scope)


def _zeros_like(ct: Any) -> Any:
    """Zeros in the shape of a cotangent, without memory to speak of."""
    dtype = ct.dtype.dtype if isinstance(ct.dtype, DType) else ct.dtype
    return zeros_of(Aval(tuple(ct.shape), dtype))


def _neg() -> Any:
    from adjoint.ops.pointwise import neg
    return neg


def _fast_plan(op: Op, needs: int, slopes: Mapping[str, Expr], dtype: np.dtype[Any]) -> Any:
    """A plan whose whole backward is one generated function of raw arrays of one dtype."""
    plan = Plan(op, needs)
    if not plan.wanted:
        return None
    plan.dtype = dtype               # the template's nodes carry none of their own
    picks = {"in0": "a", "in1": "b", "out0": "ref"}
    parts = [picks[f"{kind}{i}"] for kind, i in plan.sources] if len(op.operands) <= 2 else []
    plan.pick = eval(f"lambda a, b, ref: ({', '.join(parts)},)") if parts else None
    flat = any(s.fn == "const" and s.value == 0 for o, s in slopes.items()
               if op.operands.index(o) in plan.wanted)
    if op.attrs or flat:
        return plan
    g = ex.fresh("ct", set(plan.names))
    ct = ex.var(g)
    cts = [ex.gated(ct, slopes[o]) if i in plan.wanted else None for i, o in enumerate(op.operands)]
    plan.fast, plan.large, plan.limit, plan.over = raw_functions(
        f"{op.name}_backward", [g, *plan.names], cts, dtype, single=False)
    if GENERATED and len(cts) <= 2:
        plan.into = _kernels().Adding(f"{op.name}_backward", [g, *plan.names], cts)
    if GENERATED and len(cts) == 1:
        plan.down = _kernels().down(f"{op.name}_backward", [g, *plan.names], cts[0])
    return plan


@cache
def generated(name: str) -> Any:
    """The generated kernel of that name, or None; the compiler is imported at its first use."""
    return _kernels().lookup(name) if GENERATED else None


@cache
def _kernels() -> Any:
    from adjoint.kernels import choose  # the compiler's modules load when first needed
    return choose


def raw_functions(name: str, params: Sequence[str], exprs: Sequence[Any],
                  dtype: np.dtype[Any] | None, single: bool = True, keyword: Sequence[str] = (),
                  through: Any = None) -> tuple[Any, Any, int, Any]:
    """(function for small arrays, function for large ones, size from which the second pays, the
    second with its only result in the memory of the first operand, or None). `through` wraps the
    NumPy form that large arrays go to where there is no generated code for them."""
    if not GENERATED:
        small = ex.compile_numpy(name, params, exprs, keyword=keyword, dtype=dtype, single=single)
        return small, small, 1 << 62, None
    return _kernels().parts(name, params, exprs, keyword=keyword, dtype=dtype, single=single,
                            through=through)


def by_rows(body: Callable[..., Any], operands: str, results: str, dtype: np.dtype[Any],
            otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """`body` of the rows of small arrays as one program (`kernels.rowwise`), or `otherwise`."""
    if not GENERATED:
        return otherwise
    made: Callable[..., Any] = _kernels().rows(body, operands, results, dtype, otherwise)
    return made


def _infer(name: str, kind: str, no_booleans: str = "") -> Callable[..., Aval]:
    def infer(*avals: Any, **_: Any) -> Aval:
        real = [aval_of(a) for a in avals if a is not None]
        if no_booleans and all(a.dtype == BOOL for a in real):
            raise DTypeError(f"{no_booleans} ({name})")
        shape = broadcast_shapes(name, *real)
        if kind == "bool":
            return Aval(shape, BOOL)
        return Aval(shape, real[0].dtype)
    return infer


def _typed(values: dict[str, Any], arrays: Sequence[Any]) -> dict[str, Any]:
    """Number attributes in the operands' dtype: a float64 product of two would raise the result."""
    dtype = getattr(arrays[0], "dtype", None)
    if values and dtype is not None and dtype.kind in "iu":
        return {k: fitting(v, dtype) if type(v) is int else v for k, v in values.items()}
    if not values or dtype is None or dtype.kind not in "fc" or dtype.itemsize < 4:
        return values
    known = SCALARS32 if dtype is F32 else SCALARS64 if dtype is F64 else None
    return {k: (np.array(v, dtype) if known is None else known[v]) if type(v) in (int, float, bool)
            else v for k, v in values.items()}


class PointwiseOp(Op):
    """A record made from a scalar expression. The expression is traced and differentiated, and
    its NumPy form generated, when they are first needed: importing the package costs little."""

    unrolled = True
    kernels = staticmethod(_kernels)
    source: tuple[Any, ...]     # (expression or lambda, given slopes, dtype kind)
    refuses: Mapping[str, str] = {}             # kinds of dtypes -> words; see `pointwise`
    many: Callable[..., Any] | None = None      # NumPy's form of large arrays, if another is faster

    @cached_property
    def expression(self) -> Expr:
        """The scalar expression."""
        return self.source[0] if isinstance(self.source[0], Expr) else ex.trace(self.source[0])

    @cached_property
    def rules(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Expr]]:
        """(vjp, jvp, slopes)."""
        if self.source[2] == "bool":
            return {}, {}, {}
        return _rules(self.name, self.expression, self.operands, self.attrs, self.source[1])

    def stored(self, out: Any, arrays: Any, attrs: Mapping[str, Any]) -> bool:
        arrays = self.prepare(arrays)       # type: ignore[misc]  # pointwise ops have it
        return GENERATED and _kernels().store(self, out, arrays, _typed(dict(attrs), arrays))

    vjp = property(lambda self: self.rules[0], lambda self, _: None)
    jvp = property(lambda self: self.rules[1], lambda self, _: None)
    scalar = property(lambda self: self.expression, lambda self, _: None)


def _build(name: str, operands: tuple[str, ...], attrs: tuple[str, ...], e: Any,
           given: Mapping[str, Any], fields: Mapping[str, Any], kind: str,
           public: bool, no_booleans: str = "", refuses: Mapping[str, str] | None = None) -> Any:
    raw: list[Any] = []

    def impl(*arrays: Any, **values: Any) -> Any:
        if op.own is not None:          # the same code as the callers run, to the same bits
            dtype = getattr(arrays[0], "dtype", None)
            if (dtype is F32 or dtype is F64) and all(
                    type(a) is np.ndarray and a.dtype is dtype for a in arrays):
                return op.own.run(dtype, *arrays)
        if not raw:
            raw.append(_general(op, operands, attrs))
        return raw[0](*arrays, **values)
    impl.parameters = (operands, attrs, False)  # type: ignore[attr-defined]  # read by Op
    op = PointwiseOp(
        name, impl, _infer(name, kind, no_booleans), batch=batch_broadcast,
        prepare=preparing(kind, refuses), elementwise=True, cost=lambda *avals, **_:
        ex.flops(op.expression) * math.prod(broadcast_shapes(name, *avals)), **fields)
    op.source, op.refuses = (e, given, kind), refuses or {}
    if attrs or len(operands) > 2:
        function: Any = function_of(op)
    else:
        op.own, function = caller(op, lambda: _callables(op, operands))
    if public:
        return register(op, function)
    op.call, function.op = function, op
    return function


def _general(op: PointwiseOp, operands: tuple[str, ...], attrs: tuple[str, ...]
             ) -> Callable[..., Any]:
    """Raw arrays of any dtypes, any number of operands, attributes: for ops without a caller."""
    small, large, limit, _ = raw_functions(op.name, operands, [op.expression], None, keyword=attrs,
                                           through=through_float32)
    half = through_float32(small)
    many = half if op.many is None else through_float32(op.many)

    def general(*arrays: Any, **values: Any) -> Any:
        return half(*arrays, **_typed(values, arrays))
    few: Any = None if op.own is None else general      # the others have callers
    calls = 0

    def run(*arrays: Any, **values: Any) -> Any:
        nonlocal few, calls
        size = max([a.size for a in arrays if isinstance(a, np.ndarray)], default=0)
        if size >= limit or size >= HALF_LIMIT:
            found = {getattr(a, "dtype", None) for a in arrays} - {BOOL}
            if len(found) == 1 and _generates(next(iter(found)), size >= limit):
                return large(*arrays, **_typed(values, arrays))
        if size >= limit:
            return many(*arrays, **_typed(values, arrays))
        if few is None:
            calls += 1
            if calls < SEVERAL and not op.often:
                return general(*arrays, **values)
            few = _few(op, operands, attrs, general)
            op.settle(few, limit)
        return few(*arrays, **values)
    return run


def _generates(dtype: Any, worth: bool) -> bool:
    """Whether arrays of one dtype go to generated code: floats, from the size on from which that
    is worth it; floats of 16 bits, which NumPy converts one by one, from a few on."""
    if dtype is F32 or dtype is F64:
        return worth
    return GENERATED and dtype is not None and dtype.itemsize == 2 and dtype.kind in "fV"


HALF_LIMIT = 1024   # elements of 16-bit floats from which a kernel pays
SEVERAL = 50        # calls of an op, from which making another function of it pays


def _few(op: PointwiseOp, operands: tuple[str, ...], attrs: tuple[str, ...],
         general: Callable[..., Any]) -> Callable[..., Any]:
    """The op of small arrays: of one float dtype by the loops of ufuncs, where they are all it is,
    with the attributes as 0-d operands; else by `general`."""
    params = (*operands, *attrs)
    loops = {d: raw_functions(op.name, params, [op.expression], d)[0] for d in (F32, F64)}
    if any(type(f) is not BuiltinFunctionType for f in loops.values()):
        return general
    told = f"*, {', '.join(attrs)}" if attrs else ""
    plain = " and ".join([f"type({a}) in (float, int)" for a in attrs]) or "True"
    x, passed = operands[0], ", ".join([*operands, *[f"{a}={a}" for a in attrs]])
    lines = [f"def few({', '.join(filter(None, (*operands, told)))}):",
             f"    kind_ = getattr({x}, 'dtype', None) if {plain} else None"]
    for bits in (32, 64):
        given = ", ".join([*operands, *[f"scalars{bits}[{a}]" for a in attrs]])
        lines += [f"    if kind_ is F{bits}:", f"        return loops{bits}({given})"]
    scope = {"F32": F32, "F64": F64, "scalars32": SCALARS32, "scalars64": SCALARS64,
             "loops32": loops[F32], "loops64": loops[F64], "general": general}
    text = "\n".join([*lines, f"    return general({passed})"])
    exec(compile(text, "<adjoint rule>", "exec"), scope)
    made: Callable[..., Any] = scope["few"]
    return made


def preparing(kind: str, refuses: Mapping[str, str] | None) -> Callable[..., Any]:
    floating = kind == "float"
    if refuses is not None:
        def checked(arrays: Sequence[Any]) -> Sequence[Any]:
            first = getattr(arrays[0], "dtype", None)
            if (first is F32 or first is F64) and all([            # none of them is refused
                    type(a) is float or getattr(a, "dtype", None) is first for a in arrays]):
                return promote(arrays, floating)
            given = result_type([a for a in arrays if a is not None])
            for kinds, words in refuses.items():
                if is_of(given, kinds):
                    raise lacking(words, given)
            return promote(arrays, floating)
        return checked
    return partial(promote, floating=True) if floating else promote


def _callables(op: PointwiseOp, operands: tuple[str, ...]) -> tuple[Any, ...]:
    """What a caller's template needs: raw functions and plans, for float32 and float64."""
    e, slopes = op.expression, op.rules[2]
    raws = [raw_functions(op.name, operands, [e], d)[:3] for d in (F32, F64)]
    if len(operands) == 1:
        plans: list[Any] = [_fast_plan(op, 1, slopes, d) or op.plan(0) for d in (F32, F64)]
    else:
        plans = [[None, *(_fast_plan(op, n, slopes, d) for n in (1, 2, 3))] for d in (F32, F64)]
    return (*raws, *plans, _machine if GENERATED else None)


def _world(node: Any, *held: str) -> tuple[dict[str, Any], dict[str, tuple[Any, str]]]:
    """What the machine code of ops handles: objects, and where slots are; of nodes like `node`."""
    tensor, ref = wrap(np.ndarray(0, buffer=b"")), OutRef()      # no memory that counts
    slots: dict[str, tuple[Any, str]] = {n: (tensor, n) for n in ("array", "_rg", "_edge", "_cell")}
    slots |= {n: (node, n) for n in ("plan", "shape", "seq", "code", "lasti", *held)}
    slots |= {"ref." + n: (ref, n) for n in ("array", "cell", "index", "version")}
    slots |= {"kept." + n: (Kept(tensor, 0, None), n) for n in ("tensor", "version", "mark")}
    slots |= {"plan." + n: (Plan(OPS["add"], 1), n) for n in ("wanted", "sources")}
    slots["leaf.shape"] = (AccumulateGrad(tensor), "shape")
    return {"tensor": Tensor, "parameter": Parameter, "state": STATE, "counter": counter,
            "edge_of": edge_of, "getframe": sys._getframe, "is_inside": is_own_code, "cell": Cell,
            "ref": OutRef, "accumulate": AccumulateGrad, "port": Port, "kept": Kept,
            "inference": INFERENCE_CELL, "inferring": INFERENCE, "aval_of": aval_of_operand,
            "make_view": make_view, "plan_type": Plan, "node": PairNode, "tell": told,
            "told_on": GRAD | WATCH | TOLD, "told_off": WATCH | TOLD}, slots


def _pair() -> Any:
    return _world(OPS["add"].node_type(), "e0", "e1", "s0", "s1")


def _calls() -> Any:
    """The module that makes machine code of ops."""
    from adjoint.kernels import calls  # it loads the compiler
    return calls


def _wide() -> Any:
    objects, slots = _world(OpNode(), "edges", "saved", "dtype", "attrs")
    port = Port(OpNode(), 0, (), None)
    slots |= {"port." + n: (port, n) for n in Port.__slots__}
    slots |= {"aval." + n: (Aval((), F32), n) for n in Aval.__slots__}
    return {**objects, "size": Size, "dtype_type": DType, "aval_type": Aval,
            "objects": np.dtype("O"), "float32": F32, "float64": F64}, slots


def _first_bind(*_: Any) -> None:
    """In the place of the machine code of `bind` until it pays."""
    if pays():
        calls = _calls()
        general.machine = calls.binder(_wide)
        if general.machine is not None:
            registry.replayer = lambda table: calls.replayer(_wide, table)


def _first_touch(*args: Any) -> Any:
    """In the place of what counts writes until it pays."""
    if not pays():
        return None
    found = _calls().toucher(_pair)
    writes.touch = (lambda *_: None) if found is None else found
    return writes.touch(*args)


if GENERATED:
    general.machine = _first_bind
    writes.touch = _first_touch


def _machine(own: Any, written: bool = False) -> Any:
    """What runs an op on small plain operands, or its in-place form, in machine code, or None."""
    calls = _calls()
    if written:
        return calls.writer(_pair, own.machine)
    listed = [plans if type(plans) is list else [None, plans if plans.wanted else None]
              for plans in (own.plans32, own.plans64)]
    dtypes = [(dtype, raw, ends[1], numbers, [(p, 0 if p is None else p.layout) for p in plans])
              for dtype, raw, ends, numbers, plans in (
                  (F32, own.raw32, own.ends32, SCALARS32, listed[0]),
                  (F64, own.raw64, own.ends64, SCALARS64, listed[1]))]
    whole = None if own.op.source[2] == "float" else _kernels().whole(own.op)
    return calls.caller(_pair, calls.Record(own.node_type, dtypes, whole, WHOLE))


def pointwise(name: str, f: Callable[..., Any], *, slope: Mapping[str, Any] | None = None,
              kind: str = "promote", no_booleans: str = "",
              refuses: Mapping[str, str] | None = None, **fields: Any) -> OpFunction:
    """Declare a pointwise op from a scalar expression; returns the function that runs it.

    kind    "promote": result in the promoted dtype; "float": integers become the default float;
            "bool": a comparison.
    slope   operand -> slope expression of operands and ``out``; None: not differentiable in it.
    no_booleans  the words of the refusal, where NumPy does not compute it for booleans.
    refuses      kinds of dtypes (`base.dtypes.is_of`) -> PyTorch's words, or its kernel's name.

    >>> import adjoint as ad
    >>> ad.ops.pointwise.mul(ad.tensor([2.0]), ad.tensor([3.0]))
    tensor([6.])
    """
    code, n = f.__code__, f.__code__.co_argcount
    operands, attrs = code.co_varnames[:n], code.co_varnames[n:n + code.co_kwonlyargcount]
    return _build(name, operands, attrs, f, slope or {}, fields, kind, True, no_booleans, refuses)
