"""Sequences of different lengths: padded, packed, and back."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import adjoint.nn._core as core
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.tensor import Tensor, wrap

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
           "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence"]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """The steps of a batch of sequences one after the other, without padding.

    ``data`` (sum of lengths, *), ``batch_sizes`` (longest,): how many sequences have each step.
    ``sorted_indices`` says how the batch was sorted by falling length, ``unsorted_indices`` undoes
    it. Make one with ``pack_padded_sequence`` or ``pack_sequence``.
    """

    def __new__(cls, data: Tensor, batch_sizes: Tensor | None = None,
                sorted_indices: Tensor | None = None, unsorted_indices: Tensor | None = None
                ) -> PackedSequence:
        if batch_sizes is None:
            raise ArgumentError("PackedSequence: batch_sizes is needed")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> PackedSequence:
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with ``data.to(*args, **kwargs)``."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with(data)

    def _call(self, name: str) -> PackedSequence:
        data = getattr(self.data, name)()
        return self if data is self.data else self._with(data)

    def cpu(self) -> PackedSequence:
        """Everything lives on the CPU already."""
        return self._call("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Raises as Tensor.cuda does: there is no CUDA device here."""
        return self._with(self.data.cuda(*args, **kwargs))

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self._call("double")

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self._call("float")

    def half(self) -> PackedSequence:
        """The same in float16."""
        return self._call("half")

    def long(self) -> PackedSequence:
        """The same in int64."""
        return self._call("long")

    def int(self) -> PackedSequence:
        """The same in int32."""
        return self._call("int")

    def short(self) -> PackedSequence:
        """The same in int16."""
        return self._call("short")

    def char(self) -> PackedSequence:
        """The same in int8."""
        return self._call("char")

    def byte(self) -> PackedSequence:
        """The same in uint8."""
        return self._call("byte")

    def pin_memory(self) -> PackedSequence:
        """Returns itself: pinning has no meaning on the CPU."""
        return self

    def is_pinned(self) -> bool:
        """False."""
        return False

    @property
    def is_cuda(self) -> bool:
        """False."""
        return False


def _int64(values: Any) -> Tensor:
    return wrap(np.asarray(values, np.int64))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``; None stays None."""
    if permutation is None:
        return None
    array = permutation.array
    out = np.empty_like(array)
    out[array] = np.arange(array.size, dtype=array.dtype)
    return wrap(out)


def pack_padded_sequence(input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Pack padded sequences (T, B, *) (or (B, T, *) with ``batch_first``) of the given lengths.

    With ``enforce_sorted`` the lengths must fall; otherwise the batch is sorted here and the
    order kept. Raises ArgumentError for lengths that do not fit.

    >>> import adjoint as ad
    >>> p = pack_padded_sequence(ad.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> p.data.tolist(), p.batch_sizes.tolist()
    ([1, 3, 2], [2, 1])
    """
    given = lengths.array if isinstance(lengths, Tensor) else np.asarray(lengths)
    given = given.astype(np.int64)
    steps, batch = (input.shape[1], input.shape[0]) if batch_first else (
        input.shape[0], input.shape[1])
    if given.ndim != 1 or given.size != batch:
        raise ArgumentError(f"Expected `len(lengths)` to be equal to batch_size, but got "
                            f"{given.size} (batch_size={batch})")
    if given.size == 0 or given.min() <= 0:
        raise ArgumentError("Length of all samples has to be greater than 0, but found an element "
                            f"in 'lengths' that is <= 0: {given.tolist()}")
    if not input.numel():
        raise ArgumentError("Cannot pack empty tensors.")
    if given.max() > steps:
        raise ShapeError(f"pack_padded_sequence: a length is {given.max()}, but the padded "
                         f"input {tuple(input.shape)} has {steps} steps")
    order = None
    if enforce_sorted:
        if (np.diff(given) > 0).any():
            raise ArgumentError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is "
                "True. You can pass `enforce_sorted=False` to pack_padded_sequence and/or "
                "pack_sequence to sidestep this requirement if you do not need ONNX exportability.")
    else:
        permutation = np.argsort(-given, kind="stable")
        order, given = _int64(permutation), given[permutation]
        input = input.index_select(0 if batch_first else 1, order)
    sizes = (given[None, :] > np.arange(given[0])[:, None]).sum(1)
    padded = input.transpose(0, 1) if batch_first else input
    data = core.cat([padded[t, :n] for t, n in enumerate(sizes.tolist())])
    return PackedSequence(data, _int64(sizes), order)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False,
                        padding_value: float = 0.0, total_length: int | None = None
                        ) -> tuple[Tensor, Tensor]:
    """Undo ``pack_padded_sequence``: (padded (T, B, *), lengths (B,)).

    ``total_length`` pads to that many steps; ArgumentError if a sequence is longer.

    >>> import adjoint as ad
    >>> p = pack_sequence([ad.tensor([1, 2]), ad.tensor([3])])
    >>> pad_packed_sequence(p, batch_first=True)[0].tolist()
    [[1, 2], [3, 0]]
    """
    sizes = sequence.batch_sizes.array.tolist()
    longest, batch = len(sizes), sizes[0]
    if total_length is not None and total_length < longest:
        raise ArgumentError("Expected total_length to be at least the length of the longest "
                            f"sequence in input, but got total_length={total_length} and max "
                            f"sequence length being {longest}")
    steps = longest if total_length is None else total_length
    data, rest = sequence.data, tuple(sequence.data.shape[1:])
    rows, start = [], 0
    for n in sizes:
        row = data[start:start + n]
        if n < batch:
            fill = core.full((batch - n, *rest), padding_value, dtype=data.dtype)
            row = core.cat([row, fill])
        rows.append(row)
        start += n
    rows += [core.full((batch, *rest), padding_value, dtype=data.dtype)] * (steps - longest)
    padded = core.stack(rows, int(batch_first))
    lengths = (np.asarray(sizes)[:, None] > np.arange(batch)[None, :]).sum(0)
    if sequence.unsorted_indices is not None:
        back = sequence.unsorted_indices
        padded, lengths = padded.index_select(int(not batch_first), back), lengths[back.array]
    return padded, _int64(lengths)


