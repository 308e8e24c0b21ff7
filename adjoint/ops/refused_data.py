"""What `tensor` says of data that is no table of numbers; loaded where it is needed."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError, DTypeError, ShapeError, StructureError


def ragged(data: Any) -> Exception:
    """The refusal of sequences that are no table, by PyTorch's words: the first of each level says
    how long the others have to be."""
    lengths, first = [], data
    while isinstance(first, (list, tuple)):
        lengths.append(len(first))
        first = first[0] if first else None

    def fault(part: Any, dim: int) -> Exception | None:
        if not isinstance(part, (list, tuple)):
            return None if dim == len(lengths) else StructureError("not a sequence: a number beside"
                                                                   f" sequences, {part!r}")
        if dim == len(lengths):
            kind = type(part).__name__
            return StructureError(
                f"must be real number, not {kind}" if isinstance(first, float) else
                f"'{kind}' object cannot be interpreted as an integer")
        if len(part) != lengths[dim]:
            return ShapeError(f"expected sequence of length {lengths[dim]} at dim {dim} (got "
                              f"{len(part)}): sequences have to be of equal length at every level")
        return next((f for p in part if (f := fault(p, dim + 1))), None)
    return fault(data, 0) or ShapeError("expected sequences of equal length at every level")


def no_dtype(data: Any, first: Any) -> Exception:
    """The refusal of data without numbers."""
    if isinstance(data, str):
        return DTypeError("new(): invalid data type 'str': tensor() takes numbers")
    if isinstance(first, str):
        return ArgumentError(f"too many dimensions 'str': tensor() takes numbers, found {first!r}")
    return DTypeError(f"Could not infer dtype of {type(first).__name__}: expected numbers, bools "
                      "or nested sequences of them of equal length")
