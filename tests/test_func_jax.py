"""Transforms against JAX (and its control flow), and the names of HIPS autograd (F10-F16, F54)."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers_trees import same

import adjoint as ad
from adjoint import func as af

jax = pytest.importorskip("jax")
V = np.array([0.3, -0.7, 1.2])
M = np.random.default_rng(0).normal(size=(4, 3))
P = namedtuple("P", "a b")
LAX = (
    "psum pmean pmax pmin all_gather axis_index stop_gradient scan while_loop cond fori_loop map "
    "switch associative_scan"
).split()
OURS = SimpleNamespace(
    np=ad, t=lambda x: ad.tensor(np.asarray(x)), f=af, **{name: getattr(af, name) for name in LAX}
)
THEIRS = SimpleNamespace(
    np=jax.numpy, t=jax.numpy.asarray, f=jax, **{name: getattr(jax.lax, name) for name in LAX}
)
CASES: dict[str, Callable[[Any], Any]] = {}


@pytest.fixture(autouse=True)
def _double() -> Any:
    """JAX in double precision, for these tests alone."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def case(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a program that runs on either library's names."""
    CASES[program.__name__] = program
    return program


def plain(x: Any) -> Any:
    """A result as a tree of arrays, containers by name."""
    if isinstance(x, dict):
        return {k: plain(x[k]) for k in sorted(x)}
    if isinstance(x, (list, tuple)):
        return (type(x).__name__, *map(plain, x))
    if x is None:
        return None
    return np.asarray(x.detach().numpy() if isinstance(x, ad.Tensor) else x)


@case
def argnums_int(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x * y * y).sum(), argnums=1)(n.t(V), n.t(V + 1))


@case
def argnums_neg(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x * y * y).sum(), argnums=-1)(n.t(V), n.t(V + 1))


@case
def argnums_tuple(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(n.t(V), n.t(V + 1))


@case
def argnums_tuple1(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x * y * y).sum(), argnums=(0,))(n.t(V), n.t(V + 1))


@case
def argnums_order(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x * y * y).sum(), argnums=(1, 0))(n.t(V), n.t(V + 1))


@case
def argnums_list(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x * y * y).sum(), argnums=[1, 0])(n.t(V), n.t(V + 1))


@case
def grad_aux(n: Any) -> Any:
    return n.f.grad(lambda x: ((x**2).sum(), {"k": x * 2, "n": None}), has_aux=True)(n.t(V))


@case
def vag_aux(n: Any) -> Any:
    return n.f.value_and_grad(lambda x: ((x**2).sum(), (x * 2,)), has_aux=True)(n.t(V))


@case
def grad_tree(n: Any) -> Any:
    return n.f.grad(lambda p: (p["w"] * p["b"][0]).sum() + p["b"][1][0].sum())(
        {"w": n.t(V), "b": [n.t(V * 2), (n.t(V), None)]}
    )


@case
def grad_nt(n: Any) -> Any:
    return n.f.grad(lambda p: (p.a * p.b).sum())(P(n.t(V), n.t(V + 1)))


@case
def grad_float(n: Any) -> Any:
    return n.f.grad(lambda x: x * x)(3.0)


@case
def grad_kwargs(n: Any) -> Any:
    return n.f.grad(lambda x, y=1.0: (x * y).sum())(n.t(V), y=3.0)


@case
def grad_nparray(n: Any) -> Any:
    return n.f.grad(lambda x: n.np.sin(x).sum())(V)


@case
def grad_npscalar(n: Any) -> Any:
    return n.f.grad(lambda x: n.np.sin(x))(np.float64(0.3))


@case
def grad_const(n: Any) -> Any:
    return n.f.grad(lambda x: n.t(1.0))(n.t(V))


@case
def grad_returns_float(n: Any) -> Any:
    return n.f.grad(lambda x: 3.0)(n.t(V))


@case
def grad_unused(n: Any) -> Any:
    return n.f.grad(lambda x, y: (x).sum(), argnums=(0, 1))(n.t(V), n.t(V))


