"""A function of NumPy arrays among the ops: called once per example under vmap."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.modes import is_grad_enabled
from adjoint.base.aval import Aval
from adjoint.base.errors import NotSupported
from adjoint.core.bind import bind
from adjoint.core.op import Op
from adjoint.core.tensor import wrap
from adjoint.jax._api import pure_callback
from adjoint.jax._array import ShapeDtypeStruct, is_mapped, moves
from adjoint.jax._flat import Leaves, is_key
from adjoint.ops.shape import batch_loop

_host = Op("host_call", lambda *arrays, run, place, shape, dtype: run(place, arrays),
           lambda *avals, run, place, shape, dtype: Aval(shape, dtype), batch=batch_loop)


def _followed(tensors: Sequence[Any]) -> bool:
    return is_grad_enabled() and any(map(moves, tensors))


def host_call(run: Callable[..., Any], tensors: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The tensors that `run(*arrays)` gives as arrays. Called once for all of its outputs."""
    kinds = [ShapeDtypeStruct(w.shape, w.dtype) for w in wanted]
    if _followed(tensors):
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


def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any,
                sharding: Any = None, ordered: bool = False, **kwargs: Any) -> Any:
    """The output of a function of NumPy arrays that has effects, called where it stands.

    ValueError under derivatives, NotSupported under vmap, where one call stands for many.
    """
    given = Leaves((args, kwargs))
    if _followed(given.tensors):
        raise ValueError("IO callbacks do not support JVP.")
    if any(is_mapped(a) for a in given.arrays if not is_key(a)):
        raise NotSupported("io_callback under vmap: jax.debug.callback is called once per example, "
                           "and pure_callback gives an output for each")
    return pure_callback(callback, result_shape_dtypes, *args, **kwargs)
