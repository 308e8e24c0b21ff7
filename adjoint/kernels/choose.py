"""Which generated kernel computes an op: the one place that the ops ask.

`lookup(name)` returns a function of raw arrays, or None where there is no generated code at all
(no llvmlite, `ADJOINT_JIT=0`, unknown name). The function returns NotImplemented for operands
that it does not do; the caller then runs its NumPy implementation. Signatures (arrays positional,
the rest keyword-only; `->` what comes back):

| name | call |
| --- | --- |
| activations: relu leaky_relu elu gelu gelu_tanh silu mish sigmoid ... | `(x, **attrs) -> y` |
| the same with `_backward` | `(ct, x, **attrs) -> cx` |
| softmax, log_softmax, logsumexp | `(x, axis=-1) -> y` (logsumexp: `keepdims=`) |
| softmax_backward, log_softmax_backward | `(ct, out, axis=-1) -> cx` |
| cross_entropy | `(x, target, weight, **options) -> (loss, lse, share)` per row |
| cross_entropy_backward | `(scale, x, target, lse, weight, **options) -> cx` |
| layer_norm | `(x, weight, bias, eps=, columns=) -> (y, mean, rstd)` |
| layer_norm_backward | `(ct, x, mean, rstd, weight, **options) -> (cx, cweight, cbias)` |
| rms_norm; rms_norm_backward | `-> (y, rstd)`; `(ct, x, rstd, weight) -> (cx, cweight)` |
| group_norm | `(x, groups, weight, bias, eps=)` |
| group_norm_backward | `(ct, x, groups, mean, rstd, weight)` |
| batch_norm | `(x, weight, bias, mean=, var=, eps=) -> (y, mean, rstd, var)` |
| batch_norm_backward | `(ct, x, mean, rstd, weight, training=) -> (cx, cweight, cbias)` |
| dropout, alpha_dropout | `(x, bits, shape, scale, *shifts) -> y`; dropout's backward too |
| lstm_cell; its backward | `(gates, c) -> (h, c)`; `(ch, cc, gates, c) -> (cgates, cc)` |
| gru_cell; gru_cell_backward | `(from_x, from_h, h) -> (h,)`; `(ch, from_x, from_h, h) -> three` |
| lstm; lstm_backward | a sequence: see `cells_numpy` |
| product; linear | `(a, b)`; `(x, weight, bias) -> y`: matrices (`bias` may be None) |
| add_product | `(a, b, total) -> None`: `total += a b` |
| embedding; embedding_backward | `(weight, index)`; `(ct, index, count, padding_idx=)` |
| unindex; batch_norm_given | as embedding_backward; as batch_norm |
| sum sum_all mean mean_all amax amin prod | `(x, axis=None, keepdims=False) -> y` |
| nll_loss, multi_margin; `_backward` | see `picks` |
| glu; glu_backward | `(x, dim)`; `(ct, x, dim)` |
| row_products | `(a, b) -> (a·b, a·a, b·b)` along the last axis |
| linalg_vector_norm; count_nonzero | `(x, p, axis, keepdims)`; `(x, axis, keepdims)` |
| cumsum, cumprod; cummax, cummin | `(x, dim) -> y`; `-> (values, places)` |
| sgd, adam | lists of arrays, in place: see `multi` |
| plus | `(a, b, out=None) -> a + b` of large arrays |
| gather, index_select, index; write_along | `(x, index, dim) -> y`; in place, see `along` |
| contiguous, flip; constant_pad_zero | `(x) -> y`: a copy in C order; `(x, pads) -> y` |
| where, masked_fill | `(c, a, b, out=None) -> y` |
| to_dtype | `(x, dtype) -> y` between float32, 16-bit floats and bytes |
| taps | `(x, index, weight, dim) -> y`: weighted sums of few elements along an axis |
| ctc_paths; ctc_slopes | `(x, states, skip, lengths, steps)`; `(..., alpha, total)`: see `ctc` |
| clip_norm, scale_ | `(arrays) -> float`; `(arrays, factor) -> None` in place |
| allocator | `() -> whether arrays come from it`: it begins with whatever is asked for first |

`hybrid` is what the pointwise family builds its functions with: NumPy below a size, generated
code above.
"""
from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import same_places
from adjoint.kernels.expr import FUNCTIONS, Expr, compile_numpy, schedule, var