@case
def vjp_aux(n: Any) -> Any:
    y, pull, aux = n.f.vjp(lambda x: (x**2, {"a": x}), n.t(V), has_aux=True)
    return y, pull(n.t(V)), aux


@case
def vjp_tree(n: Any) -> Any:
    y, pull = n.f.vjp(lambda p, q: {"u": p["x"] * q, "v": (q, None)}, {"x": n.t(V)}, n.t(V + 2))
    return y, pull({"u": n.t(V), "v": (n.t(V), None)})


@case
def vjp_twice(n: Any) -> Any:
    y, pull = n.f.vjp(lambda x: x**3, n.t(V))
    return pull(n.t(V)), pull(n.t(V * 2))


@case
def jvp_tree(n: Any) -> Any:
    return n.f.jvp(
        lambda p, q: {"u": p["x"] * q, "c": n.t(1.0)},
        ({"x": n.t(V)}, n.t(V + 2)),
        ({"x": n.t(V)}, n.t(V)),
    )


@case
def jvp_aux(n: Any) -> Any:
    return n.f.jvp(lambda x: (x**2, x * 3), (n.t(V),), (n.t(V),), has_aux=True)


@case
def jvp_float(n: Any) -> Any:
    return n.f.jvp(lambda x: x**2, (2.0,), (1.0,))


@case
def linearize(n: Any) -> Any:
    y, f = n.f.linearize(lambda x: n.np.sin(x), n.t(V))
    return y, f(n.t(V)), f(n.t(V * 2))


@case
def linearize_aux(n: Any) -> Any:
    y, f, aux = n.f.linearize(lambda x: (n.np.sin(x), x), n.t(V), has_aux=True)
    return y, f(n.t(V)), aux


@case
def lin_transpose(n: Any) -> Any:
    return n.f.linear_transpose(lambda x: 3 * x[::2], n.t(V))(n.t(V[:2]))


@case
def lin_transpose_tree(n: Any) -> Any:
    return n.f.linear_transpose(lambda x, y: {"o": 3 * x[::2] + y.sum()}, n.t(V), n.t(V))(
        {"o": n.t(V[:2])}
    )


@case
def jacfwd_tree(n: Any) -> Any:
    return n.f.jacfwd(lambda p: {"o": p["x"] * p["y"].sum(), "z": p["y"][0]})(
        {"x": n.t(V), "y": n.t(M)}
    )


@case
def jacrev_tree(n: Any) -> Any:
    return n.f.jacrev(lambda p: {"o": p["x"] * p["y"].sum(), "z": p["y"][0]})(
        {"x": n.t(V), "y": n.t(M)}
    )


@case
def jacfwd_argnums(n: Any) -> Any:
    return n.f.jacfwd(lambda x, y: x * y, argnums=(0, 1))(n.t(V), n.t(V))


@case
def jacrev_argnums(n: Any) -> Any:
    return n.f.jacrev(lambda x, y: x * y, argnums=(1,))(n.t(V), n.t(V))


@case
def jacrev_aux(n: Any) -> Any:
    return n.f.jacrev(lambda x: (x * x, x), has_aux=True)(n.t(V))


@case
def jacfwd_aux(n: Any) -> Any:
    return n.f.jacfwd(lambda x: (x * x, x), has_aux=True)(n.t(V))


@case
def hessian_tree(n: Any) -> Any:
    return n.f.hessian(lambda p: (p["x"] ** 2 * p["y"]).sum())({"x": n.t(V), "y": n.t(V)})


@case
def hessian_argnums(n: Any) -> Any:
    return n.f.hessian(lambda x, y: (x**2 * y).sum(), argnums=(0, 1))(n.t(V), n.t(V))


@case
def hessian_aux(n: Any) -> Any:
    return n.f.hessian(lambda x: ((x**3).sum(), x), has_aux=True)(n.t(V))


@case
def hessian_vec(n: Any) -> Any:
    return n.f.hessian(lambda x: x**3)(n.t(V))


