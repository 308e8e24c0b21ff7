"""Matrix products of raw arrays: the generated kernel, NumPy, or OpenBLAS, whichever is fastest.

`matmul` has NumPy's semantics (stacks of matrices, vectors, broadcasting) and adds what a training
step wants: `accumulate` into an existing gradient, and a fused epilogue `activation(a b + bias) +
residual`. Operands are read through their strides, so transposed and sliced views are not copied.
16-bit floats are summed in float32.

Small and middle sizes are decided by measuring once per class of shapes on this machine; the
verdicts are kept beside the kernel cache. `ADJOINT_GEMM=generated` or `numpy` decides for all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoint.base.errors import CompilerLost

from . import blas, convert, gemm_choose, gemm_vec, loops, threads
from .expr import var
from .gemm_emit import BYTES
from .gemm_plan import Array, Plan, address, machine, spec_for, usable

__all__ = ["RELU", "Activation", "matmul"]


@dataclass(frozen=True, slots=True)
class Activation:
    """An elementwise function for the epilogue.

    `ir(kind, lanes)` is LLVM text defining `@activation(<lanes x kind>)` with attribute group #2
    (always inlined); `reference(x)` applies it in place to an array.
    """

    name: str
    ir: Callable[[str, int], str]
    reference: Callable[[Array], Any]


def _relu_ir(kind: str, lanes: int) -> str:
    vec = f"<{lanes} x {kind}>"
    return (
        f"define internal {vec} @activation({vec} %x) #2 {{\n"
        f"  %low = fcmp olt {vec} %x, zeroinitializer\n"
        f"  %y = select <{lanes} x i1> %low, {vec} zeroinitializer, {vec} %x\n"
        f"  ret {vec} %y\n}}"
    )


RELU = Activation("relu", _relu_ir, lambda x: np.maximum(x, 0, out=x))

_TINY = 40_000  # multiply-adds below which calling NumPy is all that counts
_plans: dict[Any, Any] = {}
_MODE = os.environ.get("ADJOINT_GEMM", "")


def matmul(
    a: Array,
    b: Array,
    out: Array | None = None,
    *,
    accumulate: bool = False,
    bias: Array | None = None,
    activation: Activation | None = None,
    residual: Array | None = None,
) -> Array:
    """`activation(a @ b + bias) + residual`; with `accumulate`, `out` is added before the epilogue.

    `a` is `(..., M, K)` or `(K,)`, `b` `(..., K, N)` or `(K,)`; `out`, if given, has the shape and
    type of the product and may be any view. `bias` is `(N,)`, `residual` has the shape of the
    result. Shapes are trusted; ops check them. Returns `out` or a new C-contiguous array.

    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> matmul(a, a.T, bias=np.array([1, 2], np.float32)).tolist()
    [[6.0, 16.0], [15.0, 52.0]]
    """
    made = plan_for(a, b, out, accumulate=accumulate, bias=bias, activation=activation,
                    residual=residual)
    result: Array = made(a, b, out, bias, residual)
    return result


def plan_for(
    a: Array, b: Array, out: Array | None = None, *, accumulate: bool = False,
    bias: Array | None = None, activation: Activation | None = None, residual: Array | None = None,
) -> Callable[..., Array]:  # fmt: skip
    """What `matmul` calls for such operands: a function of (a, b, out, bias, residual)."""
    accumulate = accumulate and out is not None
    key: Any = (
        a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, threads.get_num_threads(),
    )  # fmt: skip
    if not (out is None and bias is None and activation is None and residual is None):
        key += (accumulate, bias is None, activation, _form(residual), _form(out))
    made: Callable[..., Array] | None = _plans.get(key)
    if made is None:
        if len(_plans) > 4096:
            _plans.clear()
        try:
            made = _decide(a, b, out, accumulate, bias, activation, residual)
        except CompilerLost:
            made = _Reference(accumulate, activation)
        _plans[key] = made
    return made


def generates() -> bool:
    """Whether generated products are to be had, and not switched off."""
    return _MODE != "numpy" and usable()


def prepared(a: Array, b: Array, out: Array, residual: Array | None = None
             ) -> Callable[[int, int, int, int], None] | None:
    """`out = a @ b + residual` as a function of the four addresses (0 for no residual), for many
    products of matrices with the shapes and strides of these; None without generated code.

    >>> a, c = np.eye(2, dtype=np.float32), np.zeros((2, 2), np.float32)
    >>> f = prepared(a, a, c)
    >>> if f is not None:
    ...     f(a.ctypes.data, a.ctypes.data, c.ctypes.data, 0)
    ...     assert (c == a).all()
    """
    if not generates() or not a.size or not b.size:
        return None
    try:
        made = Generated.make(a, b, out, False, None, None, residual)
    except CompilerLost:
        return None
    if not isinstance(made, Generated):
        return None
    run, swapped = made.plan.run, made.swapped

    def product(left: int, right: int, to: int, added: int) -> None:
        if swapped:
            left, right = right, left
        run(left, right, to, False, 0, added)
    return product


def _form(x: Array | None) -> Any:
    return None if x is None else (x.shape, x.strides, x.dtype)


def _decide(
    a: Array, b: Array, out: Array | None, accumulate: bool, bias: Array | None,
    activation: Activation | None, residual: Array | None,
) -> Callable[..., Array]:  # fmt: skip
    """The function that computes products of this form."""
    reference = _Reference(accumulate, activation)
    work = math.prod(a.shape) * (b.shape[-1] if b.ndim > 1 else 1)
    if b.ndim > 2:
        work = max(work, math.prod(b.shape) * (a.shape[-2] if a.ndim > 1 else 1))
    blas_type = a.dtype == b.dtype and a.dtype.char in "fd"
    if work == 0 or _MODE == "numpy" or not usable():
        return reference
    plain = not accumulate and bias is None and activation is None and residual is None
    if work < _TINY and blas_type and not _MODE:
        return _plain if plain else reference
    if plain and out is None and (outer := _outer(a, b)) is not None:
        return outer
    columns = bias is None or b.ndim == 2 and bias.shape == b.shape[1:]
    if columns and not accumulate and activation is None and residual is None and (
            vector := _Vector.make(a, b)) is not None:
        return vector
    made = Generated.make(a, b, out, accumulate, bias, activation, residual)
    if made is None:
        return reference
    if not blas_type or _MODE == "generated" or accumulate or bias is not None:
        return made
    if activation is not None or residual is not None:
        return made
    faster = gemm_choose.generated_is_faster(made.shape_class, made, reference, (a, b), work)
    if faster:
        return made
    return _plain if plain and a.ndim == 2 == b.ndim else reference


def _plain(a: Array, b: Array, out: Array | None, *_: Any) -> Array:
    """NumPy's product and nothing else: small products are all overhead, of `dot` half as much."""
    if out is not None:
        return np.matmul(a, b, out=out)
    return a.dot(b) if a.ndim == 2 == b.ndim else np.matmul(a, b)