Kernel = Callable[..., Any]

# name -> module of this folder, function; modules are imported when first asked for, because
# importing the package must cost little
_DIRECT: dict[str, tuple[str, str]] = {
    **{n: ("softmax", n) for n in (
        "softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "logsumexp",
        "cross_entropy", "cross_entropy_backward")},
    **{n: ("norm", n) for n in (
        "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward", "group_norm")},
    **{n: ("channels", n) for n in (
        "group_norm_backward", "batch_norm", "batch_norm_backward")},
    **{n: ("cells", n) for n in (
        "lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward", "lstm",
        "lstm_backward")},
    **{n: ("gemm_calls", n) for n in ("product", "linear", "add_product")},
    **{n: ("embedding", n) for n in ("embedding", "embedding_backward")},
    "unindex": ("embedding", "embedding_backward"), "batch_norm_given": ("channels", "batch_norm"),
    **{n: ("multi", n) for n in ("sgd", "adam", "scale_")},
    **{n: ("along", "read") for n in ("gather", "index_select", "index")},
    **{n: ("moves", "contiguous") for n in ("contiguous", "flip")},
    **{n: ("scan", n) for n in ("cumsum", "cumprod", "cummax", "cummin")},
    **{n: ("picks", f) for n, f in (
        ("nll_loss", "nll"), ("nll_loss_backward", "nll_backward"), ("multi_margin", "margins"),
        ("multi_margin_backward", "margins_backward"))},
    "glu": ("activations", "glu"), "glu_backward": ("activations", "glu_backward"),
    "row_products": ("reduce", "row_products"), "linalg_vector_norm": ("reduce", "norm"),
    "count_nonzero": ("reduce", "count_nonzero"),
    **{n: ("moves", "pad") for n in ("constant_pad", "constant_pad_zero")},
    "write_along": ("along", "write"), "to_dtype": ("convert", "convert"),
    **{n: ("loops", "where") for n in ("where", "masked_fill")}, "plus": ("loops", "plus"),
    "nextafter": ("loops", "nextafter"), "taps": ("taps", "taps"),
    "ctc_paths": ("ctc", "paths"), "ctc_slopes": ("ctc", "slopes"),
    "clip_norm": ("multi", "norm"), "dropout": ("dropout", "dropout"),
    "alpha_dropout": ("dropout", "dropout"),
    "allocator": ("alloc", "install"),
}
_PLACES = ("pick", "add", "put", "within", "locate")
_REDUCTIONS = {"sum": "add", "sum_all": "add", "mean": "mean", "mean_all": "mean", "amax": "max",
               "amin": "min", "prod": "mul"}
_NOTHING = 1 << 62                       # a size that no array reaches
_DIRECT_LIMIT = 1024     # elements up to which ufunc loops cost less than the call of a kernel


def _module(name: str) -> Any:
    return importlib.import_module("adjoint.kernels." + name)


def rows(*given: Any) -> Callable[..., Any]:
    """`rowwise.function` of these arguments, or the last of them where nothing is generated."""
    made: Callable[..., Any] = (_module("rowwise").function(*given)
                                if _module("llvm").available() else given[-1])
    return made


@functools.cache
def lookup(name: str) -> Kernel | None:
    """The generated kernel of an op (see the table above), or None.

    >>> f = lookup("softmax")
    >>> f is None or f(np.zeros((1, 2), np.float32)).tolist() == [[0.5, 0.5]]
    True
    """
    if not _module("llvm").available():
        return None
    _module("alloc").install()
    if name in _PLACES:
        places: Kernel = _module("places").function(name)
        return places
    if name in _REDUCTIONS:
        return _reducer(name, _REDUCTIONS[name])
    if name in _DIRECT:
        module, function = _DIRECT[name]
        kernel: Kernel = getattr(_module(module), function)
        return kernel
    found: Kernel | None = _module("activations").kernel(name)
    return found


def names() -> tuple[str, ...]:
    """Every name that `lookup` knows."""
    return (*_DIRECT, *_PLACES, *_REDUCTIONS, *_module("activations").names())