@case
def jac_kwargs(n: Any) -> Any:
    return n.f.jacrev(lambda x, k=1.0: x * k)(n.t(V), k=2.0), n.f.jacfwd(lambda x, k=1.0: x * k)(
        n.t(V), k=2.0
    )


@case
def jac_scalar_out(n: Any) -> Any:
    return n.f.jacfwd(lambda x: (x * x).sum())(n.t(V)), n.f.jacrev(lambda x: (x * x).sum())(n.t(V))


@case
def jac_matrix(n: Any) -> Any:
    return n.f.jacfwd(lambda x: x @ x.T)(n.t(M)), n.f.jacrev(lambda x: x @ x.T)(n.t(M))


@case
def jac_float(n: Any) -> Any:
    return n.f.jacfwd(lambda x: x * x)(2.0), n.f.jacrev(lambda x: x * x)(2.0)


@case
def jac_neg(n: Any) -> Any:
    return (
        n.f.jacfwd(lambda x, y: x * y, argnums=-1)(n.t(V), n.t(V)),
        n.f.jacrev(lambda x, y: x * y, argnums=-1)(n.t(V), n.t(V)),
        n.f.hessian(lambda x, y: (x * y * y).sum(), argnums=-1)(n.t(V), n.t(V)),
    )


@case
def vmap_axes(n: Any) -> Any:
    return n.f.vmap(lambda a, b: a * b, (0, None))(n.t(M), n.t(V))


@case
def vmap_in_axes_kw(n: Any) -> Any:
    return n.f.vmap(lambda a, b: a * b, in_axes=(0, None))(n.t(M), n.t(V))


@case
def vmap_out_axes_kw(n: Any) -> Any:
    return n.f.vmap(lambda a: a * 2, in_axes=1, out_axes=-1)(n.t(M))


@case
def vmap_neg(n: Any) -> Any:
    return n.f.vmap(lambda a: a * 2, -1, -1)(n.t(M))


@case
def vmap_tree_axes(n: Any) -> Any:
    return n.f.vmap(lambda p, q: (p["a"] * q, p["b"]), ({"a": 0, "b": None}, 1), (0, None))(
        {"a": n.t(M), "b": n.t(V)}, n.t(M.T)
    )


@case
def vmap_list_axes(n: Any) -> Any:
    return n.f.vmap(lambda p: p[0] * p[1], ([0, None],))([n.t(M), n.t(V)])


@case
def vmap_out_tree(n: Any) -> Any:
    return n.f.vmap(lambda a: {"x": a, "y": a * 2}, 0, {"x": 0, "y": 1})(n.t(M))


@case
def vmap_none_out(n: Any) -> Any:
    return n.f.vmap(lambda a: (a, n.t(3.0)), 0, (0, None))(n.t(M))


@case
def vmap_kw(n: Any) -> Any:
    return n.f.vmap(lambda a, b: a * b, in_axes=0)(n.t(M), b=n.t(M))


@case
def vmap_const_out(n: Any) -> Any:
    return n.f.vmap(lambda a: 3.0)(n.t(M))


@case
def vmap_axis_size(n: Any) -> Any:
    return n.f.vmap(lambda: n.t(1.0) * 2, in_axes=(), axis_size=3)()


@case
def vmap_psum(n: Any) -> Any:
    return n.f.vmap(lambda a: a - n.psum(a, "i"), axis_name="i")(n.t(M))


@case
def vmap_pmean(n: Any) -> Any:
    return n.f.vmap(lambda a: a - n.pmean(a, "i"), axis_name="i")(n.t(M))


@case
def vmap_pmax(n: Any) -> Any:
    return n.f.vmap(lambda a: a - n.pmax(a, "i"), axis_name="i")(n.t(M))


@case
def vmap_pmin(n: Any) -> Any:
    return n.f.vmap(lambda a: a - n.pmin(a, "i"), axis_name="i")(n.t(M))


