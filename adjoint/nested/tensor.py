"""What nested tensors are made of.

    NestedTensor   one tensor of values with all parts end to end along one axis, and the offsets
                   at which they begin (`layout=jagged`)
    StridedNested  one flat buffer, and sizes, strides and start of each part in it
                   (`layout=strided`)
"""
from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, IndexOutOfRange, NotSupported, ShapeError
from adjoint.compiler import SymInt
from adjoint.core.tensor import Size, Tensor, wrap
from adjoint.holders import Holder
from adjoint.ops.device import jagged, strided
from adjoint.ops.public import FUNCTIONS as F

_count = itertools.count(1)
_known: dict[int, tuple[Any, dict[str, Any]]] = {}


class NestedInt(SymInt):
    """The extent of an axis that differs from part to part: prints as `j1`, and equals only the
    extent of a tensor with the same offsets."""

    __slots__ = ("ident", "factor")
    ragged = True                       # lets `Size` take it among its numbers

    def __init__(self, ident: int, factor: int = 1) -> None:
        self.ident, self.factor = ident, factor

    def __mul__(self, other: int) -> NestedInt:
        return NestedInt(self.ident, self.factor * other)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestedInt) and (self.ident, self.factor) == (
            other.ident, other.factor)

    def __hash__(self) -> int:
        return hash((self.ident, self.factor))

    def __ge__(self, other: Any) -> bool:
        if self == other or isinstance(other, int) and other <= 2:
            return True
        raise ArgumentError("ge: relation is indeterminate")

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, int) and other < 2:
            return True
        raise ArgumentError("ge: relation is indeterminate")

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __repr__(self) -> str:
        return f"{self.factor}*j{self.ident}" if self.factor != 1 else f"j{self.ident}"


def extent_of(offsets: Tensor) -> NestedInt:
    """The ragged extent that belongs to these offsets (or lengths): one per tensor of them."""
    known = _notes(offsets)
    if "extent" not in known:
        known["extent"] = NestedInt(next(_count))
    made: NestedInt = known["extent"]
    return made


def _notes(t: Tensor) -> dict[str, Any]:
    """What is known of a tensor of offsets or lengths, for as long as it lives; not among its
    attributes, which are copied and saved."""
    found = _known.get(id(t))
    if found is None:
        key = id(t)
        found = _known[key] = weakref.ref(t, lambda _: _known.pop(key, None)), {}
    return found[1]


def out_of_range(dim: int, rank: int) -> IndexOutOfRange:
    """The error for an axis that is not there."""
    return IndexOutOfRange(f"Dimension out of range (expected to be in range of [{-rank}, "
                           f"{rank - 1}], but got {dim})")


