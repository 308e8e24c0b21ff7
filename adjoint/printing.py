"""repr of tensors, as PyTorch prints them: 4 digits, aligned columns, summarised when large."""
from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import I64, default_dtype, is_bfloat16
from adjoint.base.errors import AutogradError
from adjoint.core.tensor import OWN, Parameter, Tensor
from adjoint.ops.sparse_tensor import BY_COLUMN, SparseTensor, sparse_coo


class Options:
    """What `set_printoptions` changes."""

    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


PRINT_OPTS = Options
_PROFILES: dict[str, dict[str, Any]] = {
    "default": dict(precision=4, threshold=1000, edgeitems=3, linewidth=80),
    "short": dict(precision=2, threshold=1000, edgeitems=2, linewidth=80),
    "full": dict(precision=4, threshold=math.inf, edgeitems=3, linewidth=80),
}


def set_printoptions(precision: int | None = None, threshold: int | None = None,
                     edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """How tensors are printed: digits, when and how to summarise, line width."""
    for name, value in _PROFILES.get(profile or "", {}).items():
        setattr(Options, name, value)
    for name, value in (("precision", precision), ("threshold", threshold),
                        ("edgeitems", edgeitems), ("linewidth", linewidth)):
        if value is not None:
            setattr(Options, name, value)
    Options.sci_mode = sci_mode


_NAMES = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")


def get_printoptions() -> dict[str, Any]:
    """How tensors are printed now, for `set_printoptions(**options)`.

    >>> get_printoptions()["precision"]
    4
    """
    return {name: getattr(Options, name) for name in _NAMES}


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """`set_printoptions` for the length of a block.

    >>> import adjoint as ad
    >>> with printoptions(precision=2):
    ...     print(ad.tensor(1.2345))
    tensor(1.23)
    """
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


class _Format:
    """Decides on one layout for all elements, from the elements that are shown."""

    def __init__(self, shown: Any) -> None:
        self.kind = shown.dtype.kind
        flat = shown.reshape(-1)
        self.integral = self.scientific = False
        if self.kind not in "f" or not flat.size:
            self.width = max((len(str(v)) for v in flat.tolist()), default=1)
            if self.kind == "b":
                self.width = max((len(str(bool(v))) for v in flat), default=1)
            return
        ordinary = flat[np.isfinite(flat) & (flat != 0)]     # zeros, nan and inf widen no column
        values = np.abs(ordinary.astype(np.float64))
        digits = Options.precision
        if values.size:
            low, high = values.min(), values.max()
            self.integral = bool(np.all(values == np.ceil(values)))
            wide = high / low > 1000.0 or high > 1e8
            self.scientific = wide if self.integral else wide or low < 1e-4
        else:
            self.integral = True
        if Options.sci_mode is not None:
            self.scientific = Options.sci_mode
        self.digits = digits
        self.width = max((len(self._one(v)) for v in ordinary), default=1)

    def _one(self, v: Any) -> str:
        if self.scientific and np.isfinite(v):
            return f"{v:.{self.digits}e}"
        if self.integral:
            return f"{v:.0f}." if np.isfinite(v) else f"{v:.0f}"
        return f"{v:.{self.digits}f}"

    def __call__(self, v: Any) -> str:
        if self.kind == "f":
            text = self._one(v)
        else:
            text = str(bool(v)) if self.kind == "b" else str(int(v))
        return " " * (self.width - len(text)) + text


class _ComplexFormat:
    def __init__(self, shown: Any) -> None:
        self.re, self.im = _Format(shown.real), _Format(shown.imag)

    @property
    def width(self) -> int:
        return self.re.width + self.im.width + 1

    def __call__(self, v: Any) -> str:
        sign = "-" if v.imag < 0 or (v.imag == 0 and math.copysign(1, v.imag) < 0) else "+"
        return f"{self.re(v.real)}{sign}{self.im(abs(v.imag)).lstrip()}j"


def _edges(a: Any) -> Any:
    """The elements that a summary shows."""
    n = Options.edgeitems
    for axis in range(a.ndim):
        if a.shape[axis] > 2 * n:
            index = [*range(n), *range(a.shape[axis] - n, a.shape[axis])]
            a = np.take(a, index, axis)
    return a


def _lines(a: Any, indent: int, short: bool, form: Any) -> str:
    n = Options.edgeitems
    cut = short and a.shape[0] > 2 * n if a.ndim else False
    if a.ndim == 0:
        return str(form(a[()]))
    if a.ndim == 1:
        items = [form(v) for v in (a[:n] if cut else a)]
        if cut:
            items += [" ..."] + [form(v) for v in a[-n:]]
        per_line = max(1, (Options.linewidth - indent) // (form.width + 2))
        rows = [items[i:i + per_line] for i in range(0, len(items), per_line)] or [[]]
        return "[" + (",\n" + " " * (indent + 1)).join(", ".join(r) for r in rows) + "]"
    parts = [_lines(x, indent + 1, short, form) for x in (a[:n] if cut else a)]
    if cut:
        parts += ["..."] + [_lines(x, indent + 1, short, form) for x in a[-n:]]
    between = "," + "\n" * (a.ndim - 1) + " " * (indent + 1)
    return "[" + between.join(parts) + "]"


def format_array(array: Any, indent: int) -> str:
    """The numbers of an array in PyTorch's layout."""
    if is_bfloat16(array.dtype):
        array = array.astype(np.float32)
    if array.size == 0 and array.ndim == 1:
        return "[]"
    short = array.size > Options.threshold
    shown = _edges(array) if short else array
    form: Any = _ComplexFormat(shown) if array.dtype.kind == "c" else _Format(shown)
    return _lines(array, indent, short, form)


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor alone, without `tensor(...)` around them: `torch._tensor_str`."""
    return format_array(self.detach().array, indent)


def tensor_repr(t: Tensor) -> str:
    """`repr(tensor)`."""
    if t.level:
        return t.trace.describe(t)
    name = "tensor" if type(t) in OWN else type(t).__name__
    prefix = "Parameter containing:\n" if name == "tensor" and isinstance(t, Parameter) else ""
    around = "Parameter({})" if not prefix and isinstance(t, Parameter) else "{}"
    array, suffix = t.array, []
    if type(array) is MetaArray:
        body = "..."
        suffix += ["device='meta'", f"size={tuple(array.shape)}"]
        if array.dtype != default_dtype():
            suffix.append(f"dtype={t.dtype}")
    else:
        body = format_array(array, len(name) + 1)
        if array.size == 0 and array.ndim != 1:
            suffix.append(f"size={tuple(array.shape)}")
            body = "[]"
        if array.dtype not in (default_dtype(), I64, np.bool_) and not (
                array.dtype.kind == "c" and array.dtype.itemsize == 2 * default_dtype().itemsize):
            suffix.append(f"dtype={t.dtype}")
        elif array.size == 0 and array.dtype != default_dtype():
            suffix.append(f"dtype={t.dtype}")
    if (node := _node(t)) is not None:
        suffix.append(f"grad_fn=<{node}>")
    elif t._rg:
        suffix.append("requires_grad=True")
    return prefix + around.format(_with_suffixes(f"{name}({body}", suffix) + ")")


def _node(t: Any) -> str | None:
    """The name of its node; PyTorch's word where it may not be asked for one (an outdated view)."""
    try:
        return None if t.grad_fn is None else type(t.grad_fn).__name__
    except AutogradError:
        return "Invalid"


def sparse_repr(t: Any) -> str:
    """`repr` of a sparse tensor: its indices and values, then its size, layout and history."""
    def block(name: str, x: Any) -> str:
        body = format_array(x.array, len("tensor(") + len(name) + len("=tensor("))
        empty = f", size={tuple(x.shape)}" if not x.array.size else ""
        return f"{name}=tensor({'[]' if empty else body}{empty})"
    if t.layout is sparse_coo:
        parts = [block("indices", t._indices())]
    else:
        names = ("ccol", "row") if t.layout in BY_COLUMN else ("crow", "col")
        parts = [block(f"{n}_indices", getattr(t, f"{n}_indices")()) for n in names]
    parts.append(block("values", (t.values() if t.is_coalesced() else t._values()).detach()))
    suffix = [f"size={tuple(t.shape)}", f"nnz={t._nnz()}"]
    if t.dtype.dtype not in (default_dtype(), I64, np.bool_) and not (
            t.dtype.is_complex and t.dtype.itemsize == 2 * default_dtype().itemsize):
        suffix.append(f"dtype={t.dtype}")
    suffix.append(f"layout={t.layout}")
    if (node := _node(t)) is not None:
        suffix.append(f"grad_fn=<{node}>")
    elif t.requires_grad:
        suffix.append("requires_grad=True")
    if t.layout is sparse_coo:
        parts.append(suffix.pop(0))
    return _with_suffixes("tensor(" + ",\n       ".join(parts), suffix) + ")"


setattr(SparseTensor, "__repr__", sparse_repr)  # noqa: B010  # the class lies layers below


def _with_suffixes(text: str, suffixes: list[str]) -> str:
    """Append them, each on a new line where the last one would grow too long."""
    indent = " " * len("tensor(")
    length = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if length + len(suffix) + 2 > Options.linewidth:
            text += f",\n{indent}{suffix}"
            length = len(indent) + len(suffix)
        else:
            text += f", {suffix}"
            length += len(suffix) + 2
    return text
