"""Jacobians, Hessians and products with them.

jacfwd pushes one tangent per input element, jacrev pulls one cotangent per output element;
`jacobian` takes the cheaper one (n inputs, m outputs: forward for n <= m) and says which.
Both run their passes batched, at most `chunk_size` at a time.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.errors import ArgumentError, DTypeError, StructureError
from adjoint.base.tree import Spec, flatten, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.func.push import jvp
from adjoint.func.reverse import Pull, as_tensor, check_argnum, check_complex, grad, numbers
from adjoint.func.vmap import vmap
from adjoint.ops.generator import rewind, source
from adjoint.ops.shape import cat_op, reshape

CHUNK = 1 << 10


def _basis(t: Tensor, size: int, start: int, rows: int) -> Tensor:
    """Rows start .. start + rows of the identity of size `size`, shaped like `t`."""
    eye = np.zeros((rows, size), t.array.dtype)
    eye[np.arange(rows), np.arange(start, start + rows)] = 1
    return wrap(eye.reshape(rows, *t.shape))


def _zeros(t: Tensor, rows: int) -> Tensor:
    return wrap(np.zeros((rows, *t.shape), t.array.dtype))


def _check_chunk(what: str, chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"{what}: `chunk_size` should be greater than 0. Got {chunk_size}; "
                            "None takes all rows at once")


def _per_output(out_spec: Spec, blocks: Sequence[Sequence[Any]], specs: Sequence[Spec],
                single: bool) -> Any:
    """A tree of the outputs, holding trees of the arguments."""
    made = []
    for row in blocks:
        trees, at = [], 0
        for s in specs:
            trees.append(unflatten(list(row[at:at + s.leaves]), s))
            at += s.leaves
        made.append(trees[0] if single else tuple(trees))
    return unflatten(made, out_spec)


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *,
           randomness: str = "error", chunk_size: int | None = None,
           holomorphic: bool = False) -> Callable[..., Any]:
    """The Jacobian by forward mode: entry [out..., in...] per output and argument leaf.

    holomorphic  the function is complex differentiable: entries are complex derivatives

    Costs one jvp per input element (batched); memory does not grow with the depth of `func`.

    >>> import adjoint as ad
    >>> ad.func.jacfwd(lambda x: x * x)(ad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    nums, single = numbers(argnums)
    _check_chunk("jacfwd", chunk_size)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        for i in nums:
            check_argnum("jacfwd", i, len(args))
        trees = [flatten(args[i]) for i in nums]
        leaves = [as_tensor(x, "jacfwd") for found, _ in trees for x in found]
        check_complex("jacfwd", "arguments", leaves, holomorphic)
        specs = [s for _, s in trees]

        def along(*tangents: Any) -> Any:
            def of(*xs: Any) -> Any:
                full, at = list(args), 0
                for i, s in zip(nums, specs, strict=True):
                    full[i] = unflatten(list(xs[at:at + s.leaves]), s)
                    at += s.leaves
                return func(*full, **kwargs)
            found = jvp(of, tuple(leaves), tangents, has_aux=has_aux)
            return (found[1], found[2]) if has_aux else found[1]

        columns: list[list[Any]] = []
        out_spec: Spec | None = None
        aux: Any = None
        begin = rewind(randomness)
        for k, leaf in enumerate(leaves):
            parts: list[list[Any]] = []
            size = leaf.array.size
            step = min(chunk_size or CHUNK, size) or 1
            for start in range(0, max(size, 1), step):
                rows = min(step, size - start)
                seeds = [_basis(t, size, start, rows) if j == k else _zeros(t, rows)
                         for j, t in enumerate(leaves)]
                begin()
                found = vmap(along, randomness=randomness)(*seeds)
                if has_aux:
                    found, aux = found
                flat, out_spec = flatten(found)
                parts.append(flat)
            columns.append([_columns(list(p), leaf) for p in zip(*parts, strict=True)])
        assert out_spec is not None
        result = _per_output(out_spec, list(zip(*columns, strict=True)), specs, single)
        return (result, _first(aux)) if has_aux else result
    return run


def _first(aux: Any) -> Any:
    leaves, spec = flatten(aux)
    return unflatten([x[0] for x in leaves], spec)


def _columns(parts: list[Any], leaf: Tensor) -> Any:
    """Stacked tangents (n, *out) as (*out, *in)."""
    whole = parts[0] if len(parts) == 1 else cat_op(*parts, dim=0)
    out = tuple(whole.shape[1:])
    moved = whole.permute(*range(1, len(out) + 1), 0)
    return reshape(moved, (*out, *leaf.shape))


def jacrev(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False,
           chunk_size: int | None = None, holomorphic: bool = False) -> Callable[..., Any]:
    """The Jacobian by reverse mode: entry [out..., in...] per output and argument leaf.

    holomorphic  the function is complex differentiable: entries are complex derivatives

    Costs one pull per output element (batched over one recorded forward).

    >>> import adjoint as ad
    >>> ad.func.jacrev(lambda x: x * x)(ad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    nums, single = numbers(argnums)
    _check_chunk("jacrev", chunk_size)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        p = Pull(func, args, kwargs, nums, "jacrev", has_aux)
        check_complex("jacrev", "arguments", p.variables, holomorphic)
        check_complex("jacrev", "outputs", p.outputs, holomorphic)
        blocks = []
        for k, out in enumerate(p.outputs):
            if not isinstance(out, Tensor):
                raise DTypeError("jacrev: expected the function to return only tensors, got "
                                 f"unsupported type {type(out)}")
            size = math.prod(out.shape)
            step = min(chunk_size or CHUNK, size) or 1
            parts: list[list[Any]] = []
            for start in range(0, max(size, 1), step):
                rows = min(step, size - start)
                seeds = _basis(out, size, start, rows)

                def pull(seed: Any, k: int = k) -> Any:
                    cts = [seed if j == k else None for j in range(len(p.outputs))]
                    return tuple(p.back(cts, keep=True))
                parts.append(list(vmap(pull)(seeds)))
            rows_of = [c[0] if len(c) == 1 else cat_op(*c, dim=0)
                       for c in zip(*parts, strict=True)]
            blocks.append([reshape(r.conj_physical() if holomorphic else r, (*out.shape, *v.shape))
                           for r, v in zip(rows_of, p.variables, strict=True)])
        p.end()
        result = _per_output(p.out_spec, blocks, p.specs, single)
        return (result, p.aux_value()) if has_aux else result
    return run


class Choice(NamedTuple):
    """What `jacobian` chose and why."""

    mode: str
    inputs: int
    outputs: int

    def __str__(self) -> str:
        sign = "<=" if self.mode == "forward" else ">"
        return (f"{self.mode} mode: {self.inputs} inputs {sign} {self.outputs} outputs, so "
                f"{min(self.inputs, self.outputs)} passes")


def choose(func: Callable[..., Any], *args: Any, argnums: Any = 0, **kwargs: Any) -> Choice:
    """Forward or reverse for the Jacobian of `func` in the arguments `argnums` (F11)."""
    with no_grad():
        out = func(*args, **kwargs)
    wanted = [args[i] for i in numbers(argnums)[0]]
    n, m = (sum(math.prod(x.shape) for x in flatten(t)[0] if hasattr(x, "shape"))
            for t in (wanted, out))
    return Choice("forward" if n <= m else "reverse", n, m)


def jacobian(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False,
             chunk_size: int | None = None, explain: bool = False) -> Callable[..., Any]:
    """The Jacobian by the cheaper of the two modes; `explain=True` returns (jacobian, choice).

    Runs the function once more, to see how many outputs it has.

    >>> import adjoint as ad
    >>> j, why = ad.func.jacobian(lambda x: x.sum(), explain=True)(ad.ones(3)); str(why)
    'reverse mode: 3 inputs > 1 outputs, so 1 passes'
    """
    _check_chunk("jacobian", chunk_size)

    def main(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)[0] if has_aux else func(*args, **kwargs)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        choice = choose(main, *args, argnums=argnums, **kwargs)
        mode = jacfwd if choice.mode == "forward" else jacrev
        result = mode(func, argnums, has_aux=has_aux, chunk_size=chunk_size)(*args, **kwargs)
        return (result, choice) if explain else result
    return run


def hessian(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False,
            holomorphic: bool = False) -> Callable[..., Any]:
    """The matrix of second derivatives of a scalar function, forward over reverse.

    has_aux  the function returns (output, aux), and the result is (hessian, aux)

    >>> import adjoint as ad
    >>> ad.func.hessian(lambda x: (x ** 3).sum())(ad.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    inner = jacrev(func, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux, holomorphic=holomorphic)


def hvp(func: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """(gradient, Hessian times tangents) of a scalar function, forward over reverse: the cost of
    a few gradients, never a matrix.

    >>> import adjoint as ad
    >>> ad.func.hvp(lambda x: (x ** 3).sum(), (ad.tensor([1.0, 2.0]),), (ad.ones(2),))[1]
    (tensor([ 6., 12.]),)
    """
    nums = tuple(range(len(primals)))
    return jvp(grad(func, argnums=nums), tuple(primals), tuple(tangents))


def vhp(func: Callable[..., Any], primals: Any, cotangents: Any) -> tuple[Any, Any]:
    """(gradient, cotangents times Hessian), reverse over reverse."""
    nums = tuple(range(len(primals)))
    p = Pull(grad(func, argnums=nums), tuple(primals), {}, nums, "vhp", False)
    leaves, _ = flatten(tuple(cotangents))
    return p.value(), tuple(p.regroup(p.back(leaves, keep=False)))


def gauss_newton_product(outputs: Callable[..., Any], loss: Callable[..., Any], primals: Any,
                         tangents: Any) -> Any:
    """Jᵀ H J v for loss(outputs(primals)): the Gauss-Newton matrix times a vector (Schraudolph
    2002, "Fast curvature matrix-vector products"), H the Hessian of the loss in the outputs."""
    out, push = jvp(outputs, tuple(primals), tuple(tangents))
    _, (h,) = hvp(loss, (out,), (push,))
    p = Pull(outputs, tuple(primals), {}, tuple(range(len(primals))), "gauss_newton", False)
    return tuple(p.regroup(p.back(flatten(h)[0], keep=False)))


def fisher_product(log_likelihood: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """(1/N) Σ g gᵀ v, the empirical Fisher matrix times a vector; `log_likelihood(*primals)` gives
    one value per example (N,)."""
    out, push = jvp(log_likelihood, tuple(primals), tuple(tangents))
    p = Pull(log_likelihood, tuple(primals), {}, tuple(range(len(primals))), "fisher", False)
    return tuple(p.regroup(p.back([push / out.shape[0]], keep=False)))


def hutchinson_trace(matvec: Callable[[Any], Any], like: Any, samples: int = 16,
                     generator: Any = None) -> Any:
    """An unbiased estimate of tr(A) from products A z with random signs z (Hutchinson 1990).

    like  a tensor or a tree of tensors of the shapes that `matvec` takes and gives

    >>> import adjoint as ad
    >>> ad.func.hutchinson_trace(lambda z: 2.0 * z, ad.zeros(3), samples=1)
    tensor(6.)
    """
    return sum(x.sum() for x in flatten(_mean(matvec, like, samples, generator))[0])


def hutchinson_diagonal(matvec: Callable[[Any], Any], like: Any, samples: int = 16,
                        generator: Any = None) -> Any:
    """An unbiased estimate of diag(A), shaped as `like` is, a tensor or a tree of them (Bekas,
    Kokiopoulou, Saad 2007).

    >>> import adjoint as ad
    >>> ad.func.hutchinson_diagonal(lambda z: ad.arange(3) * z, ad.zeros(3), samples=1)
    tensor([0., 1., 2.])
    """
    return _mean(matvec, like, samples, generator)


def _mean(matvec: Callable[[Any], Any], like: Any, samples: int, generator: Any) -> Any:
    """The mean of z * (A z), as a tree like `like`."""
    leaves, spec = flatten(like)
    totals: list[Any] = [0.0] * len(leaves)
    for _ in range(samples):
        zs = [_signs(x, generator) for x in leaves]
        products, found = flatten(matvec(unflatten(list(zs), spec)))
        if found != spec:
            raise StructureError(f"hutchinson: the product must have the structure of `like`, got "
                                 f"{found.leaves} leaves for {spec.leaves}")
        totals = [t + z * p for t, z, p in zip(totals, zs, products, strict=True)]
    return unflatten([t / samples for t in totals], spec)


def _signs(like: Tensor, generator: Any) -> Any:
    bits = source(generator).integers(tuple(like.shape), 0, 2)
    return wrap((2 * bits - 1).astype(like.array.dtype))