@case
def vmap_psum_tree(n: Any) -> Any:
    return n.f.vmap(lambda a: n.psum({"x": a, "y": (a * 2,)}, "i"), axis_name="i")(n.t(M))


@case
def vmap_psum_one(n: Any) -> Any:
    return n.f.vmap(lambda a: a / n.psum(1, "i"), axis_name="i")(n.t(M))


@case
def vmap_axis_index(n: Any) -> Any:
    return n.f.vmap(lambda a: a * n.axis_index("i"), axis_name="i")(n.t(M))


@case
def vmap_all_gather(n: Any) -> Any:
    return n.f.vmap(lambda a: n.all_gather(a, "i"), axis_name="i")(n.t(M))


@case
def vmap_psum_two(n: Any) -> Any:
    return n.f.vmap(
        lambda r: n.f.vmap(lambda a: n.psum(a, ("i", "j")), axis_name="j")(r), axis_name="i"
    )(n.t(M))


@case
def vmap_psum_grad(n: Any) -> Any:
    return n.f.grad(lambda m: (n.f.vmap(lambda a: a * n.psum(a**2, "i"), axis_name="i")(m)).sum())(
        n.t(M)
    )


@case
def vmap_of_grad_psum(n: Any) -> Any:
    return n.f.vmap(n.f.grad(lambda a: (n.pmean(a, "i") * a).sum()), axis_name="i")(n.t(M))


@case
def vmap_psum_outer(n: Any) -> Any:
    return n.f.vmap(lambda r: n.f.vmap(lambda a: n.psum(a, "i"))(r), axis_name="i")(n.t(M))


@case
def stop_grad(n: Any) -> Any:
    return n.f.grad(lambda x: (n.stop_gradient(x) * x).sum())(n.t(V))


@case
def stop_grad_tree(n: Any) -> Any:
    return n.f.grad(lambda x: (n.stop_gradient({"a": x})["a"] * x).sum())(n.t(V))


@case
def stop_grad_jvp(n: Any) -> Any:
    return n.f.jvp(lambda x: n.stop_gradient(x) * x, (n.t(V),), (n.t(V),))


@case
def scan_(n: Any) -> Any:
    return n.f.grad(lambda x: n.scan(lambda c, a: (c * a, c), x, n.t(V))[1].sum())(n.t(0.5))


@case
def scan_tree(n: Any) -> Any:
    return n.scan(
        lambda c, a: ({"c": c["c"] * a[0]}, (c["c"], a[1])), {"c": n.t(1.0)}, (n.t(V), n.t(M[:3]))
    )


@case
def scan_none_y(n: Any) -> Any:
    return n.scan(lambda c, a: (c + a, None), n.t(1.0), n.t(V))


@case
def scan_zero(n: Any) -> Any:
    return n.scan(lambda c, a: (c + a, c), n.t(1.0), n.t(np.zeros(0)))


@case
def fori(n: Any) -> Any:
    return n.f.jvp(
        lambda x: n.fori_loop(0, 3, lambda i, c: c * x, n.t(1.0)), (n.t(0.5),), (n.t(1.0),)
    )


@case
def map_(n: Any) -> Any:
    return n.map(lambda x: x * 2, n.t(M))


@case
def switch_(n: Any) -> Any:
    return n.f.grad(lambda x: n.switch(1, [lambda x: x, lambda x: x * x], x))(n.t(0.5))


@case
def cond_(n: Any) -> Any:
    return n.f.vmap(n.f.grad(lambda x: n.cond(x > 0, lambda x: x * x, lambda x: -x, x)))(n.t(V))


@case
def assoc(n: Any) -> Any:
    return n.associative_scan(lambda a, b: a * b, n.t(V))


@case
def while_(n: Any) -> Any:
    return n.f.jvp(
        lambda x: n.while_loop(
            lambda v: v[0] < 10, lambda v: (v[0] * 2, v[1] * x), (n.t(1.0), n.t(1.0))
        )[1],
        (n.t(1.1),),
        (n.t(1.0),),
    )


