"""What JAX's documents describe, as small programs that run on both libraries: values, structures
and the kinds of errors (F10-F16, F54, F60)."""
from __future__ import annotations

import collections
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers_trees import same

import adjoint as ad
import adjoint.numpy

jax = pytest.importorskip("jax")
LAX = "psum switch cond scan while_loop fori_loop associative_scan stop_gradient".split()
TOP = ("grad value_and_grad jvp vjp jacfwd jacrev hessian vmap custom_jvp custom_vjp linearize "
       "checkpoint").split()
OURS = SimpleNamespace(np=adjoint.numpy, **{k: getattr(ad.func, k) for k in (*LAX, *TOP)})
THEIRS = SimpleNamespace(np=jax.numpy, **{k: getattr(jax.lax, k) for k in LAX},
                         **{k: getattr(jax, k) for k in TOP})
Point = collections.namedtuple("Point", "x y")
PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a program that runs on either library's names."""
    PROGRAMS[f.__name__] = f
    return f


def plain(x: Any) -> Any:
    """A result as containers by name and arrays."""
    if x is None or isinstance(x, str):
        return x
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return (type(x).__name__, *map(plain, x))
    return np.asarray(x.detach().numpy() if isinstance(x, ad.Tensor) else x)


# ------------------------------------------------------------------ grad and its arguments
@program
def numbers_are_arguments(n: Any) -> Any:
    f = n.np.tanh
    return n.grad(f)(2.0), n.grad(n.grad(f))(2.0), n.grad(n.grad(n.grad(f)))(2.0)


