"""JAX's transforms: grad, vjp, jvp, vmap, Jacobians. Trees of arrays become lists of tensors, and
`adjoint.func` does the rest."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import Spec, unflatten
from adjoint.core.tensor import wrap
from adjoint.func.reverse import Pull, one_for
from adjoint.jax._array import Array, as_array, describe, inside, is_traced, make
from adjoint.jax._dtypes import FLAGS
from adjoint.jax._flat import (
    FLOAT0,
    Flat,
    Leaves,
    Moving,
    conjugate,
    in_range,
    is_key,
    leaf,
    source_of,
)
from adjoint.jax._mismatch import structures_differ
from adjoint.jax._trace import pulling, taping, traced
from adjoint.jax.tree_util import (
    Partial,
    PyTreeDef,
    flat,
    tree_map,
)

F = Callable[..., Any]


def callable_or_error(fun: Any, what: str) -> None:
    """TypeError for what cannot be called."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}: {what} takes a function")


def _name(fun: Any) -> str:
    return getattr(fun, "__name__", None) or repr(fun)


def _numbers(argnums: Any, args: Sequence[Any], jacobian: bool = False
             ) -> tuple[tuple[int, ...], bool]:
    try:
        nums: tuple[int, ...] = (operator.index(argnums),)
        single = True
    except TypeError:
        nums, single = tuple(operator.index(i) for i in argnums), False
    in_range(nums, len(args), not jacobian)
    need = max((i + 1 if i >= 0 else -i for i in nums), default=0)
    if need > len(args):
        raise TypeError(f"differentiating with respect to argnums={argnums} requires at least "
                        f"{need} positional arguments to be passed by the caller, but got only "
                        f"{len(args)} positional arguments.")
    return nums, single


def _check_input(x: Any, name: str, holomorphic: bool, allow_int: bool) -> None:
    if is_key(x):
        return
    if holomorphic and x.dtype.kind != "c":
        raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got "
                        f"{x.dtype.name}.")
    if not is_inexact(x.dtype) and not allow_int:
        raise TypeError(f"{name} requires real- or complex-valued inputs (input dtype that is a "
                        f"sub-dtype of np.inexact), but got {x.dtype.name}. If you want to use "
                        "Boolean- or integer-valued inputs, use vjp or set allow_int to True.")


def _check_output(x: Any, name: str, holomorphic: bool) -> None:
    if holomorphic:
        if x.dtype.kind != "c":
            raise TypeError(f"{name} with holomorphic=True requires outputs with complex dtype, "
                            f"but got {x.dtype.name}.")
    elif x.dtype.kind == "c":
        raise TypeError(f"{name} requires real-valued outputs (output dtype that is a sub-dtype of "
                        f"np.floating), but got {x.dtype.name}. For holomorphic differentiation, "
                        "pass holomorphic=True. For differentiation of non-holomorphic functions "
                        "involving complex outputs, use jax.vjp directly.")
    elif not is_inexact(x.dtype):
        raise TypeError(f"{name} requires real-valued outputs (output dtype that is a sub-dtype of "
                        f"np.floating), but got {x.dtype.name}. For differentiation of functions "
                        "with integer outputs, use jax.vjp directly.")


# ------------------------------------------------------------------ reverse mode
class Pulled:
    """A run of a function and its pull-back, on arrays."""

    def __init__(self, fun: F, moving: Moving, kwargs: Any, has_aux: bool) -> None:
        self.moving = moving
        self.flat = Flat(moving.bind(fun), moving.arrays, kwargs, has_aux)
        tensors = tuple(moving.tensors)
        with taping():
            self._run = Pull(self.flat, tensors, {}, tuple(range(len(tensors))), "vjp", has_aux)
        self.values = self._run.value()

    @property
    def value(self) -> Any:
        """The function's output."""
        return self.flat.out.tree(self.values)

    @property
    def aux(self) -> Any:
        """The auxiliary output."""
        return self.flat.aux.tree(self._run.aux_value())

    def pull(self, cts: Sequence[Any]) -> list[Any]:
        """Cotangents of the moving leaves, as arrays."""
        given = [None if c is None else conjugate(c) for c in cts]
        with pulling():
            found = self._run.back(given, keep=True)
        return self.moving_like([conjugate(g) for g in found])

    def moving_like(self, tensors: Sequence[Any]) -> list[Any]:
        """Tensors as arrays, weak where the arguments are."""
        return [make(t, a.weak_type) for t, a in zip(tensors, self.moving.arrays, strict=True)]