def _outer(a: Array, b: Array) -> Callable[..., Array] | None:
    """Columns times rows, one pass that writes: there is nothing to sum."""
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != 1 or min(a.shape[-2], b.shape[-1]) < 2:
        return None
    product = loops.pointwise("outer", ["a", "b"], [var("a") * var("b")])
    if product is None or product(a, b) is NotImplemented:
        return None
    return lambda a, b, *_: product(a, b)


class _Reference:
    """The product by NumPy, the epilogue by further passes."""

    def __init__(self, accumulate: bool, activation: Activation | None) -> None:
        self.accumulate, self.activation = accumulate, activation

    def __call__(
        self, a: Array, b: Array, out: Array | None, bias: Array | None = None,
        residual: Array | None = None,
    ) -> Array:  # fmt: skip
        if not self.accumulate and bias is None and self.activation is None and residual is None:
            return _product(a, b, out)
        wide = _wide(np.result_type(a, b))
        if self.accumulate and out is not None and bias is None and residual is None:
            library = blas.library()
            if a.ndim == b.ndim == 2 and self.activation is None and library is not None:
                if library.gemm(a, b, out, beta=1.0):
                    return out
        y = np.asarray(_product(a.astype(wide, copy=False), b.astype(wide, copy=False), None))
        if self.accumulate and out is not None:
            y = y + out
        if bias is not None:
            y += bias
        if self.activation is not None:
            self.activation.reference(y)
        if residual is not None:
            y += residual
        if out is None:
            return y.astype(np.result_type(a, b), copy=False)
        np.copyto(out, y, casting="same_kind")
        return out


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    half = dtype.itemsize == 2 and dtype.kind not in "iu"
    return np.dtype(np.float32) if half else dtype


def _product(a: Array, b: Array, out: Array | None) -> Array:
    """`np.matmul`, 16-bit floats summed in float32, batches shared among our threads."""
    dtype = np.result_type(a, b)
    wide = _wide(dtype)
    if wide != dtype:
        with np.errstate(invalid="ignore", over="ignore"):
            y = np.matmul(a.astype(wide), b.astype(wide)).astype(dtype)
        if out is None:
            return y
        np.copyto(out, y, casting="same_kind")
        return out
    count = a.shape[0] if a.ndim == 3 else 0
    if b.ndim != 3 or b.shape[0] != count or count < 2 or a[0].size * b.shape[2] < 200_000:
        return np.asarray(np.matmul(a, b) if out is None else np.matmul(a, b, out=out))
    target = np.empty((count, a.shape[1], b.shape[2]), dtype) if out is None else out
    # OpenBLAS splits each small matrix over its threads; whole matrices per thread are faster
    with blas.one_thread():
        threads.parallel_python(
            lambda lo, hi: np.matmul(a[lo:hi], b[lo:hi], out=target[lo:hi]), count
        )
    return target


