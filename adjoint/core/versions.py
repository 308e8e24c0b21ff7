"""Was a saved value written to? The check behind PyTorch's "modified by an inplace operation",
with both lines: the one that saved and the one that wrote."""
from __future__ import annotations

from typing import Any

from adjoint.base.dtypes import of_numpy
from adjoint.base.errors import AutogradError
from adjoint.core.tensor import Kept, OutRef, Tensor, fingerprint, owner_of

_LEGACY = {"float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
           "int64": "LongTensor", "int32": "IntTensor", "bool": "BoolTensor",
           "bfloat16": "BFloat16Tensor", "complex64": "ComplexFloatTensor",
           "complex128": "ComplexDoubleTensor", "int16": "ShortTensor", "int8": "CharTensor",
           "uint8": "ByteTensor"}


def verify(saved: Any, node: Any) -> None:
    """Raise AutogradError where the storage of `saved` (an OutRef, Kept or Tensor) was written to
    since it was saved."""
    cell: Any
    if type(saved) is OutRef:
        cell, version, mark = saved.cell, saved.version, None
    elif type(saved) is Kept:
        cell, version, mark = saved.tensor._cell, saved.version, saved.mark
    else:
        cell, version, mark = saved._cell, 0, None
    if cell.version != version:
        raise AutogradError(_message(saved, version, cell, node), reason="overwritten",
                            about=(cell, node))
    if not cell.exposed:
        return
    if mark is not None:
        changed = fingerprint(saved.array) != mark
    else:
        changed = (cell.print is not None and cell.print[0] == cell.version
                   and fingerprint(owner_of(saved.array)) != cell.print[1])
    if changed:
        cell.what = ""
        raise AutogradError(_message(saved, version, cell, node), reason="overwritten",
                            about=(cell, node))


def _message(saved: Any, expected: int, cell: Any, node: Any) -> str:
    array = saved.array
    saved = saved.tensor if type(saved) is Kept else saved
    kind = _LEGACY.get(of_numpy(array.dtype).name, "Tensor")
    if type(saved) is OutRef:
        origin = f", which is output {saved.index} of {node.forward_name},"
    elif isinstance(saved, Tensor) and saved.grad_fn is not None:
        origin = f", which is output {saved.output_nr} of {saved.grad_fn.forward_name},"
    else:
        origin = ""
    silent = cell.version == expected
    seen = "was changed without a version" if silent else f"is at version {cell.version}"
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [torch.{kind} {list(array.shape)}]{origin} {seen}; expected version "
        f"{expected} instead.\n"
        f"  saved by {node.name()} at {node.where()}\n"
        f"  {cell.where()}\n"
        "  fix: write out of place there (y = y + 1 in place of y += 1), or .clone() the value "
        "before the write")