def value_and_grad(fun: F, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, reduce_axes: Sequence[Any] = ()) -> F:
    """(value, gradient) of a scalar function, as a function of the same arguments."""
    callable_or_error(fun, "value_and_grad")

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        nums, single = _numbers(argnums, args)
        moving = Moving(args, nums)
        for x in moving.leaves.arrays:
            _check_input(x, "grad", holomorphic, allow_int)
        p = Pulled(fun, moving, kwargs, has_aux)
        out = p.flat.out
        if out.spec.kind is not None:
            raise TypeError("Gradient only defined for scalar-output functions. Output was "
                            f"{p.value}.")
        y = out.arrays[0]
        if y.shape != ():
            raise TypeError("Gradient only defined for scalar-output functions. Output had shape: "
                            f"{y.shape}.")
        _check_output(y, "grad", holomorphic)
        grads = moving.gather(p.pull([one_for(y.tensor.array)]))
        g = grads[0] if single else grads
        return ((p.value, p.aux), g) if has_aux else (p.value, g)
    return run


def grad(fun: F, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False,
         allow_int: bool = False, reduce_axes: Sequence[Any] = ()) -> F:
    """The gradient of a scalar function, as a function of the same arguments.

    >>> from adjoint import jax
    >>> jax.grad(lambda x: x ** 3)(2.0)
    Array(12., dtype=float32, weak_type=True)
    """
    callable_or_error(fun, "grad")
    inner = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, g = inner(*args, **kwargs)
        return (g, value[1]) if has_aux else g
    return run


def vjp(fun: F, *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()) -> Any:
    """(output, pull), or (output, pull, aux): `pull(cotangent)` gives one per argument."""
    callable_or_error(fun, "vjp")
    moving = Moving(primals, range(len(primals)))
    p = Pulled(fun, moving, {}, has_aux)
    out = p.flat.out

    def pull(out_ct: Any, *more: Any) -> Any:
        if more:
            raise TypeError(f"The function returned by `jax.vjp` applied to {_name(fun)} was "
                            f"called with {1 + len(more)} arguments, but functions returned by "
                            "`jax.vjp` must be called with a single argument corresponding to the "
                            "single value returned by the function being differentiated (even if "
                            "that is a tuple or other container): pass them in one tuple")
        leaves, spec = flat(out_ct)
        if spec != out.spec:
            where, own, other, gap = structures_differ(out.spec, spec)
            raise ValueError("unexpected tree structure.\n\nThe argument to a VJP function "
                             "returned by `jax.vjp` must match the pytree\nstructure of the "
                             f"differentiated function {source_of(fun)}.\n\nBut the tree "
                             f"structures differ:\n  * out{where} was {own} in the original "
                             f"output, but {other} here, so {gap}.")
        given = [_cotangent(c, o) for c, o in zip(leaves, out.arrays, strict=True)]
        return moving.gather(p.pull(given))
    return (p.value, pull, p.aux) if has_aux else (p.value, pull)


def fwd_and_bwd(fun: F, argnums: Any, has_aux: bool = False, jitted: bool = True
                ) -> tuple[F, F]:
    """(fwd, bwd): `fwd(*args)` is (output, residuals), or (output, residuals, aux), and
    `bwd(residuals, cotangent)` the cotangents of the arguments `argnums`.

    >>> from adjoint import jax
    >>> fwd, bwd = jax.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> out, residuals = fwd(2.0, 3.0)
    >>> [float(ct) for ct in bwd(residuals, 1.0)]
    [3.0, 2.0]
    """
    callable_or_error(fun, "fwd_and_bwd")

    def fwd(*args: Any) -> Any:
        nums, single = _numbers(argnums, args)
        moving = [i % len(args) for i in nums]

        def inner(*given: Any) -> Any:
            full = list(args)
            for i, v in zip(moving, given, strict=True):
                full[i] = v
            return fun(*full)
        found = vjp(inner, *[args[i] for i in moving], has_aux=has_aux)
        pull = found[1]
        return found[0], Partial((lambda ct: pull(ct)[0]) if single else pull), *found[2:]
    return fwd, lambda residuals, ct: residuals(ct)


def _cotangent(c: Any, o: Any) -> Any:
    """A cotangent as a tensor; None for one of an integer."""
    if is_key(o) or not is_inexact(o.dtype):
        return None
    x = as_array(c)
    if x.shape != o.shape or x.dtype != o.dtype:
        raise ValueError("unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                         f"{describe(x)}, but expected {describe(o)} because the corresponding "
                         f"output of the differentiated function had JAX type {describe(o)}")
    return x.tensor


