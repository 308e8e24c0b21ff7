"""grad, value_and_grad, vjp: reverse mode as functions of functions.

The function is run on fresh leaves; the tape that records it is the one tape there is, at whatever
level the arguments live. A derivative graph is built only where something outside can ask for it:
when the result depends on other tensors that require a gradient.
"""
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from adjoint.autograd.api import in_dtype_of
from adjoint.autograd.engine import walk
from adjoint.autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad
from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, DTypeError, StructureError, TransformError
from adjoint.base.tree import Spec, flatten, outline, unflatten
from adjoint.core.modes import INFERENCE, as_pytorch, modes_open, state
from adjoint.core.node import Freed
from adjoint.core.op import aval_of_value
from adjoint.core.rehearsal import beginning, call
from adjoint.core.tensor import (
    INFERENCE_CELL,
    AccumulateGrad,
    Node,
    Port,
    Tensor,
    edge_of,
    wrap,
)
from adjoint.core.trace import current_level, inner_variables, runners, taped
from adjoint.ops.create import tensor
from adjoint.ops.shape import identity_op


def as_tensor(x: Any, what: str) -> Tensor:
    """A differentiable argument as a tensor."""
    if isinstance(x, Tensor):
        t = x
    elif isinstance(x, (float, complex, np.ndarray, np.generic)):
        t = tensor(x)
    else:
        raise DTypeError(f"{what}: expected tensors of floating dtype at the leaves, got "
                         f"{type(x).__name__}")
    if not is_inexact(t.array.dtype):
        raise DTypeError(f"{what}: only Tensors of floating point and complex dtype can be "
                         f"differentiated, got {t.dtype}; cast the argument, or leave it out of "
                         "argnums")
    return t


FLOAT0 = np.dtype([("float0", np.void, 0)])      # JAX's type of a derivative that has no values


def is_integer(x: Any) -> bool:
    """True for integers and truth values, as numbers, arrays or tensors."""
    dtype = x.array.dtype if isinstance(x, Tensor) else getattr(x, "dtype", None)
    return isinstance(x, int) if dtype is None else dtype.kind in "iub"


def fresh(t: Tensor) -> Tensor:
    """A new variable with the value of `t`, connected to `t` where an outer tape may ask."""
    if t._rg and is_grad_enabled():
        return identity_op(t)
    new = t.trace.strip(t) if t.level else wrap(t.array)
    if not t.level:
        new._cell = t._cell if t._cell is not INFERENCE_CELL else None
        depth = current_level()
        if depth:
            new._born = depth
            inner_variables[0] = True
    new._rg = True
    _made[edge_of(new)] = next(_numbers)
    return new


# When a transform made a variable of its own (see `foreign_leaves`).
_made: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_numbers = itertools.count()


def foreign_leaves(roots: Sequence[Any], own: set[Any], began: int) -> bool:
    """True if the graph below `roots` reaches a variable that somebody may still ask for: not one
    of `own`, nor of a transform that ran within this one, after `began`."""
    seen: set[Any] = set()
    stack = [r.node if type(r) is Port else r for r in roots]
    while stack:
        node = stack.pop()
        if node in seen or node in own:
            continue
        seen.add(node)
        if type(node) is AccumulateGrad:
            if _made.get(node, -1) < began:
                return True
            continue
        stack.extend(e.node if type(e) is Port else e for e in node.edges if e is not None)
    return False


