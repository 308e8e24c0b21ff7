"""Forward mode as a context: `dual_level`, `make_dual`, `unpack_dual` (torch.autograd.forward_ad).

A dual tensor carries its tangent through every op while its level is open; nothing is stored.
"""
from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from adjoint.autograd.api import grad
from adjoint.autograd.forward import Forward
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, AutogradError, ShapeError
from adjoint.core.inplace import lend, settle
from adjoint.core.tensor import Tensor

_open: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_dual_levels", default=())


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns; `tangent` is None for a tensor without one."""

    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Open a level; returns its number. One at a time, as in PyTorch: `func.jvp` nests."""
    if _open.get():
        raise AutogradError("Nested forward mode AD is not supported at the moment: a dual level "
                            "is open already; func.jvp may be nested")
    trace = Forward()
    trace.dual = True
    trace.__enter__()
    _open.set((*_open.get(), trace))
    return len(_open.get()) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the innermost level: its tangents are gone."""
    held = _open.get()
    if not held:
        raise AutogradError("Trying to exit a forward AD level but none is active")
    if level is not None and level != len(held) - 1:
        raise AutogradError("Trying to exit a forward AD level that was not the last one that was "
                            "created. This is not supported.")
    settle(held[-1])
    held[-1].__exit__(None, None, None)
    _open.set(held[:-1])


class dual_level:
    """Context in which dual tensors exist.

    >>> import adjoint as ad
    >>> import adjoint.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(ad.tensor(2.0), ad.tensor(1.0))
    ...     fwAD.unpack_dual(x * x).tangent
    tensor(4.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def _level(level: int | None) -> Any:
    held = _open.get()
    if not held:
        raise AutogradError("Trying to create a dual Tensor for forward AD but no level exists, "
                            "make sure to enter_dual_level() first.")
    return held[-1 if level is None else level]


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Any:
    """`tensor` with a tangent, at the innermost open level."""
    trace = _level(level)
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(t, Tensor):
            raise TypeError(f"make_dual: the {what} is a {type(t).__name__}, expected a tensor")
        if not is_inexact(t.array.dtype):
            raise ArgumentError(f"Expected {what} to be floating point or complex, but got: "
                                f"{t.dtype}")
    for t in (tensor, tangent):
        if t.level and not t.trace.alive:
            t.trace.check(t)
    if getattr(tensor, "trace", None) is trace:
        raise AutogradError("Making a dual Tensor based on a Tensor that already has a forward "
                            f"gradient at the same level {len(_open.get()) - 1} is not supported.")
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise ShapeError("Trying to set a forward gradient that has a different size than that of "
                         "the original Tensor, this is not supported. Tensor is of size "
                         f"{list(tensor.shape)} while the given forward gradient is of size "
                         f"{list(tangent.shape)}.")
    return lend(trace.lift(tensor, tangent), tensor, tangent)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor at the innermost open level."""
    held = _open.get()
    if not held:
        return UnpackedDualTensor(tensor, None)
    trace = held[-1 if level is None else level]
    if getattr(tensor, "trace", None) is trace:
        return UnpackedDualTensor(tensor.value, tensor.tangent)
    return UnpackedDualTensor(tensor, None)


def pull_back(outputs: Sequence[Any], inputs: Sequence[Any], cotangents: Sequence[Any],
              **options: Any) -> tuple[Any, ...] | None:
    """`autograd.grad` of dual tensors: gradients that are dual themselves; None if none is dual.

    With L = Re<cotangent, primal>, the tangent of grad L is the gradient of L's own tangent, which
    is Re<cotangent, tangent>: two walks, of primals and of tangents."""
    held = _open.get()
    trace = next((o.trace for o in (*outputs, *inputs) if getattr(o, "trace", None) in held), None)
    if trace is None:
        return None
    inputs = [trace.parts(x)[0] if isinstance(x, Tensor) else x for x in inputs]
    roots, moving = [], []
    for o, c in zip(outputs, cotangents, strict=True):
        primal, tangent = trace.parts(o)
        weight, change = (c, None) if c is None else trace.parts(c)
        roots.append((primal, weight))
        if tangent is not None and tangent.requires_grad:
            moving.append((tangent, weight))
        if change is not None:
            moving.append((primal, change))
    retain = options.pop("retain_graph")
    found = grad(*_columns(roots, inputs), retain_graph=retain or bool(moving), **options)
    if not moving:
        return found
    moved = grad(*_columns(moving, inputs), retain_graph=retain,
                 **options | {"allow_unused": True, "materialize_grads": False})
    return tuple(g if g is None or t is None else trace.lift(g, t)
                 for g, t in zip(found, moved, strict=True))


def primals(*xs: Any) -> list[Any] | None:
    """Dual tensors without their tangents, for `backward`: `.grad` of a leaf, which is no dual
    tensor, has no tangent. None if the first one is not dual; what is no tensor as it is."""
    trace = getattr(xs[0], "trace", None)
    if trace is None or trace not in _open.get():
        return None
    return [trace.parts(x)[0] if isinstance(x, Tensor) else x for x in xs]


def _columns(roots: Sequence[tuple[Any, Any]], inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
    return [t for t, _ in roots], inputs, [c for _, c in roots]
