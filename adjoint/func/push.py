"""jvp, linearize and linear_transpose: forward mode as functions of functions."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.forward import Forward, ForwardTensor
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, DTypeError, StructureError, TransformError
from adjoint.base.tree import Spec, flatten, unflatten
from adjoint.core.inplace import lend, settle, zeros_of
from adjoint.core.modes import as_pytorch
from adjoint.core.op import aval_of_value
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import runners
from adjoint.func.reverse import as_tensor, only_tensors, vjp
from adjoint.ops.create import tensor


def _check(primals: Sequence[Any], tangents: Sequence[Any], specs: tuple[Spec, Spec]) -> None:
    if specs[0] != specs[1]:
        raise StructureError("jvp: Expected primals and tangents to have the same structure, got "
                            f"{specs[0].leaves} and {specs[1].leaves} leaves")
    for i, (p, t) in enumerate(zip(primals, tangents, strict=True)):
        if tuple(p.shape) != tuple(t.shape):
            raise ArgumentError("Trying to set a forward gradient that has a different size than "
                                "that of the original Tensor, this is not supported. Tensor is of "
                                f"size {list(p.shape)} while the given forward gradient is of size "
                                f"{list(t.shape)}: input {i} of jvp")
        if isinstance(t, Tensor) and p.array.dtype != t.array.dtype:
            raise DTypeError(f"jvp: primal {i} has dtype {p.dtype}, its tangent {t.dtype}; they "
                             "must be equal: cast the tangent with .to()")


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False,
        has_aux: bool = False) -> Any:
    """(output, tangent of the output) at `primals` along `tangents` (tuples of arguments).

    strict   an output that depends on none of the primals is an error, not a tangent of zeros
    has_aux  the function returns (output, aux), and the result is (output, tangent, aux)

    Keeps no intermediates: memory does not grow with the depth of `func`.

    >>> import adjoint as ad
    >>> ad.func.jvp(lambda x: x.sin(), (ad.tensor(0.0),), (ad.tensor(1.0),))
    (tensor(0.), tensor(1.))
    """
    if not isinstance(primals, (tuple, list)):
        raise StructureError("jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it "
                             "should be valid to call f(*primals). Got "
                             f"{type(primals).__name__}: one entry per argument of the function")
    leaves, spec = flatten(tuple(primals))
    ts, t_spec = flatten(tuple(tangents))
    if as_pytorch[0] and not leaves:
        raise StructureError("jvp(f, primals, tangents): Expected primals to contain at least one "
                             "Tensor.")
    if spec == t_spec:                      # a number takes the dtype of what it goes with
        leaves = [_like(x, t) for x, t in zip(leaves, ts, strict=True)]
    leaves = [as_tensor(x, "jvp") for x in leaves]
    if spec == t_spec:
        ts = [tensor(t, dtype=p.dtype) if isinstance(t, (int, float, complex)) else
              as_tensor(t, "jvp") for t, p in zip(ts, leaves, strict=True)]
    _check(leaves, ts, (spec, t_spec))
    with Forward() as trace:
        duals = [lend(trace.lift(p, t), p, t) for p, t in zip(leaves, ts, strict=True)]
        # (`Forward.__enter__` returns the Forward)
        args = unflatten(duals, spec)
        out = func(*args)
        settle(trace)
        aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise StructureError("jvp(f, primals, tangents): output of function f should be a "
                                     "tuple: (output, aux) if has_aux is True")
            out, aux = out
        if strict and not all(isinstance(o, ForwardTensor) and o.trace is trace
                              for o in flatten(out)[0]):
            raise TransformError("jvp(f, primals, tangents, strict=True): The output of f is "
                                 "independent of the inputs. This is not allowed with strict=True.")
        if as_pytorch[0]:
            only_tensors("jvp(f, primals, tangents)", out)
        result = _split(trace, out)
        if has_aux:
            return (*result, _split(trace, aux)[0])
        return result


runners.add(jvp.__code__)


def _like(x: Any, t: Any) -> Any:
    """A primal; one that is a number in the dtype of its tangent."""
    if isinstance(x, float) and isinstance(t, (Tensor, np.ndarray)):
        array = t.array if isinstance(t, Tensor) else t
        if is_inexact(array.dtype) and not array.shape:
            return tensor(x, dtype=t.dtype)
    return x


def _split(trace: Any, out: Any) -> tuple[Any, Any]:
    """(primals, tangents) of a tree of outputs; zeros where an output is constant."""
    leaves, spec = flatten(out)
    values, tangents = [], []
    for o in leaves:
        if isinstance(o, ForwardTensor) and o.trace is trace:
            values.append(o.value)
            tangents.append(o.tangent)
        else:
            values.append(o)
            tangents.append(wrap(np.array(zeros_of(aval_of_value(o))))
                            if isinstance(o, (Tensor, np.ndarray)) else
                            tensor(0.0) if isinstance(o, float) else None)
    return unflatten(values, spec), unflatten(tangents, spec)


def linearize(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(output, push): `push(*tangents)` is the derivative at `primals` as a linear function.

    Each push runs the function once more: it costs what a `jvp` costs, and nothing is kept between
    pushes. With has_aux the function returns (output, aux), and so does this: (output, push, aux).

    >>> import adjoint as ad
    >>> y, push = ad.func.linearize(lambda x: x ** 3, ad.tensor(2.0)); y, push(ad.tensor(1.0))
    (tensor(8.), tensor(12.))
    """
    leaves, spec = flatten(primals)
    found = func(*primals)
    output, aux = found if has_aux else (found, None)

    def push(*tangents: Any) -> Any:
        if flatten(tangents)[1] != spec:
            _check(leaves, (), (spec, flatten(tangents)[1]))
        for i, (p, t) in enumerate(zip(leaves, flatten(tangents)[0], strict=True)):
            if np.shape(p) != np.shape(t):
                raise ArgumentError(f"tangent:{i} with shape {list(np.shape(t))} in flattened "
                                    f"pytree doesn't match the shape {list(np.shape(p))} of the "
                                    "corresponding primal: tangents of linearize's function have "
                                    "its inputs' shapes")
        return jvp(func, primals, tangents, has_aux=has_aux)[1]
    return (output, push, aux) if has_aux else (output, push)


def linear_transpose(func: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """The transpose of a linear function: `transpose(ct)` gives a tuple, one entry per argument.

    primals  examples of the arguments (shapes and dtypes; values do not matter)

    Of a function that is not linear it is the transpose of its derivative at zero: that `func` is
    linear is not checked.

    >>> import adjoint as ad
    >>> ad.func.linear_transpose(lambda x: x.cumsum(0), ad.zeros(3))(ad.ones(3))
    (tensor([3., 2., 1.]),)
    """
    zeros, spec = flatten(primals)
    points = unflatten([wrap(np.array(zeros_of(aval_of_value(z)))) for z in zeros], spec)

    def transpose(ct: Any) -> Any:
        return vjp(func, *points)[1](ct)
    return transpose
