"""`torch.autograd.functional`: derivatives of a function at a point.

`inputs` is a tensor or a tuple of tensors; results have the same form. Without `create_graph` they
carry no graph. With `strict=True` an output that does not depend on an input raises instead of
giving zeros.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.api import grad
from adjoint.autograd.forward import Forward, ForwardTensor
from adjoint.autograd.modes import enable_grad, set_grad_enabled
from adjoint.base.errors import ArgumentError, AutogradError, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.func import jacfwd, jacrev
from adjoint.ops.shape import identity_op, reshape, stack_op


def _tuple(x: Any, what: str, where: str) -> tuple[bool, tuple[Any, ...]]:
    """(was it a tuple, the tuple)."""
    many = isinstance(x, (tuple, list))
    xs = tuple(x) if many else (x,)
    for i, t in enumerate(xs):
        if not isinstance(t, Tensor):
            raise TypeError(f"The {what} given to {where} must be either a Tensor or a tuple of "
                            f"Tensors but the value at index {i} has type {type(t)}.")
    return many, xs


def _variables(xs: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    """Variables with these values: connected to them, or fresh leaves."""
    if create_graph:
        return tuple(identity_op(x) if x.requires_grad else x.detach().requires_grad_() for x in xs)
    return tuple(x.detach().requires_grad_() for x in xs)


def _vector(v: Any, like: Sequence[Any], what: str, where: str) -> tuple[Any, ...]:
    """The vector `v`, or ones for a single one-element tensor."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise ArgumentError(f"{where}: v can be left out only where the {what} is a single "
                                "tensor with one element")
        return (wrap(np.ones(tuple(like[0].shape), like[0].array.dtype)),)
    vs = _tuple(v, "v", where)[1]
    if len(vs) != len(like):
        raise ArgumentError(f"{where}: v has {len(vs)} tensors, the {what} {len(like)}")
    for i, (a, b) in enumerate(zip(vs, like, strict=True)):
        if tuple(a.shape) != tuple(b.shape):
            raise ShapeError(f"{where}: entry {i} of v has shape {list(a.shape)}, the {what} "
                             f"{list(b.shape)}; they must be equal")
    return vs


def _filled(found: Sequence[Any], like: Sequence[Any], strict: bool, where: str) -> tuple[Any, ...]:
    """Zeros in place of missing derivatives, or an error."""
    out = []
    for i, (g, x) in enumerate(zip(found, like, strict=True)):
        if g is None and strict:
            raise AutogradError(f"{where}: the output of the user-provided function is independent "
                                f"of input {i}. This is not allowed in strict mode.")
        out.append(wrap(np.zeros(tuple(x.shape), x.array.dtype)) if g is None else g)
    return tuple(out)