# ------------------------------------------------------------------ forward mode
def _pairs(primals: Any, tangents: Any) -> tuple[Moving, list[Any]]:
    """The moving leaves and their tangents, checked in JAX's words."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("primal and tangent arguments to jax.jvp must be tuples or lists; found "
                        f"{type(primals).__name__} and {type(tangents).__name__}.")
    moving = Moving(primals, range(len(primals)))
    (_, own), (ts, spec) = flat(primals), flat(tangents)
    if spec != own:
        raise TypeError("primal and tangent arguments to jax.jvp must have the same tree "
                        f"structure; primals have tree structure {PyTreeDef(own)} whereas "
                        f"tangents have tree structure {PyTreeDef(spec)}.")
    out = []
    for p, t in zip(moving.leaves.arrays, ts, strict=True):
        if is_key(p) or not is_inexact(p.dtype):
            kind = getattr(t, "dtype", None)
            if kind != FLOAT0:
                raise TypeError("primal and tangent arguments to jax.jvp do not match; dtypes must "
                                "be equal, or in case of int/bool primal dtype the tangent dtype "
                                f"must be float0.Got primal dtype {p.dtype} and so expected "
                                f"tangent dtype {FLOAT0}, but got tangent dtype "
                                f"{as_array(t).dtype if kind is None else kind} instead.")
            continue
        x = as_array(t)
        if x.dtype != p.dtype:
            raise TypeError("primal and tangent arguments to jax.jvp do not match; dtypes must be "
                            "equal, or in case of int/bool primal dtype the tangent dtype must be "
                            f"float0.Got primal dtype {p.dtype} and so expected tangent dtype "
                            f"{p.dtype}, but got tangent dtype {x.dtype} instead.")
        if x.shape != p.shape:
            raise ValueError("jvp called with different primal and tangent shapes;Got primal shape "
                             f"{p.shape} and tangent shape as {x.shape}")
        out.append(x.tensor)
    return moving, out


def _tangents_of(out: Leaves, tensors: Sequence[Any]) -> Any:
    """Tangents in the structure of the output; float0 zeros for integers."""
    made = [np.zeros(a.shape, FLOAT0) if is_key(a) or not is_inexact(a.dtype) else
            make(t if t is not None else wrap(np.zeros(a.shape, a.dtype)), a.weak_type)
            for a, t in zip(out.arrays, tensors, strict=True)]
    return unflatten(made, out.spec)


def jvp(fun: F, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """(output, tangent of the output) at `primals` along `tangents`.

    >>> from adjoint import jax
    >>> jax.jvp(lambda x: x ** 2, (3.0,), (1.0,))[1]
    Array(6., dtype=float32, weak_type=True)
    """
    callable_or_error(fun, "jvp")
    moving, ts = _pairs(primals, tangents)
    f = Flat(moving.bind(fun), moving.arrays, {}, has_aux)
    found = _func.jvp(f, tuple(moving.tensors), tuple(ts), has_aux=has_aux)
    result = f.out.tree(found[0]), _tangents_of(f.out, found[1])
    return (*result, f.aux.tree(found[2])) if has_aux else result


def linearize(fun: F, *primals: Any, has_aux: bool = False) -> Any:
    """(output, push): `push(*tangents)` is the derivative at `primals`, a linear function."""
    callable_or_error(fun, "linearize")
    with taping():
        found = fun(*_arrays(primals))
    out, aux = found if has_aux else (found, None)

    points = Leaves(primals)

    def push(*tangents: Any) -> Any:
        ts, spec = flat(tangents)
        if spec != points.spec:
            raise TypeError(f"expected {points.treedef}, got {PyTreeDef(spec)}")
        for p, t in zip(points.arrays, map(leaf, ts), strict=True):
            if is_key(p) or not is_inexact(p.dtype) or is_key(t):
                continue
            if t.shape != p.shape or t.dtype != p.dtype:
                raise ValueError("linearized function called on tangent values inconsistent with "
                                 f"the original primal values:\nGot tangent aval {t.aval} for "
                                 f"primal aval {p.aval} but expected {p.aval}.")
        return jvp(fun, primals, tangents, has_aux=has_aux)[1]
    out = tree_map(lambda x: as_array(x) if not is_key(x) else x, out)
    return (out, push, aux) if has_aux else (out, push)


def _arrays(args: Any) -> Any:
    """Arguments with arrays at the leaves."""
    given = Leaves(args)
    return unflatten(given.arrays, given.spec)


def linear_transpose(fun: F, *primals: Any, reduce_axes: Sequence[Any] = ()) -> F:
    """The transpose of a linear function; `primals` give shapes and dtypes alone."""
    callable_or_error(fun, "linear_transpose")
    points = tree_map(lambda x: make(wrap(np.zeros(x.shape, x.dtype))) if hasattr(
        x, "shape") else as_array(x), primals)

    def hidden(*args: Any) -> Any:
        with traced():
            return fun(*args)
    out, pull = vjp(hidden, *points)
    ins, outs = ([x.dtype for x in Leaves(t).arrays] for t in (points, out))
    if not (all(map(is_inexact, (*ins, *outs))) or all(d.kind in "iu" for d in (*ins, *outs))):
        raise TypeError("linear_transpose only supports [float or complex] -> [float or complex], "
                        f"and integer -> integer functions, but got {ins} -> {outs}.")
    wanted = Leaves(out)
    hidden.__name__ = _name(fun)
    _check_linear(hidden, points, out, pull)
    if not any(map(is_inexact, ins)):
        pull = _whole_pull(hidden, points)

    def transposed(ct: Any) -> Any:
        given = Leaves(ct)
        if given.spec != wanted.spec:
            raise TypeError("cotangent tree does not match function output, expected "
                            f"{wanted.treedef} but got {given.treedef}")
        if [(x.shape, x.dtype) for x in given.arrays] != [
                (x.shape, x.dtype) for x in wanted.arrays]:
            raise TypeError("cotangent type does not match function output, expected "
                            f"({', '.join(map(describe, wanted.arrays))}) but got "
                            f"({', '.join(map(describe, given.arrays))})")
        return pull(ct)
    return transposed


def _whole_pull(fun: F, points: Any) -> F:
    """The transpose of a linear function of whole numbers, by way of float64."""
    def cast(tree: Any, like: Any) -> Any:
        kinds = iter([np.float64] * like if isinstance(like, int) else like)
        return tree_map(lambda x: make(as_array(x).tensor.to(np.dtype(next(kinds)))), tree)

    kinds = [x.dtype for x in Leaves(points).arrays]
    def signed(x: Any) -> Any:
        a = inside(x)
        return a.astype(f"i{a.itemsize}") if a.dtype.kind == "u" else a
    some = tree_map(lambda x: make(wrap((np.arange(x.size) % 5).reshape(x.shape).astype(
        x.dtype))), points)
    with FLAGS["enable_x64"](True):
        _, pull = vjp(fun, *cast(some, len(kinds)))
        found = fun(*some)
        cts = tree_map(lambda x: make(wrap((np.arange(x.size) % 3 + 1.0).reshape(x.shape))), found)
        back = pull(cts)
        sides = [sum([float(np.vdot(signed(a), signed(b))) for a, b in zip(
            Leaves(x).arrays, Leaves(y).arrays, strict=True)]) for x, y in (
                (cts, found), (back, some))]
    if sides[0] != sides[1]:
        raise NotImplementedError("Transpose rule (for reverse-mode differentiation) not "
                                  f"implemented: {source_of(fun)} is not linear in whole numbers")

    def whole(ct: Any) -> Any:
        with FLAGS["enable_x64"](True):
            back = pull(cast(ct, len(Leaves(ct).arrays)))
        return cast(back, kinds)
    return whole


def _check_linear(fun: F, points: Any, out: Any, pull: F) -> None:
    """NotImplementedError for a function whose pull-back differs from place to place: it has been
    run at zeros, and is run at two other points."""
    def spread(tree: Any, start: float) -> Any:
        arrays = Leaves(tree)
        return unflatten([make(wrap(np.sin(np.arange(a.size) * 2.3 + start).reshape(
            a.shape).astype(a.dtype)), a.weak_type) for a in arrays.arrays], arrays.spec)
    given = Leaves(out)
    if not given.arrays or not all(is_inexact(a.dtype) for a in given.arrays):
        return
    ct = spread(out, 1.0)
    here = Leaves(pull(ct)).arrays
    for start in (1.0, 4.0):
        there = Leaves(vjp(fun, *spread(points, start))[1](ct)).arrays
        for a, b in zip(here, there, strict=True):
            if is_traced(a) or is_traced(b):              # (under another transform: not told)
                return
            x, y = (np.asarray(v).astype(np.complex128) for v in (a, b))
            size = np.abs(y).max(initial=0.0)
            if not np.allclose(x, y, rtol=0.0, atol=size * 100 * float(np.finfo(a.dtype).eps)):
                raise NotImplementedError(
                    "Transpose rule (for reverse-mode differentiation) not implemented: linear_"
                    f"transpose takes a linear function, but the derivative of {source_of(fun)} is "
                    "another one at another point")


# ------------------------------------------------------------------ Jacobians
def _blocks(rows: Any, outer: Sequence[Any], spec: Spec, inner_spec: Spec) -> Any:
    """Blocks [output][input] as a tree of outputs of trees of inputs."""
    return unflatten([unflatten(list(r), inner_spec) for r in rows], spec)


def jacfwd(fun: F, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The Jacobian by forward mode: entry [out..., in...] per output and argument leaf."""
    callable_or_error(fun, "jacfwd")

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        nums, single = _numbers(argnums, args, True)
        moving = Moving(args, nums)
        for x in moving.leaves.arrays:
            if holomorphic and x.dtype.kind != "c":
                raise TypeError("jacfwd with holomorphic=True requires inputs with complex dtype, "
                                f"but got {x.dtype.name}.")
            if not holomorphic and (x.dtype.kind == "c" or not is_inexact(x.dtype)):
                raise TypeError("jacfwd requires real-valued inputs (input dtype that is a "
                                f"sub-dtype of np.floating), but got {x.dtype.name}. For "
                                "holomorphic differentiation, pass holomorphic=True. For "
                                "differentiation of non-holomorphic functions involving complex "
                                "inputs or integer inputs, use jax.jvp directly.")
        f = Flat(moving.bind(fun), moving.arrays, kwargs, has_aux)
        wanted = tuple(range(len(moving.tensors)))
        found = _func.jacfwd(f, wanted, has_aux)(*moving.tensors)
        rows, extra = found if has_aux else (found, [])
        blocks = [[make(b, y.weak_type) for b in r]
                  for r, y in zip(rows, f.out.arrays, strict=True)]
        result = _blocks(blocks, (), f.out.spec, moving.leaves.spec[2][0] if single
                         else moving.leaves.spec)
        return (result, f.aux.tree(extra)) if has_aux else result
    return run


