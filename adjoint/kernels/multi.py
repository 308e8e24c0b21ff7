"""Many arrays in one call: optimizer updates, the norm of all gradients, scaling in place.

The call walks over a table of array objects, cut into chunks of 16384 elements that the pool
shares, so that a model of a hundred small tensors costs one launch. Updates follow PyTorch's
definitions: SGD with momentum (Sutskever et al., ICML 2013, in PyTorch's form), Adam (Kingma and
Ba, arXiv:1412.6980), AdamW (Loshchilov and Hutter, arXiv:1711.05101).
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
Arrays = Sequence[Array]
_CHUNK = 16384
Update = Callable[[Function, list[Value], list[Value]], list[Value | None]]


@functools.lru_cache(maxsize=256)
def _cuts(sizes: tuple[int, ...]) -> tuple[Any, int, int]:
    """[groups, tensors, pieces in a group, pieces, sizes..., (tensor, first element) per piece].

    What the pool shares are groups of pieces, of about `_CHUNK` elements together: a thread is
    woken only where there is work for it.
    """
    where = [(t, lo) for t, size in enumerate(sizes) for lo in range(0, size, _CHUNK)]
    flat = [v for pair in where for v in pair]
    total = sum(sizes)
    group = max(1, len(where) if total <= 2 * _CHUNK else len(where) * _CHUNK // total)
    words, address = geometry([-(-len(where) // group), len(sizes), group, len(where), *sizes,
                               *flat])
    return words, address, len(where)


def _each_chunk(frame: Frame, lists: int, stored: str,
                body: Callable[[Value, list[Value], Value], None]) -> None:
    """Call `body(piece, pointers, length)` for every piece; operand 0 is the table of objects."""
    f = frame.f
    table, tensors, group, pieces = frame.array(0), *(frame.geometry(i) for i in (1, 2, 3))

    def one(c: Value, _: list[Value]) -> list[Value]:
        base = tensors + 4 + c * 2
        t = _word(frame, base)
        lo = _word(frame, base + 1)
        left = _word(frame, t + 4) - lo
        pointers = []
        for k in range(lists):
            thing = f.load(f.at(table, "i64", tensors * k + t), "ptr", align=8)
            data = f.load(f.at(thing, "i8", object.__basicsize__), "ptr", align=8)
            pointers.append(f.at(data, stored, lo))
        body(c, pointers, f.intrinsic("smin", left, f.i64(_CHUNK)))
        return []
    end = f.intrinsic("smin", frame.end * group, pieces)
    f.loop(frame.first * group, end, 1, [], one)


def _word(frame: Frame, index: Value) -> Value:
    return frame.f.load(frame.f.at(frame._geometry, "i64", index), "i64")


def _emit_update(update: Update, lists: int, reals: int, stored: str, register: str,
                 frame: Frame) -> None:
    f = frame.f
    n = codegen.width(register)
    scalars = [f.splat(frame.real(i, register), n) for i in range(reals)]

    def chunk(_: Value, pointers: list[Value], length: Value) -> None:
        def turn(j: Value, mask: Value | None, _c: list[Value]) -> list[Value]:
            values = [codegen.load(f, f.at(p, stored, j), stored, n, mask=mask)
                      for p in pointers]
            f.flags = " contract"
            new = update(f, values, scalars)
            f.flags = ""
            for p, v in zip(pointers, new, strict=True):
                if v is not None:
                    codegen.store(f, v, f.at(p, stored, j), stored, mask=mask)
            return []
        f.vector_loop(f.i64(0), length, n, [], turn)
    _each_chunk(frame, lists, stored, chunk)


@functools.lru_cache(maxsize=64)
@llvm.generating
def _compiled(name: str, variant: tuple[bool, ...], lists: int, reals: int,
              dtype: np.dtype[Any]) -> Any:
    kinds = codegen.storage(dtype)
    if kinds is None or kinds[1] == "i1":
        return None
    update = functools.partial(_UPDATES[name], variant)
    emit = functools.partial(_emit_update, update, lists, reals, *kinds)
    return codegen.build("multi." + name, (kinds[0], repr(variant)), emit, arrays=1, reals=reals)


def _table(lists: Sequence[Arrays]) -> tuple[Array, np.dtype[Any]] | None:
    """The ids of all arrays, list after list; None where one does not fit."""
    first = lists[0]
    if not first:
        return None
    dtype = first[0].dtype
    sizes = [a.size for a in first]
    for arrays in lists:
        if len(arrays) != len(first):
            return None
        for a, size in zip(arrays, sizes, strict=True):
            if (type(a) is not np.ndarray or (a.dtype is not dtype and a.dtype != dtype)
                    or a.size != size or not a.flags.carray):
                return None
    return np.array([id(a) for arrays in lists for a in arrays], np.int64), dtype


def _run(name: str, variant: tuple[bool, ...], lists: Sequence[Arrays],
         reals: Sequence[float]) -> Any:
    found = _table(lists)
    if found is None:
        return NotImplemented
    table, dtype = found
    entry = _compiled(name, variant, len(lists), len(reals), dtype)
    if entry is None:
        return NotImplemented
    address = _cuts(tuple([a.size for a in lists[0]]))[1]
    entry(threads.entry(), address, table, *reals)
    return None


def _sgd(variant: tuple[bool, ...], f: Function, v: list[Value],
         s: list[Value]) -> list[Value | None]:
    momentum, nesterov, decay, maximize, first = variant
    p, g = v[0], v[1]
    lr, mu, keep, wd = s
    if maximize:
        g = -g
    if decay:
        g = g + p * wd
    if not momentum:
        return [p - g * lr, None]
    b = g if first else v[2] * mu + g * keep
    step = g + b * mu if nesterov else b
    return [p - step * lr, None, b]


def _adam(variant: tuple[bool, ...], f: Function, v: list[Value],
          s: list[Value]) -> list[Value | None]:
    decoupled, decay, maximize, amsgrad = variant
    p, g, m, q = v[:4]
    lr, rest1, beta2, rest2, eps, wd, step, root = s  # rest = 1 - beta, subtracted in Python
    if maximize:
        g = -g
    if decay and decoupled:
        p = p * (1.0 - lr * wd)
    elif decay:
        g = g + p * wd
    m = m + (g - m) * rest1
    q = q * beta2 + (g * g) * rest2
    top: list[Value | None] = []
    most = q
    if amsgrad:
        most = f.intrinsic("maximum", v[4], q)
        top = [most]
    denominator = f.intrinsic("sqrt", most) * root + eps
    return [p - (m / denominator) * step, None, m, q, *top]


def _scale(variant: tuple[bool, ...], f: Function, v: list[Value],
           s: list[Value]) -> list[Value | None]:
    return [v[0] * s[0]]


_UPDATES: dict[str, Callable[..., list[Value | None]]] = {
    "sgd": _sgd, "adam": _adam, "scale": _scale}


def sgd(params: Arrays, grads: Arrays, buffers: Arrays | None = None, *, lr: float,
        momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, maximize: bool = False, first: bool = False) -> Any:
    """One SGD step on all parameters, in place.

    Args:
        params, grads, buffers: C-contiguous arrays of one float dtype, pairwise equal in size;
            buffers hold the momentum and are needed where `momentum` is not 0.
        first: the buffers take the gradient (PyTorch's first step).

    Returns:
        None when done; NotImplemented (and nothing changed) where dtypes, strides or sizes
        do not fit.

    >>> p, g = np.ones(3, np.float32), np.ones(3, np.float32)
    >>> sgd([p], [g], lr=0.5) is NotImplemented or p.tolist() == [0.5, 0.5, 0.5]
    True
    """
    lists = [params, grads] + ([buffers] if momentum and buffers is not None else [])
    variant = (len(lists) == 3, nesterov, weight_decay != 0, maximize, first)
    return _run("sgd", variant, lists, (lr, momentum, 1.0 - dampening, weight_decay))


def adam(params: Arrays, grads: Arrays, exp_avgs: Arrays, exp_avg_sqs: Arrays,
         max_exp_avg_sqs: Arrays | None = None, *, step: int, lr: float,
         betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
         weight_decay: float = 0.0, decoupled: bool = False, maximize: bool = False) -> Any:
    """One Adam (`decoupled`: AdamW) step on all parameters, in place.

    Args:
        step: counts from 1; all parameters are at the same step.
        max_exp_avg_sqs: given for AMSGrad.

    Returns:
        None when done; NotImplemented (and nothing changed) where dtypes, strides or sizes
        do not fit.
    """
    lists = [params, grads, exp_avgs, exp_avg_sqs]
    if max_exp_avg_sqs is not None:
        lists.append(max_exp_avg_sqs)
    beta1, beta2 = betas
    size = lr / (1.0 - beta1**step)
    root = 1.0 / math.sqrt(1.0 - beta2**step)
    variant = (decoupled, weight_decay != 0, maximize, max_exp_avg_sqs is not None)
    return _run("adam", variant, lists, (lr, 1.0 - beta1, beta2, 1.0 - beta2, eps, weight_decay,
                                         size, root))


def scale_(arrays: Arrays, factor: float) -> Any:
    """Multiply all arrays by `factor` in place; None, or NotImplemented where they do not fit."""
    return _run("scale", (), [arrays], (factor,))


def _emit_squares(stored: str, register: str, frame: Frame) -> None:
    f = frame.f
    n = codegen.width(register)
    half = n // 2 if register == "float" else n
    wide = vec(half, "double")
    sums = frame.array(1)

    def chunk(c: Value, pointers: list[Value], length: Value) -> None:
        def turn(j: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            v = codegen.load(f, f.at(pointers[0], stored, j), stored, n, mask=mask)
            parts = [v] if half == n else [
                f.cast("fpext", f.shuffle(v, v, range(i, i + half)), wide) for i in (0, half)]
            total = carried[0]
            for p in parts:
                total = f.fma(p, p, total)
            return [total]

        def join(a: list[Value], b: list[Value]) -> list[Value]:
            return [a[0] + b[0]]
        got, = f.vector_loop(f.i64(0), length, n, [f.const(wide, 0.0)], turn, unroll=2,
                             combine=join)
        f.store(f.reduce("add", got), f.at(sums, "double", c))
    _each_chunk(frame, 1, stored, chunk)


@functools.lru_cache(maxsize=16)
@llvm.generating
def _squares(dtype: np.dtype[Any]) -> Any:
    kinds = codegen.storage(dtype)
    if kinds is None or kinds[1] == "i1":
        return None
    return codegen.build("multi.squares", kinds, functools.partial(_emit_squares, *kinds),
                         arrays=2)


def norm(arrays: Arrays) -> Any:
    """The 2-norm of all elements of all arrays together, as a float.

    Squares are summed in float64, so float32 gradients neither overflow nor lose the small ones.
    NotImplemented where dtypes or strides do not fit.

    >>> norm([np.array([3.], np.float32), np.array([4.], np.float32)]) in (5.0, NotImplemented)
    True
    """
    found = _table([arrays])
    entry = _squares(found[1]) if found is not None else None
    if found is None or entry is None:
        return NotImplemented
    _, address, chunks = _cuts(tuple([a.size for a in arrays]))
    sums = np.zeros(chunks)
    entry(threads.entry(), address, found[0], sums)
    return math.sqrt(float(sums.sum()))
