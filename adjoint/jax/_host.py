"""Functions of NumPy arrays among the ops: called once per example under vmap."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.modes import is_grad_enabled
from adjoint.base.aval import Aval, MetaArray
from adjoint.core.bind import bind
from adjoint.core.op import Op
from adjoint.core.tensor import wrap
from adjoint.jax._array import ShapeDtypeStruct, inside, make, moves
from adjoint.ops.shape import batch_loop

_host = Op("host_call", lambda *arrays, run, place, shape, dtype: run(place, arrays),
           lambda *avals, run, place, shape, dtype: Aval(shape, dtype), batch=batch_loop)


def followed(tensors: Sequence[Any]) -> bool:
    """Is a derivative taken of one of them?"""
    return is_grad_enabled() and any(map(moves, tensors))


def host_call(run: Callable[..., Any], tensors: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The tensors that `run(*arrays)` gives as arrays. Called once for all of its outputs."""
    kinds = [ShapeDtypeStruct(w.shape, w.dtype) for w in wanted]
    if followed(tensors):
        raise ValueError("Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use "
                         "callbacks while taking gradients.")
    last: dict[str, Any] = {}

    def part(place: int, arrays: Any) -> Any:
        known = last.get("arrays")
        if known is None or not all(np.array_equal(a, b) for a, b in zip(known, arrays,
                                                                          strict=True)):
            last.update(arrays=[np.array(a) for a in arrays], out=run(*arrays))
        return np.array(last["out"][place])
    if not kinds:
        run(*[np.asarray(t.array) for t in tensors])
        return []
    if not tensors:
        return [wrap(np.asarray(v)) for v in run()]
    return [bind(_host, tuple(tensors), {"run": part, "place": k, "shape": kind.shape,
                                         "dtype": kind.dtype}) for k, kind in enumerate(kinds)]


def computed(run: Callable[..., Any], *tensors: Any) -> list[Any]:
    """The tensors that `run(*arrays)`, a tuple of arrays, gives, without a derivative.

    Their shapes and dtypes must follow from those of the operands: where these have no values, or
    one for each example of a vmap, `run` is tried on ones first.
    """
    ts = [t.detach() for t in tensors]
    if not any(t.level or isinstance(t.array, MetaArray) for t in ts):
        return [wrap(np.asarray(v)) for v in run(*[inside(make(t)) for t in ts])]
    tried = run(*[np.ones(tuple(t.shape), t.array.dtype) for t in ts])
    kinds = [make(wrap(np.asarray(v))) for v in tried]
    return host_call(lambda *xs: [np.asarray(v).astype(k.dtype) for v, k in zip(
        run(*xs), kinds, strict=True)], ts, kinds)


__all__ = ["computed", "followed", "host_call"]
