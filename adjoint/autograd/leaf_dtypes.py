"""`Tensor.grad_dtype`: a leaf whose gradient has another dtype than the leaf.

The leaf's accumulator has the dtype that cotangents are cast to, as every edge does; a walk that
ends at such a leaf takes the general path, on which each cotangent is compared with its edge.
"""
from __future__ import annotations

from typing import Any

from adjoint.autograd.fit import fit
from adjoint.base.dtypes import DType, cpp_type, of_numpy, scalar_type
from adjoint.base.errors import AutogradError
from adjoint.core.tensor import AccumulateGrad, Port, Tensor, edge_of


def _leaf(t: Tensor, what: str) -> None:
    if not t.is_leaf:
        raise AutogradError(f"grad_dtype can only be {what} on leaf tensors.")


def of(t: Tensor) -> DType | None:
    """The dtype that the gradient of a leaf has; None where it may have any."""
    _leaf(t, "accessed")
    e = t._edge
    if type(e) is not AccumulateGrad or not e.typed:
        return t.dtype
    return None if e.typed == "any" else of_numpy(e.dtype)


def choose(t: Tensor, dtype: DType | None) -> None:
    """Give the gradients of a leaf that dtype from now on; None takes what custom functions return
    as it comes. Refused while there is a gradient of another dtype."""
    _leaf(t, "set")
    if dtype is not None and not isinstance(dtype, DType):
        raise AutogradError("grad_dtype must be a torch.dtype or None, but got "
                            f"{type(dtype).__name__}")
    have = t._grad
    if have is not None and dtype is not None and have.array.dtype != dtype.dtype:
        raise AutogradError(
            f"Cannot set grad_dtype to '{scalar_type(dtype.dtype)}' because there is already a "
            f"gradient with dtype '{cpp_type(have.array.dtype)}'. Please clear the gradient (.grad "
            "= None) before changing grad_dtype, or ensure the new grad_dtype matches the existing "
            "gradient's dtype.")
    e = edge_of(t)
    AccumulateGrad.some_typed = True
    e.typed, e.dtype = ("any", t.array.dtype) if dtype is None else ("own", dtype.dtype)


def taken(ct: Any, edge: Any) -> Any:
    """What a custom function gave, fitted to its edge; in its own dtype where the leaf takes any.
    (The rules of operations leave it to the edge to undo a promotion.)"""
    if type(edge) is not AccumulateGrad or edge.typed != "any":
        return fit(ct, edge)
    dtype = ct.array.dtype if isinstance(ct, Tensor) else ct.dtype
    place: Any = Port(edge, 0, edge.shape, dtype)  # type: ignore[arg-type]  # read for its shape
    return fit(ct, place)
