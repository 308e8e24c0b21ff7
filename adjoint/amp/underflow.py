"""How much of a gradient 16 bits lose: zeros, subnormal numbers and overflows by parameter."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoint.base.dtypes import DType, finfo, float16, of_numpy, to_numpy
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor


@dataclass(frozen=True)
class Underflow:
    """One tensor: of `total` elements that are not 0, what becomes of them in 16 bits."""

    name: str
    total: int
    zero: int          # become 0
    subnormal: int     # keep fewer bits
    infinite: int      # overflow
    smallest: float    # magnitudes before the cast; 0.0 where there is no element
    largest: float


@dataclass(frozen=True)
class UnderflowReport:
    """Rows in the order of the model; prints as a table."""

    dtype: DType
    scale: float
    rows: tuple[Underflow, ...]

    @property
    def total(self) -> int:
        """Elements that are not 0."""
        return sum(r.total for r in self.rows)

    @property
    def zero(self) -> int:
        """Elements that become 0."""
        return sum(r.zero for r in self.rows)

    def __str__(self) -> str:
        width = max([len("all"), *(len(r.name) for r in self.rows)])
        info = finfo(self.dtype)
        head = (f"gradients in {self.dtype.name} with scale {self.scale:g} (smallest normal "
                f"{info.smallest_normal:.3g}, smallest {info.smallest_subnormal:.3g}, largest "
                f"{info.max:.6g})\n{'':{width}}  {'nonzero':>9} {'-> 0':>9} {'subnormal':>9} "
                f"{'-> inf':>9}  {'smallest':>9} {'largest':>9}")
        lines = [head]
        for r in [*self.rows, _whole(self.rows)]:
            lines.append(f"{r.name:{width}}  {r.total:>9} {_share(r.zero, r.total):>9} "
                         f"{_share(r.subnormal, r.total):>9} {_share(r.infinite, r.total):>9}  "
                         f"{r.smallest:>9.2g} {r.largest:>9.2g}")
        return "\n".join(lines)


def _share(n: int, total: int) -> str:
    return "0" if not n else f"{100 * n / total:.1f}%"


def _whole(rows: Sequence[Underflow]) -> Underflow:
    some = [r for r in rows if r.total]
    return Underflow("all", sum(r.total for r in rows), sum(r.zero for r in rows),
                     sum(r.subnormal for r in rows), sum(r.infinite for r in rows),
                     min((r.smallest for r in some), default=0.0),
                     max((r.largest for r in some), default=0.0))


def underflow_report(model: Any, dtype: Any = float16, scale: float = 1.0) -> UnderflowReport:
    """What the gradients of `model` would lose in a 16-bit dtype, per parameter, were the loss
    multiplied by `scale`.

    `model` is a Module, an iterable of (name, tensor) pairs, or a dictionary of tensors; gradients
    are read where there are any, else the tensors themselves. Call it after backward in float32,
    on gradients that are not scaled.

    >>> import adjoint as ad
    >>> w = ad.nn.Parameter(ad.tensor([1.0, 1.0]))
    >>> (w * ad.tensor([1e-9, 1.0])).sum().backward()
    >>> ad.amp.underflow_report({"w": w}).zero, ad.amp.underflow_report({"w": w}, scale=65536).zero
    (1, 0)
    """
    kind = of_numpy(to_numpy(dtype))
    if kind.itemsize != 2 or not kind.is_floating_point:
        raise ArgumentError(f"underflow_report: dtype must be float16 or bfloat16, got {kind}")
    limits = finfo(kind)
    rows = []
    for name, tensor in _named(model):
        source = tensor.grad if tensor.grad is not None else None if tensor.requires_grad \
            else tensor
        values = np.empty(0) if source is None else np.abs(source.array.astype(np.float64)).ravel()
        values = values[values > 0] * scale
        cast = values.astype(np.float32).astype(kind.dtype).astype(np.float64)
        rows.append(Underflow(
            name, values.size, int(np.count_nonzero(cast == 0)),
            int(np.count_nonzero((cast > 0) & (cast < limits.smallest_normal))),
            int(np.count_nonzero(~np.isfinite(cast))),
            float(values.min() / scale) if values.size else 0.0,
            float(values.max() / scale) if values.size else 0.0))
    return UnderflowReport(kind, float(scale), tuple(rows))


def _named(model: Any) -> list[tuple[str, Tensor]]:
    pairs: Iterable[Any]
    if hasattr(model, "named_parameters"):
        pairs = model.named_parameters()
    elif isinstance(model, dict):
        pairs = model.items()
    elif isinstance(model, Iterable) and not isinstance(model, (str, Tensor)):
        pairs = model
    else:
        raise ArgumentError("underflow_report: expected a Module, a dictionary of tensors, or "
                            f"(name, tensor) pairs, got {type(model).__name__}")
    out = []
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Tensor)):
            raise ArgumentError("underflow_report: expected (name, tensor) pairs, got "
                                f"{type(pair).__name__}")
        out.append(pair)
    return out


__all__ = ["Underflow", "UnderflowReport", "underflow_report"]