def axis(dim: Any, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= dim < rank:
        raise out_of_range(dim, rank)
    return int(dim) % rank


def spelled_out(index: Any, rank: int) -> list[Any]:
    """The items of an index; one `...` for each axis that it stands for."""
    items = list(index) if isinstance(index, tuple) else [index]
    at = next((k for k, i in enumerate(items) if i is Ellipsis), None)
    if at is not None:
        items[at:at + 1] = [Ellipsis] * (rank - sum(i is not None for i in items) + 1)
    return items


class NestedTensor(Holder):
    """A batch of tensors of different lengths in one tensor of values (`layout=torch.jagged`).

    Its second axis, or another one, is ragged: `size()` has a symbol there. Functions act on the
    values. Made by `adjoint.nested.nested_tensor(..., layout=adjoint.jagged)` and its kin.

    >>> import adjoint as ad
    >>> t = ad.nested.nested_tensor([ad.ones(2, 3), ad.ones(4, 3)], layout=ad.jagged)
    >>> t.dim(), t.offsets().tolist(), t.sum(1).tolist()
    (3, [0, 2, 6], [[2.0, 2.0, 2.0], [4.0, 4.0, 4.0]])
    """

    layout = jagged
    is_nested = True
    _offsets: Tensor
    _lengths: Tensor | None
    _ragged_idx: int

    def __init__(self, values: Tensor, offsets: Tensor, *, lengths: Tensor | None = None,
                 _ragged_idx: int = 1, requires_grad: bool = False,
                 _metadata_cache: Any = None) -> None:
        self._offsets, self._lengths, self._ragged_idx = offsets, lengths, _ragged_idx
        self._hold(values, (offsets.array.size - 1, *values.array.shape))
        if requires_grad:
            values.requires_grad_()

    def _with(self, values: Any, ragged: int | None = None) -> Any:
        return NestedTensor(values, self._offsets, lengths=self._lengths,
                            _ragged_idx=self._ragged_idx if ragged is None else ragged)

    @classmethod
    def _refused(cls, func: Any, name: str) -> Any:
        raise NotSupported(f"aten.{name.strip('_')}.default of a nested tensor of layout jagged: "
                           "work on its values(), unbind() it, or take to_padded_tensor()")

    # -- what it is made of -------------------------------------------------------------------
    @property
    def _values(self) -> Tensor:
        values: Tensor = self._held.detach()
        return values

    def values(self) -> Any:
        """All parts end to end, connected to the graph."""
        return self._held.view(self._held.shape)

    def offsets(self) -> Tensor:
        """Where each part begins, and where the last one ends."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """The length of each part where there are holes between them; None otherwise."""
        return self._lengths

    def starts_and_lengths(self) -> tuple[Any, Any]:
        """As NumPy arrays."""
        at = self._offsets.array
        return at[:-1], np.diff(at) if self._lengths is None else self._lengths.array

    def rows(self) -> tuple[Any, Any, Any]:
        """(part, place in the part, place in the values) of each place of the ragged axis."""
        known = _notes(self._offsets if self._lengths is None else self._lengths)
        found = known.get("rows") if self._lengths is None else None
        if found is None:
            starts, lengths = self.starts_and_lengths()
            part = np.repeat(np.arange(len(lengths)), lengths)
            place = np.arange(len(part)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            found = known["rows"] = part, place, place + starts[part]
        return found

    @property
    def _min_seqlen(self) -> int:
        return int(self.starts_and_lengths()[1].min(initial=1 << 62))

    @property
    def _max_seqlen(self) -> int:
        return int(self.starts_and_lengths()[1].max(initial=0))

    def _get_min_seqlen(self) -> int:
        return self._min_seqlen

    def _get_max_seqlen(self) -> int:
        return self._max_seqlen

    @property
    def _size(self) -> Size:
        inner: list[Any] = list(self._held.array.shape)
        inner[self._ragged_idx - 1] = extent_of(
            self._offsets if self._lengths is None else self._lengths)
        return Size((self.array.shape[0], *inner))

    shape = _size

    def size(self, dim: int | None = None) -> Any:
        """The shape with a symbol for the ragged axis, or the extent of one axis."""
        return self._size if dim is None else self._size[axis(dim, self.dim())]

    @property
    def _strides(self) -> tuple[Any, ...]:
        inner = self._held.stride()
        ragged = self._ragged_idx - 1
        return (self._size[self._ragged_idx] * int(inner[ragged] if not ragged else max(inner)),
                *inner)

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements along each axis; those between parts differ."""
        return self._strides if dim is None else self._strides[axis(dim, self.dim())]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the values are, without holes between the parts."""
        return self._lengths is None and bool(self._held.is_contiguous())

    def numel(self) -> int:
        """Number of elements in all parts."""
        held, ragged = self._held.array.shape, self._ragged_idx - 1
        return int(self.starts_and_lengths()[1].sum()) * math.prod(
            n for d, n in enumerate(held) if d != ragged)

    def parts(self) -> list[Any]:
        """Views of the values, one per part."""
        return [F["narrow"](self._held, self._ragged_idx - 1, int(start), int(length))
                for start, length in zip(*self.starts_and_lengths(), strict=True)]

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def __iter__(self) -> Any:
        return iter(self.parts())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        graph = (f", grad_fn={self.grad_fn}" if self.grad_fn is not None else
                 ", requires_grad=True" if self.requires_grad else "")
        return (f"NestedTensor(size={tuple(self._size)}, offsets={self._offsets}{graph}, "
                f"contiguous={self.is_contiguous()})")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild_jagged, (self._held, self._offsets, self._lengths, self._ragged_idx)


def _rebuild_jagged(values: Any, offsets: Any, lengths: Any, ragged: int) -> NestedTensor:
    return NestedTensor(values, offsets, lengths=lengths, _ragged_idx=ragged)


class StridedNested(Holder):
    """A batch of tensors that may differ in every axis, in one buffer (`layout=torch.strided`)."""

    layout = strided
    is_nested = True
    sizes: list[tuple[int, ...]]
    steps: list[tuple[int, ...]]
    starts: list[int]

    def __init__(self, buffer: Tensor, sizes: Sequence[Sequence[int]],
                 steps: Sequence[Sequence[int]] | None = None,
                 starts: Sequence[int] | None = None, rank: int | None = None) -> None:
        self.sizes = [tuple(s) for s in sizes]
        counts = [math.prod(s) for s in self.sizes]
        self.starts = list(starts) if starts is not None else [
            0, *itertools.accumulate(counts)][:len(counts)]
        self.steps = [tuple(s) for s in steps] if steps is not None else [
            in_order(s) for s in self.sizes]
        self.rank = rank if rank is not None else len(self.sizes[0]) + 1 if self.sizes else 1
        self._hold(buffer, (len(self.sizes), *(
            max(n) for n in zip(*self.sizes, strict=True))))

    def _with(self, values: Any) -> Any:
        return StridedNested(values, self.sizes, self.steps, self.starts, self.rank)

    @classmethod
    def _refused(cls, func: Any, name: str) -> Any:
        raise NotSupported(
            f"Could not run 'aten::{name.strip('_')}' with arguments from the 'NestedTensorCPU' "
            "backend: nested tensors have no such function; unbind() it, or take "
            "to_padded_tensor()")

    @property
    def shape(self) -> Any:
        """Raises: there are as many shapes as parts."""
        raise ShapeError("Internal error: NestedTensorImpl doesn't support sizes: use size(dim), "
                         "or the shapes of unbind()")

    def size(self, dim: int | None = None) -> Any:
        """The extent of one axis, where all parts have the same."""
        if dim is None:
            return self.shape
        at = axis(dim, self.rank)
        if not at:
            return len(self.sizes)
        extents = {s[at - 1] for s in self.sizes}
        if len(extents) > 1:
            raise ShapeError(f"Given dimension {at} is irregular and does not have a size.")
        return extents.pop()

    def stride(self, dim: int | None = None) -> Any:
        """Raises: there are as many strides as parts."""
        raise ShapeError("Internal error: NestedTensorImpl doesn't support strides: use those of "
                         "unbind()")

    def dim(self) -> int:
        """Number of axes, that of the parts counted as one."""
        return self.rank

    ndim = property(dim)
    ndimension = dim

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._held.data_ptr())

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the parts lie in the buffer one after another, each in C order."""
        return all(s == in_order(n) for s, n in zip(self.steps, self.sizes, strict=True)) and (
            self.starts == [0, *itertools.accumulate(math.prod(n) for n in self.sizes)][:-1])

    def numel(self) -> int:
        """Number of elements in all parts."""
        return sum(math.prod(s) for s in self.sizes)

    def values(self) -> Any:
        """The buffer, connected to the graph."""
        return self._held.view(-1)

    def _nested_tensor_size(self) -> Any:
        return wrap(np.array(self.sizes, np.int64).reshape(len(self.sizes), self.rank - 1))

    def _nested_tensor_strides(self) -> Any:
        return wrap(np.array(self.steps, np.int64).reshape(len(self.sizes), self.rank - 1))

    def _nested_tensor_storage_offsets(self) -> Any:
        return wrap(np.array(self.starts, np.int64))

    def parts(self) -> list[Any]:
        """Views of the buffer, one per part."""
        made = []
        for size, step, start in zip(self.sizes, self.steps, self.starts, strict=True):
            if step == in_order(size):
                piece = F["narrow"](self._held, 0, start, math.prod(size)).view(size)
            else:
                piece = F["as_strided"](self._held, size, step, start)
            made.append(piece)
        return made

    def of_parts(self, parts: Sequence[Any]) -> StridedNested:
        """Other parts copied end to end, as a tensor of this kind; differentiable."""
        return strided_of(parts, like=self._held)

    def __len__(self) -> int:
        raise ShapeError("Internal error: NestedTensorImpl doesn't support sizes: use size(0)")

    def __iter__(self) -> Any:
        raise ShapeError("Internal error: NestedTensorImpl doesn't support sizes: iterate over "
                         "unbind()")

    def tolist(self) -> Any:
        """Raises: there is no such list."""
        return self.stride()

    def numpy(self, *, force: bool = False) -> Any:
        """Raises: there is no such array."""
        return self.shape

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        parts = [p.detach().requires_grad_(self.requires_grad) for p in self.parts()]
        lines = ",\n".join("  " + str(p).replace("\n", "\n  ") for p in parts)
        graph = (f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else
                 ", requires_grad=True" if self.requires_grad else "")
        return f"nested_tensor([\n{lines}\n]{graph})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return StridedNested, (self._held, self.sizes, self.steps, self.starts, self.rank)


def in_order(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of C order."""
    made, step = [], 1
    for n in reversed(size):
        made.append(step)
        step *= max(n, 1)
    return tuple(reversed(made))


def strided_of(parts: Sequence[Any], rank: int | None = None, like: Any = None) -> StridedNested:
    """Parts copied end to end; differentiable."""
    flat = F["cat"]([p.reshape(-1) for p in parts]) if parts else (
        F["zeros"](0) if like is None else like.new_zeros(0))
    return StridedNested(flat, [tuple(p.shape) for p in parts], rank=rank)


def jagged_of(parts: Sequence[Any], ragged: int = 1) -> NestedTensor:
    """Parts copied end to end along their axis ``ragged - 1``; differentiable."""
    lengths = [p.shape[ragged - 1] for p in parts]
    offsets = wrap(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return NestedTensor(F["cat"](list(parts), ragged - 1), offsets, _ragged_idx=ragged)


__all__ = ["NestedInt", "NestedTensor", "StridedNested", "axis", "extent_of", "in_order",
           "jagged_of", "out_of_range", "spelled_out", "strided_of"]
