"""In-place forms of functions that change a tensor's shape, and of products."""
from __future__ import annotations

import functools
from typing import Any

from adjoint.base.errors import AutogradError, NotSupported
from adjoint.core.inplace import inplace, reshape_level
from adjoint.core.modes import GRAD, state
from adjoint.core.tensor import bump, edge_of, wrap
from adjoint.ops.api_common import box, raw
from adjoint.ops.api_index import setitem
from adjoint.ops.public import FUNCTIONS, public
from adjoint.ops.shape import clone_op


def reshaped(self: Any, name: str, view: Any, *args: Any) -> Any:
    """`self` becomes what `view(self)` is: the same memory, another shape, a longer history."""
    if self._rg and self.is_leaf and state() & GRAD:
        raise AutogradError("a leaf Variable that requires grad is being used in an in-place "
                            f"operation ({name}).")
    if self._kids and any(k() is not None for k in self._kids):
        raise NotSupported(f"{name}: the tensor has views, whose history refers to its shape; use "
                           f"{name.rstrip('_')} and keep the result")
    if self.level:
        reshape_level(self, lambda t: view(t, *args))
        return self
    stand_in = wrap(self.array)
    if self._rg:
        stand_in._rg, stand_in._edge = True, edge_of(self)
    made = view(stand_in, *args)
    if self._base is not None:
        self._steps = (*self._steps, *made._steps)
    self.array = made.array
    self._edge, self._rg = made._edge, made._rg
    bump(self, name)
    return self


def _declare_shapes() -> None:
    def declare(name: str) -> None:
        def f(self: Any, *args: Any, **kwargs: Any) -> Any:
            return reshaped(self, name + "_", functools.partial(FUNCTIONS[name], **kwargs), *args)
        f.__name__ = f.__qualname__ = name + "_"
        f.__doc__ = f"In-place `{name}`: the tensor itself takes the new shape."
        public(name + "_", function=False)(f)
    for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims"):
        declare(name)


_declare_shapes()


def _declare_values() -> None:
    """In-place forms that compute out of place and copy: they are rarely the hot path."""
    def declare(name: str) -> None:
        def f(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = clone_op(self)             # what the rules read must not be overwritten
            setitem(self, Ellipsis, FUNCTIONS[name](before, *args, **kwargs))
            return self
        f.__name__ = f.__qualname__ = name + "_"
        f.__doc__ = f"In-place `{name}`."
        public(name + "_", function=False)(f)
    for name in ("addbmm", "addmv", "addr", "index_reduce", "renorm"):
        declare(name)


_declare_values()


@public("fill_diagonal_", function=False)
def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
    """One value on the main diagonal, in place; with `wrap` it starts again below the last column.
    """
    import numpy as np

    from adjoint.ops.index import index_put_op
    shape = tuple(self.shape)
    step = sum(int(np.prod(shape[d + 1:])) for d in range(len(shape)))
    count = min(shape)
    if wrap and len(shape) == 2 and shape[0] > shape[1]:
        count = -(-shape[0] * shape[1] // step)
    at = np.arange(count) * step
    if raw(self).flags.c_contiguous:
        flat = FUNCTIONS["as_strided"](self, (int(np.prod(shape)),), (1,))
        inplace(index_put_op.op, flat, (at, fill_value), {"dims": (0,), "accumulate": False},
                name="fill_diagonal_")
        return self
    where = tuple(box(self, i) for i in np.unravel_index(at, shape))
    setitem(self, where, fill_value)
    return self