def _reducer(name: str, how: str) -> Kernel | None:
    kernel = _module("reduce").reduction(name, ["x"], [var("x")], [how])
    if kernel is None:
        return None

    def run(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        got = kernel(x, axis=axis, keepdims=keepdims)
        return got if got is NotImplemented else got[0]
    return run


def hybrid(name: str, params: Sequence[str], exprs: Sequence[Expr | None], *,
           keyword: Sequence[str] = (), dtype: np.dtype[Any] | None = None,
           single: bool = True) -> Kernel:
    """A function of arrays like `expr.compile_numpy`'s that runs generated code on large ones.

    Takes what `compile_numpy` takes; an expression may be None where `single` is False, and None
    is returned in its place. The kernel is built when it is first needed. Operands decide by the
    size of the largest of the first two.

    >>> from adjoint.kernels.expr import trace
    >>> f = hybrid("twice", ["x"], [trace(lambda x: x + x)])
    >>> f(np.ones(2)).tolist(), float(f(np.ones(100000)).sum())
    ([2.0, 2.0], 200000.0)
    """
    present = [e for e in exprs if e is not None]
    small = compile_numpy(name, params, present, keyword=keyword, dtype=dtype, single=single)
    weight = _weight(present)
    call = small
    if weight:
        minimum = _minimum(weight)
        call = _Hybrid(name, tuple(params), tuple(present), tuple(keyword), single, small,
                       minimum).call
    return _with_gaps(call, exprs) if len(present) < len(exprs) else call


def _weight(exprs: Sequence[Expr]) -> int:
    """How many NumPy calls the expressions stand for; functions that NumPy lacks are many."""
    return sum(_calls(e.fn) for e in schedule(exprs) if e.fn not in ("var", "const"))


def _minimum(weight: int) -> int:
    """The size from which the call of a generated kernel costs less than those of NumPy (of an
    operand that is a view, a half or less); for functions that NumPy lacks that is any size."""
    return 1 if weight >= 16 else max(64, min(4096, 16384 // weight ** 2))


def _calls(name: str) -> int:
    if name in _SERIES:
        return 16
    return 3 if getattr(FUNCTIONS[name].numpy, "__module__", "").endswith(".special") else 1


_SERIES = frozenset("erf erfc erfinv lgamma digamma".split())       # tens of NumPy calls


class _Hybrid:
    """NumPy below `minimum` elements, a generated kernel above."""

    def __init__(self, name: str, params: tuple[str, ...], exprs: tuple[Expr, ...],
                 keyword: tuple[str, ...], single: bool, small: Kernel, minimum: int) -> None:
        self._what = (name, params, exprs)
        self._how = (keyword, single)
        self._kernel: Kernel | None = None
        self._tried = False
        self.table: Any = None                # what `launch` knows to do without any Python
        self.returns: Sequence[int] = ()
        self.small, self.minimum = small, minimum
        self.call = self._unary() if len(params) == 1 else self._general()

    def _build(self) -> Kernel | None:
        if not self._tried:
            keyword, single = self._how
            self._kernel = _module("loops").pointwise(
                *self._what, keyword=keyword, single=single, table=self.table,
                returns=self.returns)
            if self._kernel is None:
                self.minimum = _NOTHING
            else:
                _module("alloc").install()
            self._tried = True
        return self._kernel

    def large(self, *args: Any, **attrs: Any) -> Any:
        """The generated kernel, else NumPy."""
        kernel = self._build()
        out = NotImplemented if kernel is None else kernel(*args, **attrs)
        return self.small(*args, **attrs) if out is NotImplemented else out

    def over(self, ct: Any, *args: Any) -> Any:
        """The results with the only one that is asked for stored in the memory of `ct`."""
        kernel = self._build()
        if kernel is None or kernel(ct, *args, out=(ct,)) is NotImplemented:
            return self.table.call(ct, *args)
        return tuple([None if place < 0 else ct for place in self.returns])

    def _unary(self) -> Kernel:
        small, large = self.small, self.large

        def call(x: Any, **attrs: Any) -> Any:
            if type(x) is np.ndarray and x.size >= self.minimum:
                return large(x, **attrs)
            return small(x, **attrs)
        return call

    def _general(self) -> Kernel:
        small, large = self.small, self.large

        def call(*args: Any, **attrs: Any) -> Any:
            for x in args[:2]:
                if type(x) is np.ndarray and x.size >= self.minimum:
                    return large(*args, **attrs)
            return small(*args, **attrs)
        return call


class Adding:
    """A backward rule that adds its results to arrays, in the pass that computes them.

    `rule(ct, *residuals, out=sums, same=False)` takes per operand an array (or None), adds the
    operand's cotangent to it and returns None in its place; without an array it returns the
    cotangent. `same`: both results go to one place, and are added to each other (first one, then
    the other) before anything else is done with them; the second is returned as None.
    NotImplemented (and nothing changed) where there is no kernel for the operands.

    >>> from adjoint.kernels.expr import var
    >>> rule = Adding("twice", ["ct"], [var("ct") + var("ct"), None])
    >>> total = np.ones(3, np.float32)
    >>> if rule(np.ones(3, np.float32), out=[total, None]) is not NotImplemented:
    ...     assert total.tolist() == [3.0, 3.0, 3.0]
    """

    def __init__(self, name: str, params: Sequence[str], exprs: Sequence[Expr | None]) -> None:
        self.__name__ = name + "_added"
        self.params, self.exprs = list(params), exprs
        self._kernels: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *operands: Any, out: Sequence[Any], same: bool = False) -> Any:
        key = (same, *[s is not None for s in out])
        if key not in self._kernels:
            self._kernels[key] = self._make(same, key[1:])
        kernel, places = self._kernels[key]
        if kernel is None:
            return NotImplemented
        to = [out[i] for i in places]
        made = kernel(*operands, *[s for s in to if s is not None], out=to)
        if made is NotImplemented:
            return made
        found: list[Any] = [None] * len(out)
        for i, value, s in zip(places, made, to, strict=True):
            if s is None:
                found[i] = value
        return found

    def _make(self, same: bool, present: Sequence[bool]) -> tuple[Any, list[int]]:
        """(the kernel, which operands it has a result for)."""
        names = [f"sum{i}" for i in range(len(present))]
        added = []
        places = [i for i, e in enumerate(self.exprs) if e is not None]
        for i in places[:1] if same else places:
            e: Any = var(names[i]) + self.exprs[i] if present[i] else self.exprs[i]
            for other in places[1:] if same else ():
                e = e + self.exprs[other]
            added.append(e)
        places = places[:1] if same else places
        params = [*self.params, *[names[i] for i in places if present[i]]]
        kernel = _module("loops").pointwise(self.__name__, params, added, single=False)
        if kernel is not None:
            _module("alloc").install()
        return kernel, places


@functools.cache
def _storing(op: Any) -> tuple[Kernel | None, int]:
    """The kernel of a pointwise op, and the size from which it pays."""
    exprs = [op.expression]
    kernel = _module("loops").pointwise(op.name, op.operands, exprs, keyword=op.attrs)
    if kernel is not None:
        _module("alloc").install()
    return kernel, _minimum(_weight(exprs) or 1)


def store(op: Any, out: Any, arrays: Sequence[Any], attrs: dict[str, Any]) -> bool:
    """Compute a pointwise op of large arrays of one dtype into `out`, in one pass; False, and
    nothing is changed, where NumPy has to. `out` may be an operand, but not share memory with
    another one in any other way."""
    kernel, least = _storing(op)
    if kernel is None or out.size < least:
        return False
    for a in arrays:
        if type(a) is not np.ndarray or a.dtype is not out.dtype or (
                a is not out and a.ndim and np.may_share_memory(a, out)
                and not same_places(a, out)):
            return False
    return kernel(*arrays, out=(out,), **attrs) is not NotImplemented


@functools.cache
def both(first: Any, after: Any) -> Kernel | None:
    """The results of a pointwise op and of another one of its result, in one pass: the bits of each
    by itself. `first` is a sum of operands: nothing fuses with it. Backward reads it first."""
    head = first.expression
    tail = _module("codegen").put(after.expression, {var(after.operands[0]): head})
    made: Kernel | None = _module("loops").pointwise(
        f"{first.name}_{after.name}", first.operands, [head, tail], single=False, near=1)
    return made


def down(name: str, params: Sequence[str], expr: Expr) -> Kernel:
    """A rule of one cotangent that sums it down the columns as well: `columns.Columns`, made when
    it is first called."""
    @functools.cache
    def rule() -> Kernel:
        made: Kernel = _module("columns").Columns(name, params, expr)
        return made

    def call(*operands: Any, over: bool) -> Any:
        return rule()(*operands, over=over)
    return call


def _with_gaps(f: Kernel, exprs: Sequence[Expr | None]) -> Kernel:
    """Put None where there was no expression."""
    holes = [e is None for e in exprs]

    def call(*args: Any, **attrs: Any) -> tuple[Any, ...]:
        values = iter(f(*args, **attrs))
        return tuple(None if hole else next(values) for hole in holes)
    return call


def _handing(f: Kernel, passed: Sequence[bool]) -> Kernel:
    """Put the first operand where it is a result."""
    def call(first: Any, *args: Any, **attrs: Any) -> tuple[Any, ...]:
        values = f(first, *args, **attrs)
        return tuple([first if p else v for p, v in zip(passed, values, strict=True)])
    return call


def report() -> dict[str, Any]:
    """What is in use here: for `doctor env` and bug reports.

    >>> report()["kernels"] in ("generated (LLVM)", "NumPy")
    True
    """
    llvm, threads, alloc = _module("llvm"), _module("threads"), _module("alloc")
    on = llvm.available()
    store = llvm.store()
    files = store.files() if on else []
    return {
        "kernels": "generated (LLVM)" if on else "NumPy",
        "cpu": llvm.host_name() if on else "",
        "features": sorted(llvm.host_features()),
        "vector_bits": llvm.vector_bits() if on else 0,
        "threads": threads.get_num_threads(),
        "thread_pool": "native" if on and threads.native() else "Python",
        "cache": str(store.directory), "cache_files": len(files),
        "cache_bytes": sum(size for _, size, _ in files),
        "allocator": "caching" if alloc.installed() else "NumPy's",
        "loaded": [m.name for m in llvm.loaded()],
        "loader": llvm.loader() if on else "", "llvm": llvm.version() if on else "",
    }


def whole(op: Any) -> Kernel | None:
    """A pointwise op's program for small arrays of whole numbers; None where there is none."""
    direct = _module("direct")
    found = direct.program(op.operands, [op.expression], direct.WORD, True)
    if found is None:
        return None
    # remainders of more are made of quotients, which NumPy computes several at a time
    few = 1024 if op.expression.fn == "mod" else found.limit
    made: Kernel = direct.function(found, lambda *_: None, few)
    return made


def parts(name: str, params: Sequence[str], exprs: Sequence[Expr | None], *,
          keyword: Sequence[str] = (), dtype: np.dtype[Any] | None = None,
          single: bool = True, through: Callable[[Kernel], Kernel] | None = None
          ) -> tuple[Kernel, Kernel, int, Kernel | None]:
    """(small, large, minimum, over): the two functions that `hybrid` chooses from, for callers that
    look at the size themselves; `large` pays from `minimum` elements of the largest operand, and
    computes with NumPy where there is no generated code, `through` what is given. `over` is `large`
    with the only result in the memory of the first operand, where that can be. A result that is
    the first operand is that, not a copy, of several."""
    passed = [not single and e is not None and (e.fn, e.value) == ("var", params[0]) for e in exprs]
    whole, exprs = exprs, [None if p else e for e, p in zip(exprs, passed, strict=True)]
    present = [e for e in exprs if e is not None]
    small = compile_numpy(name, params, whole, keyword=keyword, dtype=dtype, single=single)
    weight = _weight(present)
    minimum = _minimum(weight) if weight else _NOTHING
    if dtype is not None and not keyword:
        direct = _module("direct")
        found = direct.program(params, whole, dtype, single)
        if found is not None:
            minimum = max(minimum, min(found.limit, _DIRECT_LIMIT) + 1)
            small = direct.function(found, small, minimum - 1)
    if not weight:
        return small, small if through is None else through(small), _NOTHING, None
    plain = compile_numpy(name, params, present, keyword=keyword, dtype=dtype, single=single)
    plain = plain if through is None else through(plain)
    run = _Hybrid(name, tuple(params), tuple(present), tuple(keyword), single, plain, minimum)
    large = _with_gaps(run.large, exprs) if len(present) < len(exprs) else run.large
    over = None
    if not keyword and _module("llvm").available():
        places = iter(range(len(present)))
        run.returns = [-1 if e is None else next(places) for e in exprs]
        run.table = _module("launch").Table(name, large)
        large = run.table.call
        over = run.over if len(present) == 1 and not single and not any(passed) else None
    return small, _handing(large, passed) if any(passed) else large, minimum, over
