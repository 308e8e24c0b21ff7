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
from adjoint.base.errors import (
    ArgumentError,
    AssertedError,
    AutogradError,
    NotSupported,
    ShapeError,
)
from adjoint.core.tensor import Tensor, wrap
from adjoint.func import jacfwd, jacrev, vmap
from adjoint.func import jvp as jvp_of
from adjoint.ops.shape import identity_op, reshape, stack_op

_FORWARD = ("Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly "    # (sic)
            "implemented for `vectorize=True`. ({})")
_OUTPUTS = "outputs of the user-provided function"


def _tuple(x: Any, what: str, where: str) -> tuple[bool, tuple[Any, ...]]:
    """(was it a tuple, the tuple)."""
    many = isinstance(x, (tuple, list))
    xs = tuple(x) if many else (x,)
    for i, t in enumerate(xs):
        if not isinstance(t, Tensor):
            found = f"value at index {i} has type {type(t)}." if many else (
                f"given {what} has type {type(t)}. (the value at index 0 of one)")
            raise TypeError(f"The {what} given to {where} must be either a Tensor or a tuple of "
                            f"Tensors but the {found}")
    return many, xs


def _variables(xs: Sequence[Any], create_graph: bool) -> tuple[Any, ...]:
    """Variables with these values: connected to them, or fresh leaves."""
    if create_graph:
        return tuple(identity_op(x) if x.requires_grad else x.detach().requires_grad_() for x in xs)
    return tuple(x.detach().requires_grad_() for x in xs)


