"""Reductions over the axis of a named `vmap`: psum and its family (JAX's names).

They are ops, so that a gradient or a push-forward taken inside of the vmap goes through them. The
attribute `axis` is the vmap; `impl` says what its n examples give where they are all equal. psum is
its own transpose: a gradient taken inside of the vmap is that of the sum, over examples, of what
each of them returns.
"""
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import UnboundAxis
from adjoint.base.tree import tree_map
from adjoint.core.op import op
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import mapping
from adjoint.func.batch import Batch
from adjoint.ops.pointwise import add as add_op
from adjoint.ops.pointwise import div as div_op
from adjoint.ops.reduce import amax_op, amin_op, sum_op
from adjoint.ops.shape import permute_op


def _swap(x: Any) -> Any:
    return permute_op(x, dims=(1, 0, *range(2, len(x.shape))))


def _samples() -> list[Any]:
    return [((np.array([[0.5, -1.0, 2.0]]),), {"axis": SimpleNamespace(size=2)})]


def _sum_first(x: Any) -> Any:
    return sum_op(x, dim=(0,), keepdim=False)


psum_op: Any = op(
    "psum", impl=lambda x, /, *, axis: np.multiply(x, axis.size, dtype=x.dtype),
    infer=lambda x, *, axis: Aval(x.shape, x.dtype),
    vjp={"x": lambda ct, *, axis: psum_op(ct, axis=axis)}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(args[0], **attrs), collective=_sum_first,
    cost=lambda x, *, axis: x.size, domain=_samples)
all_gather_op: Any = op(
    "all_gather", impl=lambda x, /, *, axis: np.repeat(x[None], axis.size, axis=0),
    infer=lambda x, *, axis: Aval((axis.size, *x.shape), x.dtype),
    vjp={"x": lambda ct, *, axis: _own_row(psum_op(ct, axis=axis), axis)}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: _swap(op_.call(args[0], **attrs)),
    collective=lambda x: x, domain=_samples)


def _own_row(rows: Any, axis: Any) -> Any:
    """Row i of `rows`, for example i."""
    if not isinstance(axis, Batch):             # equal examples: the mean of what each one gets
        return div_op(_sum_first(rows), axis.size)
    shape = (axis.size,) + (1,) * (len(rows.shape) - 1)
    eye = axis.lift(wrap(np.eye(axis.size, dtype=rows.array.dtype).reshape(axis.size, *shape)))
    return _sum_first(eye * rows)


def _mapped(x: Any, axis: Batch) -> Any:
    """`x` with a value per example of `axis`, which its transpose relies on."""
    return add_op(x, axis.lift(wrap(np.zeros(axis.size, x.array.dtype))))


def _axes(name: str, axis_name: Any) -> list[Batch]:
    """The vmaps of these names that are running, innermost first where a name occurs twice."""
    running, trace = [], mapping.get()
    while trace is not None:
        running.append(trace)
        trace = trace.outer
    found = []
    for wanted in axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,):
        trace = next((t for t in running if t.axis_name == wanted), None)
        if trace is None:
            raise UnboundAxis(f"Found an unbound axis name: {wanted}. {name}: no vmap with "
                              f"axis_name={wanted!r} is active, only "
                              f"{[t.axis_name for t in reversed(running)]}")
        found.append(trace)
    return found


def _each(f: Callable[[Tensor], Any], number: Callable[[Any], Any], tree: Any) -> Any:
    return tree_map(lambda x: f(x) if isinstance(x, Tensor) else
                    f(wrap(x)) if isinstance(x, np.ndarray) else number(x), tree)


def axis_size(axis_name: Any) -> int:
    """The number of examples along the mapped axis (or axes) of that name."""
    size = 1
    for trace in _axes("axis_size", axis_name):
        size *= trace.size
    return size


def axis_index(axis_name: Any) -> Any:
    """The position of each example along the mapped axis of that name; of several, counted along
    all of them, the last one fastest.

    >>> import adjoint as ad
    >>> ad.func.vmap(lambda x: x * ad.func.axis_index("i"), axis_name="i")(ad.ones(3))
    tensor([0., 1., 2.])
    """
    first, *others = _axes("axis_index", axis_name)
    place = first.lift(wrap(np.arange(first.size)))
    for trace in others:
        place = place * trace.size + trace.lift(wrap(np.arange(trace.size)))
    return place


def psum(x: Any, axis_name: Any) -> Any:
    """The sum of a tree of values over the mapped axis (or several) of that name, the same for
    every example; of a number, that number times the size of the axis.

    >>> import adjoint as ad
    >>> ad.func.vmap(lambda x: x / ad.func.psum(x, "i"), axis_name="i")(ad.tensor([1.0, 3.0]))
    tensor([0.2500, 0.7500])
    """
    def over(trace: Batch, tree: Any) -> Any:
        return _each(lambda v: psum_op(v, axis=trace), lambda v: v * trace.size, tree)
    for trace in _axes("psum", axis_name):
        x = over(trace, x)
    return x


def pmean(x: Any, axis_name: Any) -> Any:
    """The mean of a tree of values over the mapped axis of that name."""
    size = axis_size(axis_name)
    return tree_map(lambda v: v / size, psum(x, axis_name))


def all_gather(x: Any, axis_name: Any, *, axis: int = 0) -> Any:
    """The values of all examples along a new axis, the same for every example."""
    (trace,) = _axes("all_gather", axis_name)

    def gather(v: Any) -> Any:
        return all_gather_op(_mapped(v, trace), axis=trace).movedim(0, axis)
    return _each(gather, lambda v: gather(wrap(np.asarray(v))), x)


def _extreme(name: str, reduce: Callable[..., Any], x: Any, axis_name: Any) -> Any:
    def over(trace: Batch, tree: Any) -> Any:
        return _each(lambda v: reduce(all_gather_op(_mapped(v, trace), axis=trace), dim=(0,),
                                      keepdim=False), lambda v: v, tree)
    for trace in _axes(name, axis_name):
        x = over(trace, x)
    return x


def pmax(x: Any, axis_name: Any) -> Any:
    """The maximum of a tree of values over the mapped axis; ties share the gradient."""
    return _extreme("pmax", amax_op, x, axis_name)


def pmin(x: Any, axis_name: Any) -> Any:
    """The minimum of a tree of values over the mapped axis; ties share the gradient."""
    return _extreme("pmin", amin_op, x, axis_name)


__all__ = ["all_gather", "axis_index", "axis_size", "pmax", "pmean", "pmin", "psum"]