def _recorded(f: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """What `f` returns, with everything recorded, and the tensors that came into a tape."""
    written: list[Any] = []
    token = taped.set(written)
    try:
        with inference_mode(False) if state() & INFERENCE else enable_grad():
            return f(*args, **kwargs), written
    finally:
        taped.reset(token)


runners.add(_recorded.__code__)


def only_tensors(call: str, out: Any, one: bool = False) -> None:
    """Refuse outputs that PyTorch's transforms refuse, for programs that run as `torch`: numbers,
    and no output at all. Other programs may return numbers, as JAX's do."""
    if one:
        if not isinstance(out, Tensor):
            raise TransformError("grad_and_value(f)(*args): Expected f(*args) to return a Tensor, "
                                 f"got {type(out)}")
        return
    outputs = flatten(out)[0]
    if not outputs:
        raise TransformError(f"{call}: Expected f to be a function that has non-empty output (got "
                             f"output = {[out] if out is None else []})")
    for o in outputs:
        if not isinstance(o, Tensor):
            raise TransformError(f"{call}: expected f(*primals) to return only tensors, got "
                                 f"unsupported type {type(o)}")


def _called(what: str) -> str:
    """The call of a transform as errors write it."""
    return {"grad": "grad_and_value(f)(*args)", "vjp": "vjp(f, *primals)"}.get(what, what)


class Pull:
    """Outputs of a run on fresh variables, and how to pull cotangents back."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 argnums: tuple[int, ...], what: str, has_aux: bool, allow_int: bool = False
                 ) -> None:
        self.what = what
        self.still: dict[int, Any] = {}      # place among the leaves -> gradient of an integer
        self.sources: list[Tensor] = []
        self.variables: list[Tensor] = []
        full, began = list(args), next(_numbers)
        self.specs: list[Spec] = []
        for i in argnums:
            check_argnum(what, i, len(args))
            leaves, spec = flatten(args[i])
            for k, x in enumerate(leaves):
                if allow_int and is_integer(x):
                    self.still[sum(s.leaves for s in self.specs) + k] = np.zeros(
                        np.shape(x), FLOAT0)
                    continue
                self.sources.append(as_tensor(x, what))
                self.variables.append(fresh(self.sources[-1]))
                leaves[k] = self.variables[-1]
            self.specs.append(spec)
            full[i] = unflatten(leaves, spec)
        outer = is_grad_enabled()       # in no_grad() the result is a constant of outer tapes
        out, written = _recorded(f, full, kwargs)
        self.aux: Any = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise StructureError(f"{_called(what)}: output of function f should be a tuple: "
                                     "(output, aux) if has_aux is True")
            out, self.aux = out
        self.outputs, self.out_spec = flatten(out)
        if as_pytorch[0]:
            only_tensors("vjp(f, *primals)", out, one=what == "grad")
        self.edges = [edge_of(o) if isinstance(o, Tensor) and o._rg else None
                      for o in self.outputs]
        own = {e.node if type(e) is Port else e for e in map(edge_of, self.variables)}
        roots = [e for e in self.edges if e is not None]
        self.open = outer and (any(t._rg for t in self.sources) or foreign_leaves(
            roots, own, began))
        further = taped.get()
        if self.open and further is not None:
            further += written
        for ref in () if self.open else written:     # what holds a value of this call has no tape
            t = ref()
            if t is not None and not t.level:
                t._edge, t._rg = None, False

    def plain(self, x: Any) -> Any:
        """An output for the caller: without the tape of this call, unless an outer one goes on."""
        if not isinstance(x, Tensor) or self.open or not x._rg:
            return x
        return x.trace.strip(x) if x.level else x.detach()

    def value(self) -> Any:
        """The function's output."""
        return unflatten([self.plain(o) for o in self.outputs], self.out_spec)

    def aux_value(self) -> Any:
        """The auxiliary output."""
        leaves, spec = flatten(self.aux)
        return unflatten([self.plain(o) for o in leaves], spec)

    def back(self, cts: Sequence[Any], keep: bool) -> list[Any]:
        """Cotangents of the variables, in the order of the flattened arguments."""
        capture: dict[Any, list[int]] = {}
        for i, v in enumerate(self.variables):
            capture.setdefault(edge_of(v), []).append(i)
        levels = modes_open() or any(isinstance(c, Tensor) and c.level for c in cts) or any(
            v.level for v in self.variables) or any(
            isinstance(o, Tensor) and o.level for o in self.outputs)
        roots = []
        create = self.open or (is_grad_enabled() and any(
            isinstance(c, Tensor) and c._rg for c in cts))
        for e, c, o in zip(self.edges, cts, self.outputs, strict=True):
            if e is not None and c is not None:
                data = not (create or levels) and isinstance(c, Tensor)
                roots.append((e, beginning(c.array, o.array) if data else c))
        found = walk(roots, keep=keep or create, create=create, capture=capture,
                     accumulate=False, levels=levels and not create) if roots else {}
        return [self._grad(found.get(i), v) for i, v in enumerate(self.variables)]

    def end(self) -> None:
        """The call is over: a backward that ends at its variables alone is a mistake."""
        frame = provenance.user_frame(sys._getframe(1))
        where = Freed(frame.f_code, frame.f_lasti) if frame else Freed(None, 0)
        for v in self.variables:
            if type(v._edge) is AccumulateGrad:
                v._edge.end(where)

    def _grad(self, ct: Any, v: Tensor) -> Any:
        if ct is None:
            aval = aval_of_value(v)
            return wrap(np.zeros(aval.shape, aval.dtype) if type(v.array) is not MetaArray else
                        call(np.zeros, aval.shape, aval.dtype,
                             otherwise=lambda: MetaArray(aval.shape, aval.dtype)))
        if isinstance(ct, Tensor):
            return ct
        if isinstance(ct, MetaArray):
            return wrap(ct if ct.base is None else call(
                np.array, ct, otherwise=lambda: MetaArray(ct.shape, ct.dtype)))
        ct = np.asarray(ct)
        return wrap(ct if ct.base is None and ct.flags.writeable else np.array(ct))

    def regroup(self, grads: Sequence[Any]) -> list[Any]:
        """Gradients in the trees of the arguments."""
        out, start = [], 0
        moving = iter(grads)
        every = [self.still[k] if k in self.still else next(moving)
                 for k in range(sum(s.leaves for s in self.specs))]
        for spec in self.specs:
            out.append(unflatten(every[start:start + spec.leaves], spec))
            start += spec.leaves
        return out


def check_argnum(what: str, i: int, given: int) -> None:
    """Refuse the number of an argument that was not given."""
    if not -given <= i < given:
        raise StructureError(f"Got argnum={i}, but only {given} positional inputs: {what}'s "
                             "argnums say what is differentiated")


def numbers(argnums: Any) -> tuple[tuple[int, ...], bool]:
    """argnums as a tuple, and whether it was a single one."""
    several = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not all(isinstance(i, int) for i in several):
        raise ArgumentError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if not several:
        raise ArgumentError(f"argnums must be non-empty, got argnums={argnums!r}")
    if len(set(several)) < len(several):
        raise ArgumentError(f"argnums elements must be unique, got {argnums!r}")
    return tuple(several), several is not argnums


def check_complex(what: str, place: str, values: Sequence[Any], holomorphic: bool) -> None:
    """Refuse real values where the derivative of a function of complex numbers is asked for."""
    for x in values if holomorphic else ():
        if not (isinstance(x, Tensor) and x.array.dtype.kind == "c"):
            raise DTypeError(f"{what}: holomorphic=True needs complex {place}, got "
                             f"{x.dtype if isinstance(x, Tensor) else type(x).__name__}")


def _unit(p: Pull, holomorphic: bool) -> Any:
    if len(p.outputs) != 1 or not isinstance(p.outputs[0], (Tensor, float, complex, np.generic)):
        raise TransformError(f"{p.what}: Expected the function to return a single tensor, got " + (
            f"{p.out_spec.leaves} outputs" if len(p.outputs) != 1
            else type(p.outputs[0]).__name__))
    if p.out_spec.kind is not None:
        raise TransformError(f"{p.what}: Expected the function to return a single tensor, got a "
                             f"{p.out_spec.kind.__name__} that holds one")
    if not isinstance(p.outputs[0], Tensor):
        p.outputs = [tensor(p.outputs[0])]
    y = p.outputs[0]
    check_complex(p.what, "outputs", [y], holomorphic)
    if y.array.dtype.kind == "c" and not holomorphic:
        raise DTypeError(f"{p.what}: the function returned a complex value ({y.dtype}), and a "
                         "gradient is one of a real value: return its real part, abs() or imag(), "
                         "or pass holomorphic=True for f'(z) of a complex differentiable function")
    if tuple(y.shape) != ():
        raise TransformError(
            f"{_called(p.what)}: Expected f(*args) to return a scalar Tensor, got tensor with "
            f"{len(y.shape)} dims. Maybe you wanted to use the vjp or jacrev APIs instead? The "
            f"shape is {list(y.shape)}: reduce it (.sum()), or use jacrev for a Jacobian")
    return one_for(y.array)


def one_for(array: Any) -> Tensor:
    """What the backward of a number begins with."""
    if type(array) is not MetaArray:
        return wrap(np.ones((), array.dtype))
    return wrap(call(np.ones, (), array.dtype, otherwise=lambda: np.ones((), array.dtype)))


def value_and_grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
                   holomorphic: bool = False, allow_int: bool = False) -> Callable[..., Any]:
    """(value, gradient) of a scalar function (JAX's order).

    argnums      which positional arguments (trees of tensors) to differentiate: an int or several
    has_aux      the function returns (value, aux); the result is ((value, aux), gradient)
    holomorphic  the function is complex differentiable and its output complex: the gradient is
                 f'(z). Without it, the gradient of a real function of complex z = x + iy is
                 df/dx + i df/dy, the direction of steepest ascent (PyTorch's convention)
    allow_int    integers among the differentiated leaves are constants, and their gradients arrays
                 of JAX's empty dtype float0; without it they are refused

    >>> import adjoint as ad
    >>> ad.func.value_and_grad(lambda x: (x * x).sum())(ad.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """
    nums, single = numbers(argnums)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        p = Pull(func, args, kwargs, nums, "grad", has_aux, allow_int)
        check_complex("grad", "arguments", p.variables, holomorphic)
        found = p.back([_unit(p, holomorphic)], keep=False)
        p.end()
        grads = p.regroup([g.conj_physical() for g in found] if holomorphic else found)
        g = grads[0] if single else tuple(grads)
        return ((p.value(), p.aux_value()), g) if has_aux else (p.value(), g)
    return run


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
                   holomorphic: bool = False, allow_int: bool = False) -> Callable[..., Any]:
    """(gradient, value) of a scalar function (PyTorch's order); see `value_and_grad`."""
    inner = value_and_grad(func, argnums, has_aux, holomorphic=holomorphic, allow_int=allow_int)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, g = inner(*args, **kwargs)
        return g, value
    return run


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
         holomorphic: bool = False, allow_int: bool = False) -> Callable[..., Any]:
    """The gradient of a scalar function, as a function of the same arguments; see
    `value_and_grad` for the parameters. With has_aux the result is (gradient, aux).

    >>> import adjoint as ad
    >>> ad.func.grad(ad.func.grad(lambda x: x ** 3))(ad.tensor(2.0))
    tensor(12.)
    """
    inner = value_and_grad(func, argnums, has_aux, holomorphic=holomorphic, allow_int=allow_int)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, g = inner(*args, **kwargs)
        return (g, value[1]) if has_aux else g
    return run