class Generated:
    """A plan of the generated kernel behind NumPy's semantics."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.plan: Plan
        self.shape_class = ""
        self.accumulate = self.swapped = False

    @classmethod
    def make(
        cls, a: Array, b: Array, out: Array | None, accumulate: bool, bias: Array | None,
        activation: Activation | None, residual: Array | None,
    ) -> Generated | _Detour | None:  # fmt: skip
        """A ready plan, a detour through a temporary, or None where the generator does not apply.
        """
        if a.dtype != b.dtype or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            return None
        left = a if a.ndim > 1 else a[None]
        right = b if b.ndim > 1 else b[:, None]
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        full = (*lead, left.shape[-2], right.shape[-1])
        shape = full if a.ndim > 1 and b.ndim > 1 else _vector_shape(a, b, lead)
        target = out if out is not None else np.empty(shape, a.dtype)
        if target.shape != shape or spec_for(a.dtype, target.dtype) is None:
            return None
        grid = _as_matrices(target, full)
        extra = None if residual is None else _as_matrices(residual, full)
        matrices = [left, right, grid] + ([] if extra is None else [extra])
        if any(s % x.itemsize for x in matrices for s in x.strides):
            return None
        self = cls(shape, a.dtype if out is None else out.dtype)
        self.accumulate = accumulate
        types_differ = (residual is not None and residual.dtype != target.dtype) or (
            bias is not None and bias.dtype != _wide(a.dtype)
        )
        if types_differ:
            return None
        if bias is not None and bias.strides[0] != bias.itemsize:
            return None
        text = _activation_text(activation, a.dtype)
        return self._plan(left, right, grid, extra, bias is not None, text) or (
            _Detour(a, b, target, bias, activation, residual) if not accumulate else None
        )

    def _plan(
        self, a: Array, b: Array, c: Array, extra: Array | None, bias: bool, activation: str
    ) -> Generated | None:
        """Fill in the plan: merge a batch into rows, swap sides for a column-major C."""
        size = c.itemsize
        if c.strides[-1] != size and c.shape[-1] > 1:
            if c.strides[-2] != size and c.shape[-2] > 1:
                return None
            a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
            extra = None if extra is None else extra.swapaxes(-1, -2)
            self.swapped = True
        if extra is not None and extra.strides[-1] != size and extra.shape[-1] > 1:
            return None
        k = a.shape[-1]
        kind = "" if not bias else "row" if self.swapped else "col"
        spec = spec_for(a.dtype, c.dtype, kind, activation, extra is not None)
        if spec is None or (spec.c != spec.acc and k > 4096):
            return None
        stack = [a, b, c] + ([] if extra is None else [extra])
        if kind != "row":
            stack = _merge_rows(stack)
        a, b, c = stack[:3]
        lead = c.shape[:-2]
        offsets = np.zeros((max(1, math.prod(lead)), 4), np.int64)
        for column, x in enumerate(stack):
            offsets[:, column] = _offsets(x, lead)
        strides = (
            (a.strides[-2] // a.itemsize, a.strides[-1] // a.itemsize),
            (b.strides[-2] // b.itemsize, b.strides[-1] // b.itemsize),
            c.strides[-2] // size, 0 if len(stack) < 4 else stack[3].strides[-2] // size,
        )  # fmt: skip
        dims = (c.shape[-2], c.shape[-1], k)
        workers = threads.get_num_threads()
        self.plan = Plan(spec, dims, strides, offsets, workers)
        layout = "".join("nt"[x.strides[-1] != x.itemsize] for x in (a, b))
        sizes = " ".join(str(d.bit_length()) for d in (*dims, len(offsets)))
        self.shape_class = f"{a.dtype.name} {layout} {sizes} {workers}"
        return self

    def __call__(
        self, a: Array, b: Array, out: Array | None, bias: Array | None = None,
        residual: Array | None = None,
    ) -> Array:  # fmt: skip
        if out is None:
            c = np.empty(self.shape, self.dtype)
        elif np.may_share_memory(out, a) or np.may_share_memory(out, b):
            held = self(
                a.copy(), b.copy(), None if not self.accumulate else out.copy(), bias, residual
            )
            np.copyto(out, held)
            return out
        else:
            c = out
        left, right = (b, a) if self.swapped else (a, b)
        self.plan.run(
            address(left), address(right), address(c), self.accumulate,
            0 if bias is None else address(bias), 0 if residual is None else address(residual),
        )  # fmt: skip
        return c


class _Vector:
    """A product with a vector on one side."""

    def __init__(self, flip: bool, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.flip, self.dtype, self.shape = flip, dtype, shape

    @classmethod
    def make(cls, a: Array, b: Array) -> _Vector | None:
        """A plan if one side has a single row or column, the other is a plain matrix."""
        if a.ndim > 2 or b.ndim > 2 or a.dtype != b.dtype or a.shape[-1] != b.shape[0]:
            return None
        rows = a.shape[0] if a.ndim == 2 else 1
        cols = b.shape[1] if b.ndim == 2 else 1
        shape = _vector_shape(a, b, ())
        if cols == 1 and a.ndim == 2 and gemm_vec.supported(a, b.reshape(-1)):
            return cls(False, a.dtype, shape)
        if rows == 1 and b.ndim == 2 and gemm_vec.supported(b.T, a.reshape(-1)):
            return cls(True, a.dtype, shape)
        return None

    def __call__(
        self, a: Array, b: Array, out: Array | None, bias: Array | None = None,
        residual: Array | None = None,
    ) -> Array:  # fmt: skip
        y = gemm_vec.matvec(b.T, a.reshape(-1)) if self.flip else gemm_vec.matvec(a, b.reshape(-1))
        y = y.reshape(self.shape)
        if bias is not None:
            y += bias
        if out is None:
            return y if y.dtype == self.dtype else y.astype(self.dtype)
        np.copyto(out, y, casting="same_kind")
        return out


class _Detour:
    """A product into a temporary, for an `out` (or a residual) that no kernel writes directly."""

    shape_class = ""

    def __init__(
        self, a: Array, b: Array, target: Array, bias: Array | None, activation: Activation | None,
        residual: Array | None,
    ) -> None:  # fmt: skip
        self.activation, self.shape = activation, target.shape
        self.wide = _wide(a.dtype) if a.shape[-1] > 4096 else a.dtype

    def __call__(
        self, a: Array, b: Array, out: Array | None, bias: Array | None = None,
        residual: Array | None = None,
    ) -> Array:  # fmt: skip
        wide = self.wide
        kept = None if residual is None else np.ascontiguousarray(residual.astype(wide))
        # long sums of 16-bit numbers are kept in float32 from one block of K to the next
        sums = None if wide == a.dtype else np.empty(self.shape, wide)
        y = matmul(a, b, sums, bias=bias, activation=self.activation, residual=kept)
        if out is None:
            return y if sums is None else convert.stored_as(y, a.dtype)
        np.copyto(out, y, casting="same_kind")
        return out


def _activation_text(activation: Activation | None, dtype: np.dtype[Any]) -> str:
    if activation is None:
        return ""
    kind = "double" if dtype.itemsize == 8 else "float"
    return activation.ir(kind, machine().bits // (8 * BYTES[kind]))


def _vector_shape(a: Array, b: Array, lead: tuple[int, ...]) -> tuple[int, ...]:
    rows = () if a.ndim == 1 else (a.shape[-2],)
    cols = () if b.ndim == 1 else (b.shape[-1],)
    return (*lead, *rows, *cols)


def _as_matrices(x: Array, full: tuple[int, ...]) -> Array:
    """`x` with the axes that a vector operand dropped put back (a view)."""
    if x.ndim == len(full):
        return x
    rows, cols = full[-2:]
    view = x
    if x.ndim == len(full) - 2:
        return view[..., None, None]
    return view[..., None] if cols == 1 and x.shape[-1:] == (rows,) else view[..., None, :]


def _merge_rows(stack: list[Array]) -> list[Array]:
    """Turn a stack of products with one right side into one tall product, where strides allow."""
    a, b = stack[0], stack[1]
    lead = stack[2].shape[:-2]
    if not lead or math.prod(b.shape[:-2]) != 1 or a.shape[:-2] != lead:
        return stack
    for x in (a, *stack[2:]):
        sizes, steps = x.shape[:-1], x.strides[:-1]
        if any(steps[i] != sizes[i + 1] * steps[i + 1] for i in range(len(lead)) if sizes[i] > 1):
            return stack
    flat = [x.reshape(-1, x.shape[-1]) for x in (a, *stack[2:])]
    return [flat[0], b.reshape(b.shape[-2:]) if b.ndim > 2 else b, *flat[1:]]


def _offsets(x: Array, lead: tuple[int, ...]) -> Array:
    """Byte offset of each matrix of a stack, broadcast to `lead`."""
    total = np.zeros((1,) * len(lead), np.int64)
    own = x.ndim - 2
    for axis in range(own):
        count, stride = x.shape[axis], x.strides[axis]
        shape = [1] * len(lead)
        shape[len(lead) - own + axis] = count
        step = 0 if count == 1 else stride
        total = total + (np.arange(count, dtype=np.int64) * step).reshape(shape)
    return np.broadcast_to(total, lead).reshape(-1)
