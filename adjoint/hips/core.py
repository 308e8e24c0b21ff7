"""`autograd.core`: the two products, on functions of one argument.

Cotangents of complex values follow df/dx - i df/dy, the conjugate of `adjoint.func`'s.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.base.tree import flatten, tree_map, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.func import jvp as _jvp
from adjoint.func import vjp as _vjp
from adjoint.hips.box import (
    Box,
    boxed_like,
    getval,
    holds_box,
    isbox,
    leaves_of,
    lower,
    raised,
    tracing,
)
from adjoint.hips.extend import (
    JVPNode,
    SparseObject,
    VJPNode,
    VSpace,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive,
    vspace,
)
from adjoint.hips.graph import (
    KNOWN,
    Node,
    gradient_in_graph,
    primitive_jvps,
    primitive_vjps,
    trace,
)
from adjoint.hips.space import dense
from adjoint.hips.util import func, subval, toposort

F = Callable[..., Any]


_NO_SPACE = ("Can't find vector space for value {} of type {}. The function must return floats, "
             "arrays, or trees of them")


class _Independent(TypeError):
    """A function's value is no array, and does not hang on its argument."""

    def __init__(self, value: Any, leaf: Any) -> None:
        super().__init__(_NO_SPACE.format(leaf, type(leaf)))
        self.value = value


def _on_tensors(fun: F, at: Any) -> F:
    def run(x: Any) -> Any:
        with tracing():
            y = fun(boxed_like(x, at))
        if not holds_box(y):
            warnings.warn("Output seems independent of input.", stacklevel=2)
        leaves, spec = flatten(lower(y))
        for v in leaves:
            if not isinstance(v, (Tensor, float, complex, np.ndarray, np.generic)):
                if not holds_box(y):
                    raise _Independent(y, v)
                raise TypeError(_NO_SPACE.format(v, type(v)))
        return unflatten([v if isinstance(v, Tensor) else wrap(np.asarray(v)) for v in leaves],
                         spec)
    return run


def _array(x: Any) -> Any:
    """A derivative: tensors as boxes or arrays."""
    return tree_map(raised, x)


def summed(x: Any) -> Any:
    """Cotangents of a container: numbers are arrays without axes, as sums written in place are."""
    return tree_map(lambda v: np.asarray(v) if isinstance(v, np.generic) else v, x)


def _conjugate(x: Any) -> Any:
    return tree_map(lambda t: t.conj_physical() if t.is_complex() else t, x)


def _like(values: Any, points: Any) -> Any:
    """Cotangents or tangents as tensors in the dtype of their values."""
    leaves, spec = flatten(values)
    made = []
    for v, p in zip(leaves, flatten(points)[0], strict=True):
        t = v.tensor if isinstance(v, Box) else wrap(np.asarray(v))
        kind = p.array.dtype
        if t.is_complex() and kind.kind == "f":
            t = t.real
        t = t if t.array.dtype == kind else t.to(kind)
        made.append(t if tuple(t.shape) == tuple(p.shape) else t.expand(p.shape))
    return unflatten(made, spec)


def make_vjp(fun: F, x: Any) -> tuple[F, Any]:
    """(pull, value) at x: `pull(g)` is the cotangent of x."""
    if type(x) in Box.type_mappings and type(x) not in KNOWN:
        return gradient_in_graph(fun, x)
    try:
        value, pull = _vjp(_on_tensors(fun, x), leaves_of(x))
    except _Independent as found:          # (a truth value, a shape, a word)
        return lambda g: vspace(x).zeros(), found.value

    def run(g: Any) -> Any:
        found = _array(_conjugate(pull(_conjugate(_like(g, value)))[0]))
        return summed(found) if isinstance(x, (list, tuple, dict)) else found
    return run, _array(value)


def make_jvp(fun: F, x: Any) -> F:
    """push at x: `push(v)` gives (value, tangent of the value)."""
    point = leaves_of(x)

    def run(v: Any) -> Any:
        value, tangent = _jvp(_on_tensors(fun, x), (point,), (_like(v, point),))
        return _array(value), _array(tangent)
    return run


# ------------------------------------------------------------------ graphs of nodes
def backward_pass(g: Any, end_node: Any) -> Any:
    """The cotangent of the argument for the cotangent g of the value: `end_node` is what `trace`
    returned for a root of `VJPNode`.

    >>> import adjoint.hips.numpy as np
    >>> float(backward_pass(1.0, trace(VJPNode.new_root(), lambda x: np.exp(x) * x, 0.0)[1]))
    1.0
    """
    flowing: dict[Any, Any] = {end_node: (g, False)}
    found = g
    for node in toposort(end_node):
        found, _ = flowing.pop(node, (None, False))
        if found is None:
            continue
        for parent, ct in zip(node.parents, node.vjp(found), strict=True):
            if ct is not None:
                flowing[parent] = add_outgrads(flowing.get(parent), ct)
    return found