def _keys(spec: Spec) -> list[Any]:
    """The keys of the dictionaries of a tree, where a function gave them or its caller did."""
    own = [spec.meta] if spec.kind is dict else []
    return own + [k for c in spec.children for k in _keys(c)]


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(output, pull): `pull(cotangent)` gives one cotangent per primal. `pull` may be called
    again and again.

    >>> import adjoint as ad
    >>> y, pull = ad.func.vjp(lambda x: x * x, ad.tensor([1.0, 2.0]))
    >>> pull(ad.tensor([1.0, 1.0]))
    (tensor([2., 4.]),)
    """
    p = Pull(func, primals, {}, tuple(range(len(primals))), "vjp", has_aux)
    value = p.value()

    def pull(cotangents: Any, *more: Any, retain_graph: bool = True,
             create_graph: bool | None = None) -> tuple[Any, ...]:
        given = (cotangents, *more) if more else cotangents
        leaves, spec = flatten(given)
        if spec != p.out_spec and (as_pytorch[0] or len(leaves) != len(p.outputs)
                                   or _keys(spec) != _keys(p.out_spec)):
            raise StructureError("Expected pytree structure of cotangents to be the same as pytree "
                                 "structure of outputs to the function. cotangents: "
                                 f"{outline(spec)}, primal output: {outline(p.out_spec)}")
        for i, (c, o) in enumerate(zip(leaves, p.outputs, strict=True)):
            if c is not None and not isinstance(c, Tensor):
                c = leaves[i] = tensor(c, dtype=o.dtype if isinstance(o, Tensor) else None)
            if c is not None and tuple(c.shape) != np.shape(o):
                raise ArgumentError(f"Mismatch in shape: grad_output[{i}] has a shape of {c.shape} "
                                    f"and output[{i}] has a shape of {o.shape}: a cotangent of "
                                    "vjp has the shape of its output")
            if isinstance(o, Tensor) and c is not None and c.dtype != o.dtype:
                leaves[i] = in_dtype_of(o, c, i)
        with no_grad() if create_graph is False else nullcontext():
            return tuple(p.regroup(p.back(leaves, keep=retain_graph)))

    return (value, pull, p.aux_value()) if has_aux else (value, pull)


__all__ = ["Node", "grad", "grad_and_value", "value_and_grad", "vjp"]
