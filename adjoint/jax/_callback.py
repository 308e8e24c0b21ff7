"""A function of NumPy arrays among the ops: called once per example under vmap."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.forward import ForwardTensor
from adjoint.autograd.modes import is_grad_enabled
from adjoint.base.aval import Aval
from adjoint.core.bind import bind
from adjoint.core.op import Op
from adjoint.core.tensor import wrap
from adjoint.jax._array import ShapeDtypeStruct
from adjoint.ops.shape import batch_loop

_host = Op("host_call", lambda *arrays, run, place, shape, dtype: run(place, arrays),
           lambda *avals, run, place, shape, dtype: Aval(shape, dtype), batch=batch_loop)


def _moves(t: Any) -> bool:
    while t.level:
        if isinstance(t, ForwardTensor):
            return True
        t = t.value
    return bool(t._rg)


def host_call(run: Callable[..., Any], tensors: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The tensors that `run(*arrays)` gives as arrays. Called once for all of its outputs."""
    kinds = [ShapeDtypeStruct(w.shape, w.dtype) for w in wanted]
    if is_grad_enabled() and any(map(_moves, tensors)):
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