def add_outgrads(prev_g_flagged: Any, g: Any) -> tuple[Any, bool]:
    """(sum of cotangents, whether the sum is an array of our own)."""
    if prev_g_flagged is None:
        return dense(g), isinstance(g, SparseObject)
    prev, own = prev_g_flagged
    if isinstance(g, SparseObject):
        return sparse_add(g.vs, prev if own else vspace(prev).add(prev, vspace(prev).zeros()),
                          g), True
    return vspace(g).add(prev, g), True


def sum_outgrads(gs: Sequence[Any]) -> Any:
    """The sum of cotangents, some of them perhaps `SparseObject`s."""
    return reduce(add_outgrads, gs, None)[0]


def sparse_add(vs: VSpace, x_prev: Any, x_new: SparseObject) -> Any:
    """The sum of a cotangent (None: zero) and a sparse one."""
    return x_new.mut_add(vs.zeros() if x_prev is None else x_prev)


def translate_vjp(vjpfun: Any, fun: Any, argnum: int) -> F:
    """A rule as a function: None is zero."""
    if vjpfun is None:
        return lambda ans, *args, **kwargs: lambda g: vspace(args[argnum]).zeros()
    if callable(vjpfun):
        return vjpfun
    raise ArgumentError(f"Bad VJP '{vjpfun}' for '{fun.__name__}'")


def translate_jvp(jvpfun: Any, fun: Any, argnum: int) -> F:
    """A rule as a function: None is zero, "same" the function at the tangent."""
    if jvpfun is None:
        return lambda g, ans, *args, **kwargs: vspace(ans).zeros()
    if isinstance(jvpfun, str) and jvpfun == "same":
        return lambda g, ans, *args, **kwargs: fun(*subval(args, argnum, g), **kwargs)
    if callable(jvpfun):
        return jvpfun
    raise ArgumentError(f"Bad JVP '{jvpfun}' for '{fun.__name__}'")


def identity_vjp(argnums: Sequence[int], *args: Any) -> F:
    """The pull of what hands its argument on."""
    return lambda g: g


def identity_jvp(g: Any, *args: Any, **kwargs: Any) -> Any:
    """The tangent of what hands its argument on."""
    return g


# ------------------------------------------------------------------ rules as they once were given
deprecated_defvjp_message = "The {} method is deprecated: use defvjp(function, *rules)"


def _once(name: str, fun: Any, rule: F, argnum: int) -> None:
    warnings.warn(deprecated_defvjp_message.format(name), stacklevel=3)
    fun.given[argnum] = rule
    defvjp(fun, *fun.given.values(), argnums=list(fun.given))


def deprecated_defvjp(primitive_fun: Any) -> F:
    """`defvjp(rule, argnum=0)` of a primitive, the rule being one of (g, ans, vs, gvs, *args)."""
    def give(vjpfun: F, argnum: int = 0) -> None:
        def rule(ans: Any, *args: Any, **kwargs: Any) -> F:
            spaces = vspace(args[argnum]), vspace(ans)
            return lambda g: vjpfun(g, ans, *spaces, *args, **kwargs)
        _once("defvjp", primitive_fun, rule, argnum)
    return give


def deprecated_defgrad(primitive_fun: Any) -> F:
    """`defgrad(rule, argnum=0)` of a primitive, the rule as `defvjp` takes it."""
    return lambda gradfun, argnum=0: _once("defgrad", primitive_fun, gradfun, argnum)


def deprecated_defvjp_is_zero(primitive_fun: Any) -> F:
    """`defvjp_is_zero(argnums=(0,))` of a primitive."""
    def give(argnums: Sequence[int] = (0,)) -> None:
        for i in argnums:
            _once("defvjp_is_zero", primitive_fun, translate_vjp(None, primitive_fun, i), i)
    return give


def primitive_with_deprecation_warnings(f_raw: F) -> Any:
    """A primitive with the methods of its rules that it once had."""
    made: Any = primitive(f_raw)
    made.given = {}
    made.defvjp, made.defgrad = deprecated_defvjp(made), deprecated_defgrad(made)
    made.defvjp_is_zero = deprecated_defvjp_is_zero(made)
    return made


primitive_ = primitive
sparse_object_types = {SparseObject}
__all__ = ["Box", "JVPNode", "Node", "SparseObject", "VJPNode", "VSpace", "add_outgrads",
           "backward_pass", "def_linear", "defjvp", "defjvp_argnum", "defjvp_argnums",
           "deprecated_defgrad", "deprecated_defvjp", "deprecated_defvjp_is_zero",
           "deprecated_defvjp_message", "defvjp", "defvjp_argnum", "defvjp_argnums", "func",
           "getval", "identity_jvp", "identity_vjp", "isbox", "make_jvp", "make_vjp", "primitive",
           "primitive_", "primitive_jvps", "primitive_vjps",
           "primitive_with_deprecation_warnings", "sparse_add", "sparse_object_types",
           "subval", "sum_outgrads",
           "toposort", "trace", "translate_jvp", "translate_vjp", "vspace"]