def _vector(v: Any, like: Sequence[Any], of_inputs: bool, where: str) -> tuple[Any, ...]:
    """The vector `v`, or ones for a single one-element tensor."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            only = "input to the user-provided function is" if of_inputs else (
                "user-provided function returns")
            raise ArgumentError(f"The vector v can only be None if the {only} a single Tensor with "
                                f"a single element. ({where}: v was left out)")
        return (wrap(np.ones(tuple(like[0].shape), like[0].array.dtype)),)
    many, vs = _tuple(v, "v", where)
    if len(vs) != len(like):
        raise ArgumentError(f"v is a tuple of invalid length: should be {len(like)} but got "
                            f"{len(vs)}." if len(like) > 1 else
                            "The given v should contain a single Tensor. "
                            f"({where}: it has {len(vs)})")
    for i, (a, b) in enumerate(zip(vs, like, strict=True)):
        if tuple(a.shape) != tuple(b.shape):
            entry = f"Entry {i} in v" if many else "v"
            raise ShapeError(f"{entry} has invalid size: should be {b.shape} but got {a.shape}. "
                             f"({where}: the shape of {'input' if of_inputs else 'output'} {i})")
    return vs


_NONE = ("{} of the user-provided function is independent of input {{}}. This is not allowed in "
         "strict mode.")
_FLAT = ("The {} of the user-provided function is independent of input {{}}. This is not allowed in"
         " strict mode when create_graph=True.")
_LINEAR = ("While computing the hessian, found that the jacobian of the user-provided function with"
           " respect to input {} is independent of the input. This is not allowed in strict mode. "
           "You should ensure that your function is twice differentiable and that the jacobian "
           "depends on the inputs (this would be violated by a linear function for example).")


def _filled(found: Sequence[Any], like: Sequence[Any], none: str = "", flat: str = ""
            ) -> tuple[Any, ...]:
    """Zeros in place of missing derivatives; in strict mode an error: `none` is its text for one
    that is missing, `flat` for one that depends on nothing itself ("": neither is an error)."""
    out = []
    for i, (g, x) in enumerate(zip(found, like, strict=True)):
        text = none if g is None else "" if g.requires_grad else flat
        if text:
            raise AutogradError(text.format(i))
        out.append(wrap(np.zeros(tuple(x.shape), x.array.dtype)) if g is None else g)
    return tuple(out)


def _connected(outs: Sequence[Any], strict: bool) -> None:
    """In strict mode, refuse outputs that depend on no input."""
    for i, o in enumerate(outs):
        if strict and not o.requires_grad:
            raise AutogradError(f"Output {i} of the user-provided function does not require "
                                "gradients. The outputs must be computed in a differentiable "
                                "manner from the input when running in strict mode.")


def _texts(strict: bool, create_graph: bool, output: str, derivative: str = "jacobian"
           ) -> tuple[str, str]:
    """What `_filled` raises, in strict mode."""
    return (_NONE.format(output) if strict else "",
            _FLAT.format(derivative) if strict and create_graph else "")


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
        outs_many, outs = _tuple(func(*xs), _OUTPUTS, "vjp")
        _connected(outs, strict)
        vs = _vector(v, outs, False, "vjp")
    with set_grad_enabled(create_graph):
        found = _filled(_pull(outs, xs, vs, create_graph), xs,
                        *_texts(strict, create_graph, "The output"))
    return (_form(_plain(outs, create_graph), outs_many), _form(_plain(found, create_graph), many))


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(outputs, the Jacobian times v), by forward mode in one pass.

    >>> import adjoint as ad
    >>> ad.autograd.functional.jvp(lambda x: x * x, ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([2., 4.])
    """
    _, given = _tuple(inputs, "inputs", "jvp")
    vs = _vector(v, given, True, "jvp")
    with set_grad_enabled(create_graph or strict), Forward() as level:
        trace: Any = level
        xs = _variables(given, create_graph) if strict else given if create_graph else tuple(
            x.detach() for x in given)
        duals = [trace.lift(x, t) for x, t in zip(xs, vs, strict=True)]
        many, outs = _tuple(func(*duals), _OUTPUTS, "jvp")
        known = [isinstance(o, ForwardTensor) and o.trace is trace for o in outs]
        values = [trace.parts(o)[0] for o in outs]
        _connected(values, strict)
        pushed = [trace.parts(o)[1] if is_known else wrap(np.zeros(tuple(o.shape), o.array.dtype))
                  for o, is_known in zip(outs, known, strict=True)]
    if strict:
        none, flat = _texts(strict, create_graph, "The output")
        ones = [wrap(np.ones(tuple(o.shape), o.array.dtype)) for o in values]
        _filled(_pull(values, xs, ones, False), xs, none)
        _filled(pushed, values, flat=flat)
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
        raise AssertedError('Expected strategy to be either "forward-mode" or "reverse-mode". '
                            'Hint: If your function has more outputs than inputs, "forward-mode" '
                            'tends to be more performant. Otherwise, prefer to use "reverse-mode". '
                            f"(got {strategy!r})")
    many, given = _tuple(inputs, "inputs", "jacobian")
    if vectorize and strict:
        raise AutogradError("torch.autograd.functional.jacobian: `strict=True` and "
                            "`vectorized=True` are not supported together. Please either set "
                            "`strict=False` or `vectorize=False`.")
    if strategy == "forward-mode":
        if not vectorize:
            raise NotSupported(_FORWARD.format("jacobian"))
        return _batched(func, given, many, create_graph, forward=True)
    if vectorize:
        return _batched(func, given, many, create_graph, forward=False)
    with enable_grad():
        xs = _variables(given, create_graph)
        outs_many, outs = _tuple(func(*xs), _OUTPUTS, "jacobian")
        _connected(outs, strict)
    rows = [_rows(outs, k, xs, create_graph, strict) for k in range(len(outs))]
    blocks = [_form(r, many) for r in rows]
    return _form(blocks, outs_many)


def _rows(outs: Sequence[Any], k: int, xs: Sequence[Any], create_graph: bool, strict: bool
          ) -> list[Any]:
    """The blocks of output `k`, one pull per element."""
    out, texts = outs[k], _texts(strict, create_graph, f"Output {k}")
    columns: list[list[Any]] = [[] for _ in xs]
    for at in np.ndindex(*out.shape):
        seed = np.zeros(tuple(out.shape), out.array.dtype)
        seed[at] = 1
        with set_grad_enabled(create_graph):
            found = _filled(_pull([out], xs, [wrap(seed)], create_graph), xs, *texts)
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


