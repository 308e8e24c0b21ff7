"""`assert_close` and `make_tensor`: comparing results, and making operands, in users' tests."""
from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import adjoint.base.dtypes as dt
from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.tensor import Tensor
from adjoint.ops import create, random

# dtype name -> (rtol, atol); exact for everything else.
_TOLERANCE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
              "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7)}
_RANGE = {"f": (-9, 9), "c": (-9, 9), "i": (-9, 10), "u": (0, 10), "b": (0, 2)}


class _Options:
    """Settings of one comparison."""

    def __init__(self, rtol: float | None, atol: float | None, equal_nan: bool,
                 checks: Mapping[str, bool]) -> None:
        if (rtol is None) != (atol is None):
            raise ArgumentError("Both 'rtol' and 'atol' must be either specified or omitted, but "
                                f"got no {'rtol' if rtol is None else 'atol'}.")
        self.rtol, self.atol, self.equal_nan, self.checks = rtol, atol, equal_nan, checks

    def tolerance(self, *dtypes: str) -> tuple[float, float]:
        """(rtol, atol): as given, or the loosest that the dtypes ask for."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        found = [_TOLERANCE.get(d, (0.0, 0.0)) for d in dtypes]
        return max(r for r, _ in found), max(a for _, a in found)


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None,
                    atol: float | None = None, equal_nan: bool = True, msg: str = "") -> None:
    """`assert_close` by its old name: dtypes may differ, nan equals nan.

    >>> import adjoint as ad
    >>> assert_allclose(ad.tensor([1.0]), ad.tensor([1.0], dtype=ad.float64))
    """
    warn_as_pytorch("`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed"
                    " in a future release. Please use `torch.testing.assert_close()` instead.",
                    FutureWarning)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False,
                 check_device=False, msg=msg or None)


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True,
                 rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: str | Callable[[str], str] | None = None) -> None:
    """Raise AssertionError unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Tensors, numbers, and sequences and mappings of them. Tolerances default to those of the dtype:
    1.3e-6 and 1e-5 for float32, 1e-7 and 1e-7 for float64, exact for integers and booleans.

    >>> import adjoint as ad
    >>> assert_close(ad.tensor([1.0, 2.0]), ad.tensor([1.0, 2.0 + 1e-6]))
    """
    options = _Options(rtol, atol, equal_nan, {"device": check_device, "dtype": check_dtype,
                                               "layout": check_layout, "stride": check_stride})
    try:
        _compare(actual, expected, options, (), allow_subclasses)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _compare(a: Any, b: Any, options: _Options, path: tuple[Any, ...], subclasses: bool) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        _keys(a, b, path)
        for k in a:
            _compare(a[k], b[k], options, (*path, k), subclasses)
        return
    listed = isinstance(a, Sequence) and isinstance(b, Sequence)
    if listed and not isinstance(a, str) and not isinstance(b, str):
        if len(a) != len(b):
            raise AssertionError(f"The length of the sequences mismatch: {len(a)} != {len(b)}"
                                 + _at(path))
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _compare(x, y, options, (*path, i), subclasses)
        return
    if a is None and b is None:
        return
    if isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_)):
        if bool(a) is not bool(b):
            raise AssertionError(f"Booleans mismatch: {bool(a)} is not {bool(b)}" + _at(path))
        return
    if isinstance(a, numbers.Number) and isinstance(b, numbers.Number):
        _numbers(a, b, options, path)
        return
    if not any(isinstance(a, kind) and isinstance(b, kind) for kind in (Tensor, np.ndarray)) or (
            not subclasses and type(a) is not type(b)):
        raise DTypeError(f"No comparison pair was able to handle inputs of type {type(a)} and "
                         f"{type(b)}.")
    _tensors(a, b, options, path)


def _at(path: tuple[Any, ...]) -> str:
    where = "".join(f"[{k!r}]" for k in path)
    return f"\n\nThe failure occurred for item {where}" if path else ""


def _keys(a: Mapping[Any, Any], b: Mapping[Any, Any], path: tuple[Any, ...]) -> None:
    if set(a) != set(b):
        raise AssertionError("The keys of the mappings do not match:\n"
                             f"Missing keys in the actual mapping: {sorted(set(b) - set(a))}\n"
                             f"Additional keys in the actual mapping: {sorted(set(a) - set(b))}"
                             + _at(path))


def _numbers(a: Any, b: Any, options: _Options, path: tuple[Any, ...]) -> None:
    if options.checks["dtype"] and type(a) is not type(b):
        raise AssertionError(f"The (d)types do not match: {type(a)} != {type(b)}." + _at(path))
    kinds = {int: "int64", float: "float64", complex: "complex128"}
    rtol, atol = options.tolerance(*(kinds.get(type(x), "float64") for x in (a, b)))
    _scalars(a, b, rtol, atol, options.equal_nan, path)


def _scalars(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool,
             path: tuple[Any, ...]) -> None:
    if a == b or (equal_nan and a != a and b != b):
        return
    difference = abs(a - b)
    if np.isfinite(difference) and difference <= atol + rtol * abs(b):
        return
    relative = difference / abs(b) if b else float("inf")
    exact = not rtol and not atol
    lines = [f"Scalars are not {'equal' if exact else 'close'}!", "",
             f"Expected {b} but got {a}.",
             f"Absolute difference: {difference}" + ("" if exact else f" (up to {atol} allowed)"),
             f"Relative difference: {relative}" + ("" if exact else f" (up to {rtol} allowed)")]
    raise AssertionError("\n".join(lines) + _at(path))


def _tensors(a: Any, b: Any, options: _Options, path: tuple[Any, ...]) -> None:
    a, b = (t if isinstance(t, Tensor) else create.from_numpy(t) for t in (a, b))
    for name, wanted in (("shape", True), ("device", options.checks["device"]),
                         ("dtype", options.checks["dtype"]), ("layout", options.checks["layout"])):
        x, y = getattr(a, name), getattr(b, name)
        if wanted and x != y:
            raise AssertionError(f"The values for attribute '{name}' do not match: {x} != {y}."
                                 + _at(path))
    if options.checks["stride"] and a.stride() != b.stride():
        raise AssertionError("The values for attribute 'stride()' do not match: "
                             f"{a.stride()} != {b.stride()}." + _at(path))
    rtol, atol = options.tolerance(a.dtype.name, b.dtype.name)
    x, y = _dense(a), _dense(b)
    if a.dim() == 0 and x.dtype.kind in "fc":
        _scalars(x.item(), y.item(), rtol, atol, options.equal_nan, path)
        return
    with np.errstate(all="ignore"):
        _arrays(x, y, rtol, atol, options.equal_nan, path)


def _dense(t: Any) -> Any:
    array = (t.to_dense() if t.is_sparse else t).detach().resolve_conj().array
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind in "fV" \
        else array


def _arrays(x: Any, y: Any, rtol: float, atol: float, equal_nan: bool,
            path: tuple[Any, ...]) -> None:
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan) if rtol or atol else \
        (x == y) | ((x != x) & (y != y) & equal_nan)
    if close.all():
        return
    exact, wide = not rtol and not atol, np.float64 if x.dtype.kind in "biu" else x.dtype
    difference = np.abs(x.astype(wide) - y.astype(wide))
    relative = difference / np.abs(y.astype(wide))
    worst = [np.where(close, -1.0, np.where(d != d, np.inf, d)) for d in (difference, relative)]
    places = [tuple(int(i) for i in np.unravel_index(int(np.argmax(w)), w.shape)) for w in worst]
    n, total = int((~close).sum()), close.size
    largest = [difference[places[0]].item(), relative[places[1]].item()]
    if exact:
        largest[0] = int(largest[0]) if x.dtype.kind in "biu" else largest[0]
    bounds = ["" if exact else f" (up to {t} allowed)" for t in (atol, rtol)]
    raise AssertionError("\n".join([
        f"Tensor-likes are not {'equal' if exact else 'close'}!", "",
        f"Mismatched elements: {n} / {total} ({n / total:.1%})",
        f"Greatest absolute difference: {largest[0]} at index {places[0]}{bounds[0]}",
        f"Greatest relative difference: {largest[1]} at index {places[1]}{bounds[1]}"])
        + _at(path))


def make_tensor(*shape: Any, dtype: Any, device: Any = "cpu", low: float | None = None,
                high: float | None = None, requires_grad: bool = False,
                noncontiguous: bool = False, exclude_zero: bool = False,
                memory_format: Any = None) -> Any:
    """A tensor of that shape with values drawn uniformly from [low, high).

    Defaults: [-9, 9) for floating, complex and signed dtypes (integers up to and with 9), [0, 10)
    for unsigned ones, False and True for bool. Of complex numbers, both parts are drawn from it.
    Bounds that the dtype cannot hold become its own. The same seed gives PyTorch's numbers.

    noncontiguous  every other element of a buffer twice as long, from the second on
    exclude_zero   zeros become the smallest positive number (one for integers)

    Errors: ValueError for bounds that are no interval of the dtype, and for a gradient of integers.

    >>> import adjoint as ad
    >>> make_tensor(2, 3, dtype=ad.int64, low=0, high=5).shape
    adjoint.Size([2, 3])
    """
    size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    kind = dt.to_numpy(dtype).kind if dt.to_numpy(dtype).kind in _RANGE else "f"
    if requires_grad and kind in "biu":
        raise ArgumentError("`requires_grad=True` is not supported for boolean and integral "
                            f"dtypes, but got dtype={dtype}")
    if noncontiguous and memory_format is not None:
        raise ArgumentError("The parameters `noncontiguous` and `memory_format` are mutually "
                            f"exclusive, but got {noncontiguous=} and {memory_format=}")
    low, high = _interval(dtype, kind, low, high)
    strided = noncontiguous and math.prod(size) > 1
    if strided:
        size = (*size[:-1], 2 * size[-1])
    if kind in "biu":
        made = random.randint(math.ceil(low), math.ceil(high), size, dtype=dtype, device=device)
    else:
        made = create.empty(size, dtype=dtype, device=device)
        _fill(made.view_as_real() if kind == "c" else made, low, high)
    if strided:
        made = made[..., 1::2]
    if exclude_zero:
        least = 1 if kind in "biu" else dt.finfo(dtype).tiny
        made[made == 0] = least
    return made.requires_grad_(requires_grad) if requires_grad else made


def _interval(dtype: Any, kind: str, low: float | None, high: float | None) -> tuple[Any, Any]:
    """The bounds as given or by default, within what the dtype holds."""
    low = _RANGE[kind][0] if low is None else low
    high = _RANGE[kind][1] if high is None else high
    if low != low or high != high:
        raise ArgumentError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if not low < high and not (kind in "fc" and low == high):
        raise ArgumentError(f"`low` must be less than `high`, but got {low} >= {high}")
    limits: Any = dt.finfo(dtype) if kind in "fc" else None if kind == "b" else dt.iinfo(dtype)
    least, end = (0, 1) if limits is None else (limits.min, limits.max)
    if kind == "b" or kind in "iu" and limits.bits < 64:
        end += 1                        # it is left out, and has to be an int64 itself
    if high <= least or low >= end:
        raise ArgumentError(f"The value interval specified by `low` and `high` is [{low}, {high}), "
                            f"but {dtype} only supports [{least}, {end})")
    return max(low, least), min(high, end)


def _fill(x: Any, low: float, high: float) -> None:
    if high - low >= dt.finfo(x.dtype).max:     # the width itself would be infinite
        x.uniform_(low / 2, high / 2).mul_(2)
    else:
        x.uniform_(low, high)
