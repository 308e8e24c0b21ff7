"""Who shows the memory of whom, and was a saved value written to? The check behind PyTorch's
"modified by an inplace operation", with both lines: the one that saved and the one that wrote."""
from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import of_numpy
from adjoint.base.errors import AutogradError
from adjoint.core.modes import GRAD, INFERENCE
from adjoint.core.op import Op
from adjoint.core.tensor import (
    INFERENCE_CELL,
    Kept,
    OutRef,
    Tensor,
    fingerprint,
    owner_of,
    reflection,
    share_cell,
)

_LEGACY = {"float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
           "int64": "LongTensor", "int32": "IntTensor", "bool": "BoolTensor",
           "bfloat16": "BFloat16Tensor", "complex64": "ComplexFloatTensor",
           "complex128": "ComplexDoubleTensor", "int16": "ShortTensor", "int8": "CharTensor",
           "uint8": "ByteTensor"}


def tie_view(t: Any, parent: Any, op: Any, attrs: Any, index: int, mode: int) -> None:
    """Make `t`, which shows memory of `parent`, a view of the root of its family."""
    if parent._cell is INFERENCE_CELL:
        t._cell = INFERENCE_CELL
        return
    root = parent if parent._base is None else parent._base
    t._cell = share_cell(parent)
    t._base = root
    t._steps = (*parent._steps, (op, attrs, index))
    t._creation = ("inference" if mode & INFERENCE else "no_grad" if not mode & GRAD
                   else "multi" if index >= 0 else parent._creation)
    if not mode & GRAD:
        t._rg = parent._rg                         # as PyTorch: it asks the base
    kids = root._kids
    if kids is None:
        kids = root._kids = []
    elif len(kids) > 16 and not len(kids) & (len(kids) - 1):
        kids[:] = [k for k in kids if k() is not None]
    kids.append(weakref.ref(t))


def make_view(t: Any, parent: Any, op: Op, attrs: Mapping[str, Any], index: int,
              mode: int) -> None:
    """Tie a view to the root of its family, where it really shares the parent's memory."""
    if t.array.base is None or not isinstance(parent, Tensor):      # the op had to copy
        return
    if parent.turn:
        if reflection(t, parent, op, attrs, index):
            tie_view(t, parent, op, attrs, index, mode)
        return
    owner, shown = t.array.base, parent.array
    if type(t.array) is np.ndarray and owner is not shown and owner is not shown.base \
            and not np.may_share_memory(t.array, shown):
        return
    if type(t.array) is MetaArray and owner not in (shown, shown.base):
        return
    tie_view(t, parent, op, attrs, index, mode)


def make_views(made: Sequence[Any], parent: Any, op: Op, attrs: Mapping[str, Any],
               mode: int) -> None:
    """`make_view` for the outputs of an op; what the views of several share is found once."""
    owner, shared = made[0].array.base if op.multi and made else None, parent.array
    if (owner is None or type(owner) is not np.ndarray or parent.turn
            or owner is not shared and owner is not shared.base
            or parent._cell is INFERENCE_CELL or any([t.array.base is not owner for t in made])):
        for i, t in enumerate(made):
            make_view(t, parent, op, attrs, i if op.multi else -1, mode)
        return
    root = parent if parent._base is None else parent._base
    cell, steps, graded = share_cell(parent), parent._steps, mode & GRAD
    born = "inference" if mode & INFERENCE else "multi" if graded else "no_grad"
    kids = root._kids
    if kids is None:
        kids = root._kids = []
    elif len(kids) > 16 and (len(kids) + len(made)).bit_length() > len(kids).bit_length():
        kids[:] = [k for k in kids if k() is not None]
    for i, t in enumerate(made):
        t._cell, t._base, t._creation = cell, root, born
        t._steps = (*steps, (op, attrs, i))
        if not graded:
            t._rg = parent._rg
    kids.extend(map(weakref.ref, made))


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