def _plain(xs: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    return tuple(xs) if create_graph else tuple(x.detach() for x in xs)


def _form(xs: Sequence[Any], many: bool) -> Any:
    return tuple(xs) if many else xs[0]


def _pull(outs: Sequence[Any], xs: Sequence[Any], v: Sequence[Any], create_graph: bool
          ) -> Sequence[Any]:
    """Gradients, None where there is no path."""
    pairs = [(o, c) for o, c in zip(outs, v, strict=True) if o.requires_grad]
    if not pairs:
        return [None] * len(xs)
    return grad([o for o, _ in pairs], list(xs), [c for _, c in pairs], allow_unused=True,
                create_graph=create_graph, retain_graph=True)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(outputs, v times the Jacobian).

    >>> import adjoint as ad
    >>> ad.autograd.functional.vjp(lambda x: x * x, ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([2., 4.])
    """
    many, given = _tuple(inputs, "inputs", "vjp")
    with enable_grad():
        xs = _variables(given, create_graph)
        outs_many, outs = _tuple(func(*xs), "outputs", "vjp")
        vs = _vector(v, outs, "output", "vjp")
    with set_grad_enabled(create_graph):
        found = _filled(_pull(outs, xs, vs, create_graph), xs, strict, "vjp")
    return (_form(_plain(outs, create_graph), outs_many), _form(_plain(found, create_graph), many))


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(outputs, the Jacobian times v), by forward mode in one pass.

    >>> import adjoint as ad
    >>> ad.autograd.functional.jvp(lambda x: x * x, ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([2., 4.])
    """
    _, given = _tuple(inputs, "inputs", "jvp")
    vs = _vector(v, given, "input", "jvp")
    with set_grad_enabled(create_graph), Forward() as level:
        trace: Any = level
        duals = [trace.lift(x if create_graph else x.detach(), t)
                 for x, t in zip(given, vs, strict=True)]
        many, outs = _tuple(func(*duals), "outputs", "jvp")
        values, pushed = [], []
        for i, o in enumerate(outs):
            known = isinstance(o, ForwardTensor) and o.trace is trace
            if strict and not known:
                raise AutogradError(f"jvp: output {i} of the user-provided function is independent "
                                    "of the inputs. This is not allowed in strict mode.")
            values.append(trace.parts(o)[0])
            pushed.append(trace.parts(o)[1] if known else wrap(
                np.zeros(tuple(o.shape), o.array.dtype)))
    return (_form(_plain(values, create_graph), many), _form(_plain(pushed, create_graph), many))


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False,
             strict: bool = False, vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    """The Jacobian: entry [out..., in...]; a tuple per output and per input where those are tuples.

    vectorize  all rows (columns) in one batched pass
    strategy   "reverse-mode", or "forward-mode" (with vectorize=True only)

    >>> import adjoint as ad
    >>> ad.autograd.functional.jacobian(lambda x: x * x, ad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError("jacobian: Expected strategy to be either \"forward-mode\" or "
                            f"\"reverse-mode\", got {strategy!r}")
    many, given = _tuple(inputs, "inputs", "jacobian")
    if vectorize and strict:
        raise AutogradError("jacobian: strict=True and vectorize=True are not supported together. "
                            "Set one of them to False.")
    if strategy == "forward-mode":
        if not vectorize:
            raise NotImplementedError("strategy=\"forward-mode\" needs vectorize=True")
        return _batched(func, given, many, create_graph, forward=True)
    if vectorize:
        return _batched(func, given, many, create_graph, forward=False)
    with enable_grad():
        xs = _variables(given, create_graph)
        outs_many, outs = _tuple(func(*xs), "outputs", "jacobian")
    rows = [_rows(outs, k, xs, create_graph, strict) for k in range(len(outs))]
    blocks = [_form(r, many) for r in rows]
    return _form(blocks, outs_many)


def _rows(outs: Sequence[Any], k: int, xs: Sequence[Any], create_graph: bool, strict: bool
          ) -> list[Any]:
    """The blocks of output `k`, one pull per element."""
    out = outs[k]
    columns: list[list[Any]] = [[] for _ in xs]
    for at in np.ndindex(*out.shape):
        seed = np.zeros(tuple(out.shape), out.array.dtype)
        seed[at] = 1
        with set_grad_enabled(create_graph):
            found = _filled(_pull([out], xs, [wrap(seed)], create_graph), xs, strict, "jacobian")
        for column, g in zip(columns, _plain(found, create_graph), strict=True):
            column.append(g)
    with set_grad_enabled(create_graph):
        return [reshape(stack_op(*c, dim=0), (*out.shape, *x.shape)) if c else wrap(
            np.zeros((*out.shape, *x.shape), x.array.dtype))
            for c, x in zip(columns, xs, strict=True)]


def _batched(func: Callable[..., Any], given: Sequence[Any], many: bool, create_graph: bool,
             forward: bool) -> Any:
    """By the transforms."""
    mode = jacfwd if forward else jacrev
    nums = tuple(range(len(given)))
    xs = given if create_graph else [x.detach() for x in given]
    with enable_grad():
        found = mode(func, argnums=nums)(*xs)
    nested = isinstance(found, tuple) and bool(found) and isinstance(found[0], tuple)
    outer = found if nested else (found,)
    blocks = [_form(_plain(row, create_graph), many) for row in outer]
    return _form(blocks, nested)


def _scalar(func: Callable[..., Any], where: str) -> Callable[..., Any]:
    def checked(*xs: Any) -> Any:
        out = func(*xs)
        if not isinstance(out, Tensor) or out.numel() != 1:
            raise AutogradError(f"{where}: the function must return a single tensor with one "
                                f"element, got {_described(out)}")
        return reshape(out, ())
    return checked


def _described(out: Any) -> str:
    return f"shape {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__


def _gradient(func: Callable[..., Any], strict: bool, where: str) -> Callable[..., Any]:
    """The gradient of a scalar function as a differentiable function."""
    def run(*xs: Any) -> tuple[Any, ...]:
        out = _scalar(func, where)(*xs)
        return _filled(_pull([out], xs, [wrap(np.ones((), out.array.dtype))], True), xs, strict,
                       where)
    return run


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False,
            strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The matrix of second derivatives of a function with one output element; a tuple of tuples
    where the inputs are a tuple.

    >>> import adjoint as ad
    >>> ad.autograd.functional.hessian(lambda x: (x ** 3).sum(), ad.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    many, given = _tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy == "forward-mode" or vectorize:
        nums = tuple(range(len(given)))
        outer = jacfwd if outer_jacobian_strategy == "forward-mode" else jacrev
        xs = given if create_graph else [x.detach() for x in given]
        found = outer(jacrev(_scalar(func, "hessian"), argnums=nums), argnums=nums)(*xs)
        rows = [_form(_plain(row, create_graph), many) for row in found]
        return _form(rows, many)
    gradient = _gradient(func, strict, "hessian")
    rows = jacobian(gradient, tuple(given), create_graph, strict)
    return _form([_form(r, many) for r in rows], many)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(output, v times the Hessian), reverse over reverse.

    >>> import adjoint as ad
    >>> ad.autograd.functional.vhp(lambda x: (x ** 3).sum(), ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([ 6., 12.])
    """
    many, given = _tuple(inputs, "inputs", "vhp")
    vs = _vector(v, given, "input", "vhp")
    with enable_grad():
        xs = _variables(given, create_graph)
        out = _scalar(func, "vhp")(*xs)
        first = _filled(_pull([out], xs, [wrap(np.ones((), out.array.dtype))], True), xs, strict,
                        "vhp")
    with set_grad_enabled(create_graph):
        found = _filled(_pull(first, xs, vs, create_graph), xs, strict, "vhp")
    return _form(_plain([out], create_graph), False), _form(_plain(found, create_graph), many)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(output, the Hessian times v): the Hessian is symmetric, so this is `vhp`.

    >>> import adjoint as ad
    >>> ad.autograd.functional.hvp(lambda x: (x ** 3).sum(), ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([ 6., 12.])
    """
    return vhp(func, inputs, v, create_graph, strict)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