def _scalar(func: Callable[..., Any], where: str, strict: bool = False) -> Callable[..., Any]:
    def checked(*xs: Any) -> Any:
        many, outs = _tuple(func(*xs), _OUTPUTS, where)
        _connected(outs, strict)
        if many:
            raise AutogradError(f"The function given to {where} should return a single Tensor, not "
                                f"a tuple of {len(outs)}")
        if outs[0].numel() != 1:
            raise AutogradError(f"The Tensor returned by the function given to {where} should "
                                "contain a single element; its shape is "
                                f"{list(outs[0].shape)}, which has more or less than one element")
        return reshape(outs[0], ())
    return checked


def _slope(func: Callable[..., Any], xs: Sequence[Any], strict: bool, where: str, none: str
           ) -> tuple[Any, tuple[Any, ...]]:
    """(output, gradient) of a scalar function, both with their graph."""
    out = _scalar(func, where, strict)(*xs)
    found = _pull([out], xs, [wrap(np.ones((), out.array.dtype))], True)
    return out, _filled(found, xs, *((none, _LINEAR) if strict else ()))


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
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertedError('Expected strategy to be either "forward-mode" or "reverse-mode". '
                            f"(got {outer_jacobian_strategy!r})")
    if outer_jacobian_strategy == "forward-mode" and not vectorize:
        raise NotSupported(_FORWARD.format("hessian"))
    if outer_jacobian_strategy == "forward-mode" or vectorize:
        nums = tuple(range(len(given)))
        outer = jacfwd if outer_jacobian_strategy == "forward-mode" else jacrev
        xs = given if create_graph else [x.detach() for x in given]
        found = outer(jacrev(_scalar(func, "hessian"), argnums=nums), argnums=nums)(*xs)
        rows = [_form(_plain(row, create_graph), many) for row in found]
        return _form(rows, many)
    rows = jacobian(lambda *xs: _slope(func, xs, strict, "hessian", _LINEAR)[1], tuple(given),
                    create_graph, strict)
    return _form([_form(r, many) for r in rows], many)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(output, v times the Hessian), reverse over reverse.

    >>> import adjoint as ad
    >>> ad.autograd.functional.vhp(lambda x: (x ** 3).sum(), ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([ 6., 12.])
    """
    return _vhp(func, inputs, v, create_graph, strict, "vhp")


def _vhp(func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool,
         where: str) -> tuple[Any, Any]:
    many, given = _tuple(inputs, "inputs", where)
    vs = _vector(v, given, True, where)
    with enable_grad():
        xs = _variables(given, create_graph)
        out, first = _slope(func, xs, strict, where, _NONE.format("The output"))
    with set_grad_enabled(create_graph):
        found = _filled(_pull(first, xs, vs, create_graph), xs,
                        *_texts(strict, create_graph, "The jacobian", "hessian"))
    return _form(_plain([out], create_graph), False), _form(_plain(found, create_graph), many)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(output, the Hessian times v): the Hessian is symmetric, so this is `vhp`.

    >>> import adjoint as ad
    >>> ad.autograd.functional.hvp(lambda x: (x ** 3).sum(), ad.tensor([1.0, 2.0]), ad.ones(2))[1]
    tensor([ 6., 12.])
    """
    return _vhp(func, inputs, v, create_graph, strict, "hvp")


def mapped_pull(out: Any, targets: Sequence[Any], stack: Any) -> tuple[Any, ...]:
    """The gradients of `out` for every cotangent in `stack`, by one mapped walk."""
    found: tuple[Any, ...] = vmap(lambda v: grad(out, targets, v, retain_graph=True,
                                                 materialize_grads=True))(stack)
    return found


def mapped_push(f: Callable[..., Any], inputs: Sequence[Any], at: int, stack: Any
                ) -> tuple[Any, ...]:
    """The tangents of f's outputs for every tangent of operand `at` in `stack`."""
    plain = [x.detach() if isinstance(x, Tensor) else x for x in inputs]

    def pushed(u: Any) -> Any:
        return jvp_of(lambda x: f(*plain[:at], x, *plain[at + 1:]), (plain[at],), (u,))[1]
    found = vmap(pushed)(stack)
    return found if isinstance(found, tuple) else (found,)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