@program
def argnums(n: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x * y ** 2
    return [n.grad(f, argnums=a)(2.0, 3.0) for a in (0, 1, -1, (0, 1), (1,), (1, 0))]


@program
def trees_with_none(n: Any) -> Any:
    return (n.grad(lambda p: p[0] * p[1]["c"])((2.0, {"c": 3.0, "d": None})),
            n.grad(lambda p: p["w"][0] * p["b"])({"w": [2.0, None], "b": 1.0}),
            n.grad(lambda p: p.x ** 2 * p.y)(Point(2.0, 3.0)))


@program
def auxiliary_outputs(n: Any) -> Any:
    g, aux = n.grad(lambda x: (x ** 2, {"k": n.np.sin(x), "s": "text"}), has_aux=True)(3.0)
    value = n.value_and_grad(lambda x: (x ** 2, (None, "s")), has_aux=True)(3.0)
    return g, aux["s"], value, n.jacrev(lambda x: (x ** 2, {"b": x + 1}), has_aux=True)(
        n.np.arange(2.0)), n.jvp(lambda x: (x * 2, "a"), (1.0,), (1.0,), has_aux=True)


@program
def holomorphic(n: Any) -> Any:
    z = n.np.array(1.0 + 2.0j)
    return n.grad(lambda z: z ** 3, holomorphic=True)(z), n.grad(n.np.sin, holomorphic=True)(
        3.0 + 4.0j), n.jacfwd(lambda z: z ** 2, holomorphic=True)(n.np.array([1.0 + 1.0j]))


# ------------------------------------------------------------------ jvp, vjp, linearize
@program
def cotangents_may_be_numbers(n: Any) -> Any:
    y, pull = n.vjp(lambda x, y: (n.np.sin(x), {"c": n.np.cos(y)}), 0.5, 1.0)
    again = n.vjp(lambda x: (x * 2.0, "aux"), 1.0, has_aux=True)
    return y, pull((1.0, {"c": -1.0})), pull((0.0, {"c": 2.0})), again[0], again[1](3.0), again[2]


@program
def constant_outputs(n: Any) -> Any:
    tangents = n.jvp(lambda x: (x * 1.0, x * 2, 3.0), (1.0,), (1.0,))[1]
    return tangents, n.vjp(lambda: 3.0)[1](1.0)


@program
def linear_functions(n: Any) -> Any:
    y, push = n.linearize(lambda x: 3.0 * n.np.sin(x) + n.np.cos(x / 2.0), 2.0)
    return y, push(3.0), n.vmap(push)(n.np.arange(3.0)), n.linearize(
        lambda x, d: {"o": x * d["k"]}, 2.0, {"k": 3.0})[1](1.0, {"k": 0.5})


@program
def products_with_hessians(n: Any) -> Any:
    def f(x: Any) -> Any:
        return n.np.sum(n.np.sin(x) ** 2)
    x, v = n.np.arange(3.0), n.np.ones(3)
    return (n.jvp(n.grad(f), (x,), (v,))[1], n.grad(lambda x: n.np.vdot(n.grad(f)(x), v))(x),
            n.hessian(f)(x), n.hessian(lambda d: d["a"] ** 2 * d["b"])({"a": 1.0, "b": 2.0}))


@program
def perturbations_stay_apart(n: Any) -> Any:
    inner = n.grad(lambda x: x * n.grad(lambda y: x + y)(1.0))(3.0)
    return inner, n.jvp(lambda x: n.jvp(lambda y: x * y, (2.0,), (1.0,))[1], (3.0,), (1.0,))


# ------------------------------------------------------------------ vmap
@program
def axes_as_trees(n: Any) -> Any:
    x = n.np.arange(6.0).reshape(2, 3)
    scaled = n.vmap(lambda d, y: d["x"] * y + d["w"], in_axes=({"x": 0, "w": None}, 1))
    return (scaled({"x": n.np.arange(3.0), "w": 2.0}, x),
            n.vmap(lambda t, y: t[0] * t[1] + y, in_axes=(1, None))((x, x), 2.0),
            n.vmap(lambda x: {"a": x, "b": x * 2}, out_axes={"a": 1, "b": 0})(x),
            n.vmap(lambda x: x.sum(), in_axes=-1, out_axes=-1)(x),
            n.vmap(lambda t: (t[0] * 2, None))((x, None)))


@program
def keywords_are_mapped(n: Any) -> Any:
    return n.vmap(lambda x, y: x * y, in_axes=0)(n.np.arange(3.0), y=n.np.arange(3.0) + 1)


@program
def matrix_products_from_dots(n: Any) -> Any:
    mv = n.vmap(n.np.vdot, (0, None))
    return n.vmap(mv, (None, 1), 1)(n.np.ones((3, 4)), n.np.arange(8.0).reshape(4, 2))


@program
def per_example(n: Any) -> Any:
    f = n.value_and_grad(lambda w, x, y: (n.np.dot(w, x) - y) ** 2)
    return n.vmap(f, in_axes=(None, 0, 0))(
        n.np.ones(2), n.np.arange(6.0).reshape(3, 2), n.np.ones(3))


@program
def sums_of_constants(n: Any) -> Any:
    return n.vmap(lambda x: n.psum(1, "i") * x, axis_name="i")(n.np.arange(3.0))


# ------------------------------------------------------------------ rules of one's own
@program
def default_arguments_of_a_rule(n: Any) -> Any:
    @n.custom_jvp
    def f(x: Any, y: Any = 2.0) -> Any:
        return x * y
    f.defjvp(lambda p, t: (f(*p), t[0] * p[1] + t[1] * p[0]))
    return n.grad(f)(3.0), n.grad(lambda x: f(x, y=5.0))(3.0), n.grad(f, argnums=1)(3.0, 4.0)


@program
def a_rule_over_trees(n: Any) -> Any:
    @n.custom_jvp
    def f(p: Any) -> Any:
        return {"a": p.x ** 2, "b": (n.np.sin(p.x), n.np.cos(p.y))}

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (p,), (t,) = primals, tangents
        return f(p), {"a": 2 * p.x * t.x, "b": (n.np.cos(p.x) * t.x, -n.np.sin(p.y) * t.y)}
    return n.grad(lambda p: f(p)["a"] + f(p)["b"][0])(Point(1.0, 2.0))


@program
def one_rule_per_argument(n: Any) -> Any:
    @n.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x ** 2 * y
    f.defjvps(lambda t, ans, x, y: 2 * x * y * t, None)
    return n.grad(f, (0, 1))(2.0, 3.0)


@program
def clipped_gradients(n: Any) -> Any:
    @n.custom_vjp
    def clip(low: Any, high: Any, x: Any) -> Any:
        return x
    clip.defvjp(lambda low, high, x: (x, (low, high)),
                lambda r, g: (None, None, n.np.clip(g, r[0], r[1])))
    return n.vmap(n.grad(lambda x: clip(-0.75, 0.75, n.np.sin(x))))(n.np.linspace(0, 3, 4))


@program
def cotangents_of_a_rule_may_be_arrays(n: Any) -> Any:
    @n.custom_vjp
    def f(x: Any) -> Any:
        return n.np.sum(x * 3)
    f.defvjp(lambda x: (f(x), None), lambda _, g: (np.arange(3.0, dtype=np.float32),))
    return n.grad(f)(n.np.ones(3))


@program
def fixed_point(n: Any) -> Any:
    """Two derivatives of sqrt as the fixed point of Newton's step, by the implicit function rule.
    """
    @partial(n.custom_vjp, nondiff_argnums=(0,))
    def solve(f: Any, a: Any, x: Any) -> Any:
        for _ in range(40):
            x = f(a, x)
        return x

    def forward(f: Any, a: Any, x: Any) -> Any:
        found = solve(f, a, x)
        return found, (a, found)

    def backward(f: Any, kept: Any, ct: Any) -> Any:
        a, x = kept
        w = ct
        for _ in range(40):
            w = ct + n.vjp(lambda x: f(a, x), x)[1](w)[0]
        return n.vjp(lambda a: f(a, x), a)[1](w)[0], n.np.zeros_like(x)
    solve.defvjp(forward, backward)

    def root(a: Any) -> Any:
        return solve(lambda a, x: 0.5 * (x + a / x), a, a)
    return root(2.0), n.grad(root)(2.0), n.grad(n.grad(root))(2.0)


# ------------------------------------------------------------------ loops, branches, checkpoints
@program
def loops(n: Any) -> Any:
    xs = n.np.arange(4.0)

    def step(c: Any, x: Any) -> Any:
        return c * 0.5 + x, c
    return (n.scan(step, n.np.array(1.0), xs, unroll=2), n.scan(step, n.np.array(1.0), xs, None,
                                                               True),
            n.fori_loop(0, 5, lambda i, v: v + i, n.np.array(0.0), unroll=True),
            n.grad(lambda a: n.scan(lambda c, x: (c * a + x, None), 1.0, xs)[0])(0.5),
            n.associative_scan(n.np.add, xs),
            n.associative_scan(n.np.multiply, xs + 1, reverse=True))


@program
def branches(n: Any) -> Any:
    def f(x: Any) -> Any:
        return n.cond(x > 0, lambda t: t["a"] * 2, lambda t: t["a"] ** 2, {"a": x})

    def pick(i: Any, x: Any) -> Any:
        return n.switch(i, [lambda x: x, lambda x: x * 2, lambda x: -x], x)
    return (n.grad(f)(1.0), n.grad(f)(-3.0), n.vmap(n.grad(f))(n.np.array([1.0, -3.0])),
            n.vmap(pick)(n.np.array([0, 1, 7]), n.np.ones(3)))


@program
def checkpoints(n: Any) -> Any:
    def f(x: Any) -> Any:
        return n.np.sin(n.np.sin(x))
    g = n.checkpoint(f)
    x = n.np.arange(3.0)
    return (n.grad(g)(2.0), n.jvp(g, (1.0,), (1.0,)), n.hessian(g)(1.0), n.vmap(n.grad(g))(x),
            n.grad(lambda w: n.vmap(n.checkpoint(lambda x: n.np.sin(x * w)))(x).sum())(2.0))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    """F54: the values and the structures are JAX's."""
    same(plain(PROGRAMS[name](OURS)), plain(PROGRAMS[name](THEIRS)), rtol=2e-5, atol=1e-5,
         order=False)


# ------------------------------------------------------------------ errors
def ruled(n: Any, rule: Callable[..., Any]) -> Any:
    f = n.custom_jvp(lambda x: x * 2.0)
    f.defjvp(rule)
    return n.jvp(f, (1.0,), (1.0,))


def pulled(n: Any, back: Callable[..., Any]) -> Any:
    f = n.custom_vjp(lambda x, y: n.np.sum(x * y))
    f.defvjp(lambda x, y: (n.np.sum(x * y), None), back)
    return n.grad(f)(n.np.ones(3), n.np.ones(3))


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "argnums outside": (lambda n: n.grad(lambda x: x, argnums=2)(1.0), TypeError),
    "no positional argument": (lambda n: n.grad(lambda x: x)(x=1.0), TypeError),
    "not scalar": (lambda n: n.grad(lambda x: x * 2)(n.np.ones(3)), TypeError),
    "several outputs": (lambda n: n.grad(lambda x: (x, x))(1.0), TypeError),
    "a list of one": (lambda n: n.grad(lambda x: [x])(1.0), TypeError),
    "an integer output": (lambda n: n.grad(lambda x: 3)(1.0), TypeError),
    "an integer": (lambda n: n.grad(lambda x: x * 2.0)(3), TypeError),
    "a string": (lambda n: n.grad(lambda x: 1.0)("a"), TypeError),
    "a complex output": (lambda n: n.grad(lambda z: z * 2)(n.np.array(1.0 + 2.0j)), TypeError),
    "not holomorphic": (lambda n: n.grad(n.np.sin, holomorphic=True)(3.0), TypeError),
    "no aux": (lambda n: n.grad(lambda x: x ** 2, has_aux=True)(3.0), TypeError),
    "tangents of another tree": (
        lambda n: n.jvp(lambda x, y: x * y, (1.0, 2.0), (1.0,)), TypeError),
    "no tuples": (lambda n: n.jvp(lambda x: x, 1.0, 1.0), TypeError),
    "tangent of another shape": (
        lambda n: n.jvp(lambda x: x, (n.np.ones(3),), (n.np.ones(2),)), ValueError),
    "cotangent of another shape": (
        lambda n: n.vjp(lambda x: x * 2, n.np.ones(3))[1](n.np.ones(2)), ValueError),
    "push of two": (lambda n: n.linearize(lambda x: x ** 2, 3.0)[1](1.0, 2.0), TypeError),
    "mapped sizes": (lambda n: n.vmap(lambda x, y: x)(n.np.ones(3), n.np.ones(4)), ValueError),
    "no mapped axis": (lambda n: n.vmap(lambda x: x, in_axes=None)(n.np.ones(3)), ValueError),
    "an axis outside": (lambda n: n.vmap(lambda x: x, in_axes=2)(n.np.ones((3, 4))), ValueError),
    "too few axes": (lambda n: n.vmap(lambda x, y: x, in_axes=(0,))(
        n.np.ones(3), n.np.ones(3)), ValueError),
    "a mapped output as shared": (
        lambda n: n.vmap(lambda x: x, out_axes=None)(n.np.ones(3)), ValueError),
    "an unbound axis": (lambda n: n.psum(n.np.ones(2), "zz"), NameError),
    "a branch on examples": (lambda n: n.vmap(lambda x: x if x > 0 else -x)(
        n.np.arange(3.0)), TypeError),
    "a number of examples": (lambda n: n.vmap(lambda x: int(x))(n.np.arange(3)), TypeError),
    "a rule with one result": (lambda n: ruled(n, lambda p, t: (p[0] * 2.0,)), TypeError),
    "a tangent of another shape": (
        lambda n: ruled(n, lambda p, t: (p[0] * 2.0, n.np.ones(3))), TypeError),
    "a missing cotangent": (lambda n: pulled(n, lambda _, g: (g,)), TypeError),
    "a cotangent that does not fit": (
        lambda n: pulled(n, lambda _, g: (n.np.ones(5), n.np.ones(3))), ValueError),
    "two conditions": (lambda n: n.cond(n.np.array([True, False]), lambda x: x, lambda x: -x,
                                        3.0), TypeError),
    "no pair": (lambda n: n.scan(lambda c, x: c, 0.0, n.np.arange(4.0)), TypeError),
    "another carry": (
        lambda n: n.scan(lambda c, x: ((c, c), x), 0.0, n.np.arange(4.0)), TypeError),
    "lengths": (lambda n: n.scan(lambda c, x: (c, x), 0.0, n.np.arange(4.0), length=3),
                ValueError),
    "another loop value": (
        lambda n: n.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1,), (0, 1.0)), TypeError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_kinds_of_errors(name: str) -> None:
    """F10: what JAX refuses is refused, and caught by the same `except`."""
    run, kind = REFUSED[name]
    with pytest.raises(kind):
        run(THEIRS)
    with pytest.raises(kind) as error:
        run(OURS)
    assert isinstance(error.value, ad.base.errors.AdjointError)


def test_an_escaped_value_is_a_type_error() -> None:
    """F10: as JAX's UnexpectedTracerError."""
    held: list[Any] = []
    for n in (THEIRS, OURS):
        n.vmap(lambda x: held.append(x) or x)(n.np.ones(2))
        with pytest.raises(TypeError):
            held.pop() * 2


def test_gradients_of_integers() -> None:
    """F10: `allow_int` gives JAX's empty dtype for integer leaves, and the others their gradient.
    """
    def run(n: Any) -> Any:
        g = n.grad(lambda t: (t[0] * 2.0).sum() * t[1]["w"] + t[2], allow_int=True)
        return g((n.np.arange(3), {"w": 2.0}, 5))
    (rows, inner, number), (rows_, inner_, number_) = run(OURS), run(THEIRS)
    assert rows.shape == rows_.shape and rows.dtype == rows_.dtype == jax.dtypes.float0
    assert number.shape == number_.shape and number.dtype == number_.dtype
    assert float(inner["w"]) == float(inner_["w"]) == 6.0
    value, _ = ad.func.value_and_grad(lambda k: k * 1.0, allow_int=True)(ad.tensor(3))
    assert float(value) == 3.0