def jacrev(fun: F, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False) -> F:
    """The Jacobian by reverse mode: entry [out..., in...] per output and argument leaf."""
    callable_or_error(fun, "jacrev")

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        nums, single = _numbers(argnums, args, True)
        moving = Moving(args, nums)
        for x in moving.leaves.arrays:
            _check_input(x, "jacrev", holomorphic, allow_int)
        p = Pulled(fun, moving, kwargs, has_aux)
        for y in p.flat.out.arrays:
            if holomorphic and y.dtype.kind != "c":
                _check_output(y, "jacrev", holomorphic)
            if not holomorphic and (y.dtype.kind == "c" or not is_inexact(y.dtype)):
                _check_output(y, "jacrev", holomorphic)
        rows = [_rows(p, k) for k in range(len(p.values))]
        trees = [moving.gather(r, y.shape) for r, y in zip(rows, p.flat.out.arrays, strict=True)]
        result = unflatten([t[0] if single else t for t in trees], p.flat.out.spec)
        return (result, p.aux) if has_aux else result
    return run


def _rows(p: Pulled, k: int) -> list[Any]:
    """The blocks of output `k`: its basis pulled back in one batch."""
    y = p.flat.out.arrays[k]
    basis = wrap(np.eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape))

    def one(seed: Any) -> Any:
        cts: list[Any] = [None] * len(p.values)
        cts[k] = seed
        return [g.tensor for g in p.pull(cts)]
    if not is_inexact(y.dtype):
        return [make(wrap(np.zeros((*y.shape, *a.shape), a.dtype))) for a in p.moving.arrays]
    found = _func.vmap(one)(basis)
    return [make(g.reshape((*y.shape, *a.shape)), a.weak_type) for g, a in zip(
        found, p.moving.arrays, strict=True)]


jacobian = jacrev


def hessian(fun: F, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The matrix of second derivatives, forward over reverse."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


__all__ = ["Array", "fwd_and_bwd", "grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp",
           "linear_transpose", "linearize", "value_and_grad", "vjp"]