def pad_sequence(sequences: Tensor | Iterable[Tensor], batch_first: bool = False,
                 padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Stack sequences (L_i, *) to (longest, B, *) (``batch_first``: (B, longest, *)).

    Short ones are filled with ``padding_value`` at the end, or the beginning with
    ``padding_side="left"``.

    >>> import adjoint as ad
    >>> pad_sequence([ad.tensor([1.0, 2.0]), ad.tensor([3.0])], batch_first=True).tolist()
    [[1.0, 2.0], [3.0, 0.0]]
    """
    if not isinstance(sequences, (Iterable, Tensor)):
        raise ArgumentError("pad_sequence: Expected iterable for input sequences, but got arg of "
                            f"type: {type(sequences)}")
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"Expected padding_side to be one of left or right, but got "
                            f"{padding_side}.")
    items = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not items:
        raise ArgumentError("received an empty list of sequences")
    for i, item in enumerate(items):
        if not isinstance(item, Tensor):
            raise DTypeError(f"expected Tensor as element {i} in argument 0, but got "
                             f"{type(item).__name__}")
    rest = tuple(items[0].shape[1:])
    for i, item in enumerate(items):
        if tuple(item.shape[1:]) != rest:
            raise ShapeError(f"pad_sequence: sequence {i} has shape {tuple(item.shape)}; all axes "
                             f"after the first must be {rest} as in sequence 0")
    longest = max(item.shape[0] for item in items)
    padded = []
    for item in items:
        short = longest - item.shape[0]
        if short:
            fill = core.full((short, *rest), padding_value, dtype=item.dtype)
            item = core.cat([item, fill] if padding_side == "right" else [fill, item])
        padded.append(item)
    out: Tensor = core.stack(padded, dim=0 if batch_first else 1)
    return out


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
                   ) -> list[Tensor]:
    """The sequences that ``pad_sequence`` stacked."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:int(n)] for row, n in zip(rows.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences (L_i, *); see ``pack_padded_sequence``."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The list of sequences that ``pack_sequence`` packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def bind(optional: Any, fn: Callable[[Any], Any]) -> Any:
    """``fn(optional)``, or None for None."""
    return None if optional is None else fn(optional)
