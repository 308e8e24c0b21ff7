"""Callbacks with effects."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.jax._api import pure_callback
from adjoint.jax._array import is_mapped
from adjoint.jax._flat import Leaves, is_key
from adjoint.jax._host import followed


def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any,
                sharding: Any = None, ordered: bool = False, **kwargs: Any) -> Any:
    """The output of a function of NumPy arrays that has effects, called where it stands.

    Under vmap it is called once per example, which `ordered` refuses: ValueError, as derivatives.
    """
    given = Leaves((args, kwargs))
    if followed(given.tensors):
        raise ValueError("IO callbacks do not support JVP.")
    if ordered and any([is_mapped(a) for a in given.arrays if not is_key(a)]):
        raise ValueError("Cannot `vmap` ordered IO callback.")
    return pure_callback(callback, result_shape_dtypes, *args, vmap_method="sequential", **kwargs)