@case
def cvjp(n: Any) -> Any:
    @n.f.custom_vjp
    def f(x, y):
        return n.np.sin(x) * y

    f.defvjp(
        lambda x, y: (f(x, y), (x, y)), lambda res, g: (n.np.cos(res[0]) * g * res[1] * 2, None)
    )
    return n.f.grad(f, argnums=(0, 1))(0.5, 2.0)


@case
def cvjp_nondiff(n: Any) -> Any:
    f = functools.partial(n.f.custom_vjp, nondiff_argnums=(0,))(lambda h, x: h(x))
    f.defvjp(lambda h, x: (h(x), x), lambda h, res, g: (h(res) * g,))
    return n.f.grad(lambda x: f(n.np.sin, x))(0.5)


@case
def cjvp_defjvps(n: Any) -> Any:
    @n.f.custom_jvp
    def f(x, y):
        return n.np.sin(x) * y

    f.defjvps(lambda t, out, x, y: 2 * n.np.cos(x) * t * y, lambda t, out, x, y: n.np.sin(x) * t)
    return n.f.grad(f, argnums=(0, 1))(0.5, 2.0), n.f.jvp(f, (0.5, 2.0), (1.0, 1.0))


@case
def cjvp_none(n: Any) -> Any:
    @n.f.custom_jvp
    def f(x, y):
        return n.np.sin(x) * y

    f.defjvps(None, lambda t, out, x, y: n.np.sin(x) * t)
    return n.f.grad(f, argnums=(0, 1))(0.5, 2.0)


@case
def cjvp_kw(n: Any) -> Any:
    @n.f.custom_jvp
    def f(x, y):
        return n.np.sin(x) * y

    @f.defjvp
    def _(primals, tangents):
        x, y = primals
        t, u = tangents
        return f(x, y), n.np.cos(x) * t * y + n.np.sin(x) * u

    return n.f.grad(lambda x: f(x, y=2.0))(0.5)


@case
def ckpt(n: Any) -> Any:
    return n.f.grad(n.f.checkpoint(lambda x: n.np.sin(n.np.sin(x)).sum()))(n.t(V))


@case
def remat(n: Any) -> Any:
    return n.f.grad(n.f.remat(lambda x: n.np.sin(n.np.sin(x)).sum()))(n.t(V))


@case
def holo_grad(n: Any) -> Any:
    return n.f.grad(lambda z: z**3, holomorphic=True)(n.t(1 + 2j))


@case
def holo_jacfwd(n: Any) -> Any:
    return n.f.jacfwd(lambda z: z**3, holomorphic=True)(n.t(np.array([1 + 2j, 3j])))


@case
def holo_jacrev(n: Any) -> Any:
    return n.f.jacrev(lambda z: z**3, holomorphic=True)(n.t(np.array([1 + 2j, 3j])))


@case
def holo_hess(n: Any) -> Any:
    return n.f.hessian(lambda z: (z**3).sum(), holomorphic=True)(n.t(np.array([1 + 2j, 3j])))


@case
def hessian_of_vag(n: Any) -> Any:
    return n.f.hessian(lambda x: n.f.value_and_grad(lambda y: (y**3).sum())(x)[0])(n.t(V))


# JAX compiles for seconds here.
SLOW = set(
    "jac_matrix hessian_tree jacrev_tree jacfwd_tree holo_hess holo_jacfwd hessian_aux cond_ "
    "vmap_of_grad_psum jac_neg jac_float vmap_psum_grad hessian_vec holo_grad jacrev_argnums "
    "cjvp_defjvps assoc switch_".split()
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES]
)
def test_as_in_jax(name: str) -> None:
    """F54: the program gives JAX's containers and numbers."""
    same(plain(CASES[name](OURS)), plain(CASES[name](THEIRS)), rtol=1e-6, atol=1e-7)


def test_the_list_is_wide() -> None:
    """At least ninety programs."""
    assert len(CASES) >= 90
